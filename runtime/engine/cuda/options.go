package cuda

import (
	"log/slog"

	"github.com/carillon-rt/carillon/runtime/engine"
)

// Options are what may be chosen for a GPU. All ranks of a communicator choose the same.
type Options struct {
	// Shared allows several ranks of a communicator on one GPU. Their kernels wait for each other, so they must run at
	// the same time: each stream needs a hardware queue of its own, of which a process has 8 unless
	// CUDA_DEVICE_MAX_CONNECTIONS says otherwise (up to 32) before the context is made.
	Shared bool
	// Mailbox is for how many bytes a rank has room of data that comes with its flags (LL, LL128), flags included, in
	// each of the two formats and for each of two operations: larger operations are made otherwise. Default: 8 MiB.
	Mailbox int
	// Slots is how many bytes of larger collectives, and of messages, a rank has room for. Default: 48 MiB.
	Slots int
	// DisableP2P keeps GPUs from accessing each other's memory: they meet in the host's, as those do that can't.
	DisableP2P bool
	// Tuning is by which kernels calls are made. Default: the file that CARILLON_GPU_TUNING names, else the built-in
	// one.
	Tuning Tuning
	// Fallback carries communicators whose GPUs the package can't join: of several hosts, more than 8, or without
	// memory that all of them reach. Default: none, and such a communicator is an error.
	Fallback engine.DeviceKind
	// Log is where it is said that something is slower than it might be. Default: slog.Default.
	Log *slog.Logger
}
