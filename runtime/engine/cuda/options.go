package cuda

import (
	"log/slog"

	"github.com/carillon-rt/carillon/runtime/engine"
)

// Options are the settings of a GPU. All ranks of a communicator must choose the same.
type Options struct {
	// Shared allows several ranks of a communicator on one GPU. Their kernels wait for each other, so they must run at
	// the same time: each stream needs a hardware queue of its own, of which a process has 8 unless
	// CUDA_DEVICE_MAX_CONNECTIONS says otherwise (up to 32) before the context is made.
	Shared bool
	// Mailbox is a rank's room, in bytes including flags, for data that comes with its flags (LL, LL128), in each of
	// the two formats and for each of two operations. Operations that don't fit use other kernels. Default: 8 MiB.
	Mailbox int
	// Slots is a rank's room, in bytes, for larger collectives and for messages. Default: 48 MiB.
	Slots int
	// DisableP2P keeps GPUs from accessing each other's memory: they share host memory, as GPUs without peer access do.
	DisableP2P bool
	// Tuning chooses the kernels of calls. Default: the file that CARILLON_GPU_TUNING names, else the built-in tuning.
	Tuning Tuning
	// Fallback carries communicators whose GPUs this package can't join: on several hosts, more than 8, or without
	// memory that all of them can access. Default: none, and such a communicator is an error.
	Fallback engine.DeviceKind
	// Log gets messages when something is slower than it might be. Default: slog.Default.
	Log *slog.Logger
}
