//go:build linux && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// batch is how many operations are timed together: a GPU's events are exact to half a microsecond, and ranks begin some
// microseconds after each other.
const batch = 100

// GPUs measures all-reduce (float32, sum) between ranks of this process on the machine's GPUs, by turns; several ranks
// share one where there are more of them.
func GPUs(ctx context.Context, s Setup, ranks int, progress io.Writer) (results []GPUResult, err error) {
	if os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS") == "" { // a queue for each stream; read when a context is made
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
	all := make([]*onGPU, ranks)
	gpus := make([]*enginecuda.GPU, min(ranks, devices))
	kinds := make([]engine.DeviceKind, ranks)
	for r := range all {
		if gpus[r%len(gpus)] == nil {
			if gpus[r], err = openGPU(driver, r, enginecuda.Options{Shared: ranks > devices}); err != nil {
				return nil, err
			}
		}
		gpu := gpus[r%len(gpus)]
		kinds[r] = gpu
		if all[r], err = newOnGPU(gpu.Context(), slices.Max(s.Sizes)); err != nil {
			return nil, err
		}
	}
	rt, err := ccl.New(ccl.Config{Engine: host.Kind()})
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, rt.Close(context.WithoutCancel(ctx)))
		for _, gpu := range gpus { // behind the communicators, which have been captured
			err = errors.Join(err, gpu.Close())
		}
	}()
	comms, err := rt.InitAll(ctx, ranks, ccl.WithDevice(kinds...))
	if err != nil {
		return nil, err
	}
	for r := range all {
		defer comms[r].Close() //nolint:errcheck // what was measured is what counts
		all[r].comm = comms[r]
	}
	for _, bytes := range s.Sizes {
		result, err := measureGPUs(ctx, all, s, bytes)
		if err != nil {
			return results, err
		}
		result.GPUs = len(gpus)
		results = append(results, result)
		fmt.Fprintf(progress, "%d ranks, %s: %s, in a graph %s\n", ranks, humanize.IBytes(uint64(bytes)),
			formatLatency(result.Eager.P50), formatLatency(result.Graph.P50))
	}
	return results, nil
}

func openGPU(driver *cuda.Driver, ordinal int, o enginecuda.Options) (*enginecuda.GPU, error) {
	dev, err := driver.Device(ordinal)
	if err != nil {
		return nil, err
	}
	c, err := dev.Retain()
	if err != nil {
		return nil, err
	}
	return enginecuda.New(c, o)
}

// onGPU is a rank.
type onGPU struct {
	comm       *ccl.Comm
	context    *cuda.Context
	stream     *cuda.Stream
	begin, end *cuda.Event
	send, recv cuda.Buffer[float32]

	eager, graph, copies []time.Duration // of each batch, for one operation
	calls                []time.Duration
}

func newOnGPU(c *cuda.Context, bytes int) (r *onGPU, err error) {
	r = &onGPU{context: c}
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
	ones := make([]float32, bytes/4)
	for i := range ones {
		ones[i] = 1
	}
	return r, c.CopyToDevice(r.send.Pointer(), kernels.Bytes(ones))
}

// time is what one operation of a batch took, by the GPU.
func (r *onGPU) time(ctx context.Context, put func() error) (time.Duration, error) {
	if err := errors.Join(r.begin.Record(r.stream), put(), r.end.Record(r.stream), r.comm.Wait(ctx)); err != nil {
		return 0, err
	}
	if err := r.end.Synchronize(); err != nil {
		return 0, err
	}
	ms, err := r.begin.Elapsed(r.end)
	return time.Duration(float64(ms) * 1e6 / batch), err
}

// capture makes a graph of what is put on the stream.
func (r *onGPU) capture(put func() error) (*cuda.Executable, error) {
	if err := r.stream.BeginCapture(); err != nil {
		return nil, err
	}
	failed := put()
	g, err := r.stream.EndCapture()
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	defer g.Destroy() //nolint:errcheck // it was made a moment ago
	return g.Instantiate()
}

func measureGPUs(ctx context.Context, all []*onGPU, s Setup, bytes int) (GPUResult, error) {
	var g errgroup.Group
	for _, r := range all {
		g.Go(func() error { return r.measure(ctx, s, bytes) })
	}
	if err := g.Wait(); err != nil {
		return GPUResult{}, err
	}
	result := GPUResult{Ranks: len(all), Bytes: bytes}
	for _, r := range all {
		result.Eager = result.Eager.slower(r.eager)
		result.Graph = result.Graph.slower(r.graph)
		result.Copy = result.Copy.slower(r.copies)
		result.Enqueue = max(result.Enqueue, median(r.calls))
	}
	return result, nil
}

// slower is the slower of two ranks, of which other has these times.
func (t Timing) slower(other []time.Duration) Timing {
	p50 := median(other) // which sorts them
	return Timing{max(t.P50, p50), max(t.P99, other[len(other)*99/100])}
}

// measure makes batches of one size: calls, a graph of calls, and a graph of copies.
func (r *onGPU) measure(ctx context.Context, s Setup, bytes int) error {
	send, recv := r.send.Slice(0, bytes/4), r.recv.Slice(0, bytes/4)
	repeat := func(one func() error) func() error {
		return func() error {
			for range batch {
				if err := one(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	reduce := func() error { return ccl.AllReduceOn(ctx, r.comm, r.stream, send, recv, ccl.Sum) }
	graph, err := r.capture(repeat(reduce))
	if err != nil {
		return err
	}
	defer graph.Destroy() //nolint:errcheck // nothing of it runs any more
	copies, err := r.capture(repeat(func() error { return r.stream.Copy(recv.Pointer(), send.Pointer(), bytes) }))
	if err != nil {
		return err
	}
	defer copies.Destroy() //nolint:errcheck // likewise
	launch := func(x *cuda.Executable) func() error { return func() error { return x.Launch(r.stream) } }

	once, err := r.time(ctx, repeat(reduce)) // warm
	if err != nil {
		return err
	}
	n, err := largest(ctx, r.comm, float64(s.iterations(3*batch*once)))
	if err != nil {
		return err
	}
	r.eager, r.graph, r.copies, r.calls = nil, nil, nil, make([]time.Duration, 0, batch*int(n))
	timed := repeat(func() error {
		began := time.Now()
		err := reduce()
		r.calls = append(r.calls, time.Since(began))
		return err
	})
	for range int(n) {
		for _, of := range []struct {
			into *[]time.Duration
			put  func() error
		}{{&r.eager, timed}, {&r.graph, launch(graph)}, {&r.copies, launch(copies)}} {
			took, err := r.time(ctx, of.put)
			if err != nil {
				return err
			}
			*of.into = append(*of.into, took)
		}
	}
	return r.check(ctx, send, recv)
}

// check makes one more, and looks at the sum.
func (r *onGPU) check(ctx context.Context, send, recv cuda.Buffer[float32]) error {
	if err := errors.Join(ccl.AllReduceOn(ctx, r.comm, r.stream, send, recv, ccl.Sum), r.comm.Wait(ctx)); err != nil {
		return err
	}
	sum := make([]float32, recv.Len())
	if err := r.context.CopyToHost(kernels.Bytes(sum), recv.Pointer()); err != nil {
		return err
	}
	for i, v := range sum {
		if v != float32(r.comm.Size()) {
			return fmt.Errorf("element %d of the sum over %d ranks is %v: the all-reduce is wrong", i, r.comm.Size(), v)
		}
	}
	return nil
}
