//go:build linux && cgo

package bench

import (
	"fmt"
	"unsafe"

	kernelscuda "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// nothing is an empty kernel with the parameters of a collective. Its launch time on the host is the driver's part of
// the time of a call.
type nothing struct {
	module *cuda.Module
	kernel *cuda.Function
	args   *kernelscuda.Args
}

const nothingPTX = `.version 6.2
.target sm_70
.address_size 64

.visible .entry carillon_nothing(
	.param .align 8 .b8 args[%d]
)
{
	ret;
}
` + "\x00"

func newNothing(c *cuda.Context) (n *nothing, err error) {
	n = &nothing{args: new(kernelscuda.Args)}
	if n.module, err = c.Load(fmt.Appendf(nil, nothingPTX, unsafe.Sizeof(*n.args))); err != nil {
		return nil, err
	}
	n.kernel, err = n.module.Function("carillon_nothing")
	return n, err
}

// launch launches the kernel with the grid of the smallest collective.
func (n *nothing) launch(s *cuda.Stream) error {
	return s.Launch(n.kernel, 1, 32, 0, unsafe.Pointer(n.args))
}
