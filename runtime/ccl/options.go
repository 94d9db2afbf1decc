package ccl

import (
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// Reduction is a way to combine elements.
type Reduction = kernels.Reduction

// The reductions. Avg divides the sum by the number of ranks; PreMulSum multiplies each rank's input by its Scale
// first.
const (
	Sum       = kernels.Sum
	Prod      = kernels.Prod
	Max       = kernels.Max
	Min       = kernels.Min
	Avg       = kernels.Avg
	PreMulSum = kernels.PreMulSum
)

// NoColor is the color of a rank that takes part in a Split but gets no communicator from it (NCCL_SPLIT_NOCOLOR).
const NoColor = -1

// MaxRanks is the largest size of a communicator.
const MaxRanks = 1 << 16

// Option is a setting of one communicator.
type Option func(*options)

// options describes a communicator before it is made; Options set some of the fields.
type options struct {
	lifecycle.Info
	devices []engine.DeviceKind
}

// WithName gives the communicator a name for humans: in errors, spans and as a metric label. Use few names: "dp", "tp",
// not one for each step. The default is "world" for World, "comm" for InitRank and InitAll, and the parent's name plus
// "/" and the number of the split for Split, and likewise for Shrink and Grow. After a Revoke, splits are numbered
// anew, and the name is the parent's plus "/after-revoke/" and the number.
func WithName(name string) Option { return func(o *options) { o.Name = name } }

// NonBlocking makes a communicator whose Init, Split, Finalize and group ends return ErrInProgress at once; AsyncError
// and Wait tell when they are done. A runtime configured as blocking (NCCL_COMM_BLOCKING=1) ignores it.
func NonBlocking() Option { return func(o *options) { o.NonBlocking = true } }

// WithDevice puts the rank on a GPU, such as runtime/engine/cuda's. The rank can then also make calls on device memory
// (…On). Either all ranks of a communicator are on GPUs, or none is. InitAll takes one device for each rank, or one for
// all. Communicators derived from this one are on the same GPU.
func WithDevice(devices ...engine.DeviceKind) Option {
	return func(o *options) { o.devices = devices }
}

// OpOption is a setting of one operation.
type OpOption struct{ scale float64 }

// Scale sets the factor of PreMulSum. It may differ between ranks.
func Scale(factor float64) OpOption { return OpOption{factor} }
