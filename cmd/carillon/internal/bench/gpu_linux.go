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
	enginenccl "github.com/carillon-rt/carillon/runtime/engine/nccl"
)

// batch is how many operations are timed together: a GPU's events are exact to half a microsecond, and ranks begin some
// microseconds after each other.
const batch = 100

// GPUs measures all-reduce (float32, sum) between ranks of this process on the machine's GPUs, by turns; several ranks
// share one where there are more of them. With compare each size is also measured on NCCL, where that can run and until
// it fails.
func GPUs(ctx context.Context, s Setup, ranks int, compare bool, progress io.Writer) (results []GPUResult, err error) {
	w, err := openWorld(ctx, ranks, slices.Max(s.Sizes), ours(enginecuda.Options{}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	var other *world // nil where NCCL is not measured, and once it has failed
	notMeasured := func(err error) {
		other = nil
		fmt.Fprintln(progress, "NCCL: not measured:", err)
	}
	if compare {
		if other, err = openNCCL(ctx, w, slices.Max(s.Sizes)); err != nil {
			notMeasured(err)
		}
	}
	defer func() {
		if other != nil {
			err = errors.Join(err, other.close(ctx))
		}
	}()
	for _, bytes := range s.Sizes {
		result, err := w.measure(ctx, s, bytes)
		if err != nil {
			return results, err
		}
		result.GPUs = len(w.contexts)
		if other != nil {
			theirs, err := other.measure(ctx, s, bytes)
			switch {
			case err == nil:
				result.NCCL = &Times{theirs.Eager, theirs.Graph}
			case ctx.Err() != nil:
				return results, err
			default:
				notMeasured(errors.Join(fmt.Errorf("%s: %w", humanize.IBytes(uint64(bytes)), err), other.close(ctx)))
			}
		}
		results = append(results, result)
		fmt.Fprintf(progress, "%d ranks, %s: %s, in a graph %s\n", ranks, humanize.IBytes(uint64(bytes)),
			formatLatency(result.Eager.P50), formatLatency(result.Graph.P50))
	}
	return results, nil
}

// world is a communicator of this process.
type world struct {
	rt       *ccl.Runtime
	contexts []*cuda.Context // by device
	kinds    []engine.DeviceKind
	ranks    []*onGPU
}

// kind makes the engine of a device. It is closed after the communicators if it is an io.Closer.
type kind func(c *cuda.Context, shared bool) (engine.DeviceKind, error)

func ours(o enginecuda.Options) kind {
	return func(c *cuda.Context, shared bool) (engine.DeviceKind, error) {
		o.Shared = shared
		return enginecuda.New(c, o)
	}
}

// openNCCL makes a communicator on NCCL over the devices of another one, which has a device for each rank.
func openNCCL(ctx context.Context, like *world, bytes int) (*world, error) {
	ranks, gpus := len(like.ranks), len(like.contexts)
	if ranks > gpus {
		return nil, fmt.Errorf("%d ranks share %d GPUs, and NCCL needs a GPU for each rank", ranks, gpus)
	}
	const blocking = "NCCL_COMM_BLOCKING" // else each call is handed to a thread of NCCL's, unlike in most programs
	if os.Getenv(blocking) == "" {
		if err := os.Setenv(blocking, "1"); err != nil {
			return nil, err
		}
	}
	return openWorld(ctx, ranks, bytes, func(c *cuda.Context, _ bool) (engine.DeviceKind, error) {
		return enginenccl.New(c, ""), nil
	})
}

// openWorld makes one whose ranks have buffers of so many bytes.
func openWorld(ctx context.Context, ranks, bytes int, of kind) (w *world, err error) {
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
	w = &world{}
	made := w
	defer func() {
		if err != nil {
			err = errors.Join(err, made.close(ctx))
		}
	}()
	kinds := make([]engine.DeviceKind, ranks)
	for r := range kinds {
		if r < devices {
			if err := w.use(driver, r, ranks > devices, of); err != nil {
				return nil, err
			}
		}
		kinds[r] = w.kinds[r%devices]
		rank, err := newOnGPU(w.contexts[r%devices], bytes)
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
	for _, gpu := range w.kinds { // behind the communicators, which have been captured
		if c, ok := gpu.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// use adds a device.
func (w *world) use(driver *cuda.Driver, ordinal int, shared bool, of kind) error {
	dev, err := driver.Device(ordinal)
	if err != nil {
		return err
	}
	c, err := dev.Retain()
	if err != nil {
		return err
	}
	gpu, err := of(c, shared)
	if err != nil {
		return err
	}
	w.contexts, w.kinds = append(w.contexts, c), append(w.kinds, gpu)
	return nil
}

// all has each rank do something. One that fails leaves the communicator, so that none waits for it.
func (w *world) all(do func(r *onGPU) error) error {
	var g errgroup.Group
	for _, r := range w.ranks {
		g.Go(func() error {
			err := do(r)
			if err != nil {
				_ = r.comm.Abort(err)
			}
			return err
		})
	}
	return g.Wait()
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

func (w *world) measure(ctx context.Context, s Setup, bytes int) (GPUResult, error) {
	if err := w.all(func(r *onGPU) error { return r.measure(ctx, s, bytes) }); err != nil {
		return GPUResult{}, err
	}
	result := GPUResult{Ranks: len(w.ranks), Bytes: bytes}
	for _, r := range w.ranks {
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

// repeat makes a batch.
func repeat(one func() error) func() error {
	return func() error {
		for range batch {
			if err := one(); err != nil {
				return err
			}
		}
		return nil
	}
}

// measure makes batches of one size: calls, a graph of calls, and a graph of copies.
func (r *onGPU) measure(ctx context.Context, s Setup, bytes int) error {
	send, recv := r.send.Slice(0, bytes/4), r.recv.Slice(0, bytes/4)
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
