//go:build linux && cgo

package cuda

import (
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// Reached returns where the other ranks access the buffers of a device's last large call, as its kernel was told.
func Reached(d engine.Device) kernel.Reach {
	return d.(*device).args.Reach //nolint:errcheck // no other is given
}

// Interpose makes a device send its requests to another rank to a substitute, which answers a request with the result
// of answer for its base address, until end is called.
func Interpose(d engine.Device, rank int, answer func(base uint64) uint64) (end func(), err error) {
	o, err := newOffer(-1, interposed(answer))
	if err != nil {
		return nil, err
	}
	d.(*device).windows.addresses[rank] = o.address() //nolint:errcheck // no other is given
	return o.close, nil
}

type interposed func(base uint64) uint64

func (i interposed) reach(r request) cuda.Pointer { return cuda.Pointer(i(r.Base)) }
func (i interposed) forget(request)               {}

// ForgetBeside makes a rank forget an allocation that it has mapped, and asks it to map another one when blocked, which
// waits until the first is being unmapped, has returned. It returns when that request is answered; forgotten is closed
// when the first is unmapped.
func ForgetBeside(c *cuda.Context, mapped cuda.Pointer, blocked func()) (forgotten <-chan struct{}) {
	r := &reached{context: c, mapped: map[mapping]cuda.Pointer{{1, 1}: mapped}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.forget(request{Rank: 1, ID: 1})
	}()
	blocked()
	r.reach(request{Rank: 1, ID: 2}) // there is no such allocation
	return done
}
