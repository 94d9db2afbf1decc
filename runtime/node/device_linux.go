//go:build linux && cgo

package node

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/runtime/cuda"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/nccl"
)

// newDevice makes the GPU of the process's rank; nil if none was asked for. release gives it back.
func newDevice(s *settings) (g *enginecuda.GPU, release func() error, err error) {
	if s.Device == nil {
		return nil, nil, nil
	}
	c, err := retain(s.World.LocalRank)
	if err != nil {
		return nil, nil, fmt.Errorf("the GPU of rank %d: %w", s.World.Rank, err)
	}
	o := *s.Device
	o.Log = cmp.Or(o.Log, s.Log)
	o.DisableP2P = o.DisableP2P || s.Fabric.DisableP2P
	if o.Fallback == nil {
		o.Fallback = nccl.New(c, "")
	}
	if g, err = enginecuda.New(c, o); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the GPU of rank %d: %w", s.World.Rank, err), c.Release())
	}
	return g, func() error { return errors.Join(g.Close(), c.Release()) }, nil
}

// retain retains the context of a rank's device: among the devices that the process sees, the one with index local
// rank, modulo their number. A process that sees only one was given it by its launcher.
func retain(localRank int) (*cuda.Context, error) {
	driver, err := cuda.Open("")
	if err != nil {
		return nil, err
	}
	n, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	if n > 1 && localRank < 0 {
		return nil, fmt.Errorf("the process sees %d, and its launcher doesn't say which rank of the host it is: "+
			"set CARILLON_LOCAL_RANK, or CUDA_VISIBLE_DEVICES to one device", n)
	}
	dev, err := driver.Device(max(localRank, 0) % max(n, 1))
	if err != nil {
		return nil, err
	}
	return dev.Retain()
}
