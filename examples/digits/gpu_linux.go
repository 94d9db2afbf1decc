//go:build linux && cgo

package main

import (
	"context"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// device is a stream on the rank's GPU, and GPU memory for all gradients.
type device struct {
	stream *cuda.Stream
	memory cuda.Buffer[float32]
}

// newDevice prepares a GPU. The node frees what newDevice allocates.
func newDevice(g *enginecuda.GPU) (d *device, err error) {
	d = &device{}
	if d.stream, err = g.Context().Stream(0); err != nil {
		return nil, err
	}
	d.memory, err = cuda.Alloc[float32](g.Context(), numParams)
	return d, err
}

// sum replaces up to numParams numbers by their sums over all ranks. The sums are computed on the GPUs.
func (d *device) sum(ctx context.Context, world *ccl.Comm, numbers []float32) error {
	c, there := d.stream.Context(), d.memory.Slice(0, len(numbers))
	if err := c.CopyToDevice(there.Pointer(), kernels.Bytes(numbers)); err != nil {
		return err
	}
	if err := ccl.AllReduceOn(ctx, world, d.stream, there, there, ccl.Sum); err != nil {
		return err
	}
	if err := world.Wait(ctx); err != nil { // for the operations on the stream
		return err
	}
	return c.CopyToHost(kernels.Bytes(numbers), there.Pointer())
}
