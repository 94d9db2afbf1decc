//go:build linux && cgo

package bench

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// world is a communicator of this process.
type world struct {
	rt       *ccl.Runtime
	contexts []*cuda.Context // by device, like gpus and nothing
	gpus     []*enginecuda.GPU
	nothing  []*nothing
	ranks    []*onGPU
}

// openWorld makes a world of ranks with send and receive buffers of so many bytes.
func openWorld(ctx context.Context, ranks, bytes int, o enginecuda.Options) (w *world, err error) {
	if os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS") == "" { // one queue per stream; read when a context is made
		if err := os.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32"); err != nil {
			return nil, err
		}
	}
	driver, err := cuda.Open("")
	if err != nil {
		return nil, err
	}
	devices, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	w = &world{}
	made := w
	defer func() {
		if err != nil {
			err = errors.Join(err, made.close(ctx))
		}
	}()
	o.Shared = ranks > devices
	kinds := make([]engine.DeviceKind, ranks)
	for r := range kinds {
		if r < devices {
			if err := w.use(driver, r, o); err != nil {
				return nil, err
			}
		}
		kinds[r] = w.gpus[r%devices]
		rank, err := newOnGPU(w.contexts[r%devices], w.nothing[r%devices], r, bytes)
		if err != nil {
			return nil, err
		}
		w.ranks = append(w.ranks, rank)
	}
	if w.rt, err = ccl.New(ccl.Config{Engine: host.Kind()}); err != nil {
		return nil, err
	}
	comms, err := w.rt.InitAll(ctx, ranks, ccl.WithDevice(kinds...))
	if err != nil {
		return nil, err
	}
	for r, comm := range comms {
		w.ranks[r].comm = comm
	}
	return w, nil
}

func (w *world) close(ctx context.Context) (err error) {
	for _, r := range w.ranks {
		if r.comm != nil {
			err = errors.Join(err, r.comm.Close())
		}
	}
	if w.rt != nil {
		err = errors.Join(err, w.rt.Close(context.WithoutCancel(ctx)))
	}
	for _, r := range w.ranks {
		err = errors.Join(err, r.context.Free(r.send.Pointer()), r.context.Free(r.recv.Pointer()),
			r.begin.Destroy(), r.end.Destroy(), r.stream.Destroy()) // another world needs its hardware queue
	}
	for _, n := range w.nothing {
		err = errors.Join(err, n.module.Unload())
	}
	for _, gpu := range w.gpus { // after the communicators, whose operations were captured
		err = errors.Join(err, gpu.Close())
	}
	return err
}

// use opens a device.
func (w *world) use(driver *cuda.Driver, ordinal int, o enginecuda.Options) error {
	dev, err := driver.Device(ordinal)
	if err != nil {
		return err
	}
	c, err := dev.Retain()
	if err != nil {
		return err
	}
	gpu, err := enginecuda.New(c, o)
	if err != nil {
		return err
	}
	w.contexts, w.gpus = append(w.contexts, c), append(w.gpus, gpu)
	n, err := newNothing(c)
	if err != nil {
		return err
	}
	w.nothing = append(w.nothing, n)
	return nil
}

// abandon ends a world whose ranks may wait for each other without end.
func (w *world) abandon(ctx context.Context, why error) {
	for _, r := range w.ranks {
		_ = r.comm.Abort(why)
	}
	_ = errors.Join(w.endNCCL(ctx, false), w.close(ctx)) // the caller reports why
}

// all calls do for each rank, until a call fails. The failed rank aborts its communicator, so that no other rank waits
// for it.
func (w *world) all(ctx context.Context, do func(ctx context.Context, r *onGPU) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var g sync.WaitGroup
	for _, r := range w.ranks {
		g.Go(func() {
			if err := do(ctx, r); err != nil {
				fail(err) // before other ranks fail because of it
				_ = r.comm.Abort(err)
			}
		})
	}
	g.Wait()
	return context.Cause(ctx)
}

// onGPU is a rank of a world.
type onGPU struct {
	rank       int
	comm       *ccl.Comm
	nccl       *ncclComms // nil where NCCL is not measured
	context    *cuda.Context
	stream     *cuda.Stream
	begin, end *cuda.Event
	send, recv cuda.Buffer[float32]
	nothing    *nothing

	sides  []side // of the size that is being measured
	graphs []*cuda.Executable
}

func newOnGPU(c *cuda.Context, n *nothing, rank, bytes int) (r *onGPU, err error) {
	r = &onGPU{rank: rank, context: c, nothing: n}
	if r.stream, err = c.Stream(0); err != nil {
		return nil, err
	}
	for _, e := range []**cuda.Event{&r.begin, &r.end} {
		if *e, err = c.Event(true); err != nil {
			return nil, err
		}
	}
	for _, b := range []*cuda.Buffer[float32]{&r.send, &r.recv} {
		if *b, err = cuda.Alloc[float32](c, bytes/4); err != nil {
			return nil, err
		}
	}
	data := make([]float32, bytes/4)
	for i := range data {
		data[i] = float32(rank + 1)
	}
	return r, c.CopyToDevice(r.send.Pointer(), kernels.Bytes(data))
}
