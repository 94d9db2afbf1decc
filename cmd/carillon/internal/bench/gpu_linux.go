//go:build linux && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// GPUs measures collectives (float32, sum) between ranks of this process on the machine's GPUs. Ranks share GPUs if
// there are fewer GPUs. With compare, each size is also measured on NCCL, alternating with Carillon, if NCCL can run,
// until NCCL fails.
func GPUs(ctx context.Context, s Setup, collectives []Collective, ranks int, compare bool, progress io.Writer) (
	results []GPUResult, err error,
) {
	most := 0
	for _, bytes := range s.Sizes {
		for _, c := range collectives {
			send, recv := c.elements(bytes, ranks)
			most = max(most, 4*send, 4*recv)
		}
	}
	w, err := openWorld(ctx, ranks, most, enginecuda.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if w != nil {
			err = errors.Join(err, w.endNCCL(ctx, err == nil), w.close(ctx))
		}
	}()
	notMeasured := func(err error) { fmt.Fprintln(progress, "NCCL: not measured:", err) }
	if compare {
		if err := w.openNCCL(ctx); err != nil {
			notMeasured(err)
		}
	}
	for _, c := range collectives {
		for _, bytes := range s.Sizes {
			result, err := w.measure(ctx, s, c, bytes)
			if failed, ok := errors.AsType[*ncclError](err); ok && ctx.Err() == nil {
				notMeasured(fmt.Errorf("%s: %w", humanize.IBytes(uint64(bytes)), failed.error))
				w.abandon(ctx, failed)
				if w, err = openWorld(ctx, ranks, most, enginecuda.Options{}); err == nil {
					result, err = w.measure(ctx, s, c, bytes)
				}
			}
			if err != nil {
				return results, err
			}
			results = append(results, result)
			fmt.Fprintf(progress, "%s, %d ranks, %s: %s, in a graph %s\n", c, ranks,
				humanize.IBytes(uint64(result.Bytes)), formatLatency(result.Eager.P50), formatLatency(result.Graph.P50))
		}
	}
	return results, nil
}

// measure times a collective of one size.
func (w *world) measure(ctx context.Context, s Setup, c Collective, bytes int) (result GPUResult, err error) {
	send, recv := c.elements(bytes, len(w.ranks))
	bytes = 4 * max(send, recv)
	defer w.forget(&err)
	err = w.all(ctx, func(_ context.Context, r *onGPU) error { return r.prepare(ctx, s, c, bytes) })
	if err == nil {
		err = w.all(ctx, func(ctx context.Context, r *onGPU) error { return r.check(ctx, c, bytes) })
	}
	if err != nil {
		return result, err
	}
	if err := w.rounds(ctx, s); err != nil {
		return result, err
	}
	result = GPUResult{Collective: c, Ranks: len(w.ranks), GPUs: len(w.contexts), Bytes: bytes}
	if w.ranks[0].nccl != nil {
		result.Beside = []Library{{Name: "NCCL"}}
	}
	for _, r := range w.ranks {
		r.collect(&result)
	}
	return result, nil
}

// rounds times batches of all sides, after one round to warm up.
func (w *world) rounds(ctx context.Context, s Setup) error {
	began := time.Now()
	if err := w.all(ctx, round); err != nil {
		return err
	}
	n := s.iterations(time.Since(began))
	return w.all(ctx, func(ctx context.Context, r *onGPU) error {
		for i := range r.sides {
			r.sides[i].gpu, r.sides[i].host = nil, nil
		}
		for range n {
			if err := round(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// batch is the number of operations of a size that are timed together, back to back: a GPU's events are exact to half a
// microsecond. Long operations need smaller batches, and a user who wants few iterations gets small ones.
func (s Setup) batch(bytes int) int { return max(5, min(100, 100*(4<<20)/bytes, 5*s.Max)) }

// repeat returns a function that calls one n times.
func repeat(n int, one func() error) func() error {
	return func() error {
		for range n {
			if err := one(); err != nil {
				return err
			}
		}
		return nil
	}
}

// side is an operation that is timed in turn with others.
type side struct {
	put  func() error // enqueues a batch on the stream
	wait func(context.Context) error
	n    int

	gpu, host []time.Duration // of each batch, per operation: the GPU's time, and the time of put
}

// The places of a rank's sides: prepare adds them in this order.
const (
	eager = iota
	graph
	copies
	launches
	ncclEager
	ncclGraph
)

// prepare makes the sides. Their calls use ctx.
func (r *onGPU) prepare(ctx context.Context, s Setup, c Collective, bytes int) error {
	n := s.batch(bytes)
	one := r.ours(ctx, c, bytes)
	add := func(put func() error, wait func(context.Context) error) {
		r.sides = append(r.sides, side{put: put, wait: wait, n: n})
	}
	add(repeat(n, one), r.comm.Wait)
	launch, err := r.captured(repeat(n, one))
	if err != nil {
		return err
	}
	add(launch, r.comm.Wait)
	to, from := r.recv.Pointer(), r.send.Pointer()
	copied, err := r.captured(repeat(n, func() error { return r.stream.Copy(to, from, bytes) }))
	if err != nil {
		return err
	}
	add(copied, r.comm.Wait)
	add(repeat(n, func() error { return r.nothing.launch(r.stream) }), r.comm.Wait)
	if r.nccl != nil {
		add(r.batchNCCL(r.nccl[eager], c, bytes, n), r.waitNCCL)
		launch, err := r.captured(r.batchNCCL(r.nccl[graph], c, bytes, n))
		if err != nil {
			return err
		}
		add(launch, r.waitNCCL)
	}
	return nil
}

// captured captures what put enqueues in a graph, and returns a function that launches it.
func (r *onGPU) captured(put func() error) (launch func() error, err error) {
	if err := r.stream.BeginCapture(); err != nil {
		return nil, err
	}
	failed := put()
	g, err := r.stream.EndCapture()
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	defer g.Destroy() //nolint:errcheck // it was made a moment ago
	x, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	r.graphs = append(r.graphs, x)
	return func() error { return x.Launch(r.stream) }, nil
}

// forget frees the sides and their graphs, and adds its errors to err.
func (w *world) forget(err *error) {
	for _, r := range w.ranks {
		for _, x := range r.graphs {
			*err = errors.Join(*err, x.Destroy())
		}
		r.graphs, r.sides = nil, nil
	}
}

// ours returns a function that calls Carillon's collective.
func (r *onGPU) ours(ctx context.Context, c Collective, bytes int) func() error {
	n, m := c.elements(bytes, r.comm.Size())
	send, recv := r.send.Slice(0, n), r.recv.Slice(0, m)
	switch c {
	case AllGather:
		return func() error { return ccl.AllGatherOn(ctx, r.comm, r.stream, send, recv) }
	case ReduceScatter:
		return func() error { return ccl.ReduceScatterOn(ctx, r.comm, r.stream, send, recv, ccl.Sum) }
	default:
		return func() error { return ccl.AllReduceOn(ctx, r.comm, r.stream, send, recv, ccl.Sum) }
	}
}

// round times a batch of each side.
func round(ctx context.Context, r *onGPU) error {
	for i := range r.sides {
		if err := r.time(ctx, &r.sides[i]); err != nil {
			return err
		}
	}
	return nil
}

// time enqueues two batches and times only the second one: the ranks start some microseconds apart, and the host needs
// some microseconds to launch a graph.
func (r *onGPU) time(ctx context.Context, s *side) error {
	if err := errors.Join(s.put(), r.begin.Record(r.stream)); err != nil {
		return err
	}
	began := time.Now()
	err := s.put()
	host := time.Since(began)
	if err := errors.Join(err, r.end.Record(r.stream)); err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	if err := r.end.Synchronize(); err != nil {
		return err
	}
	ms, err := r.begin.Elapsed(r.end)
	s.gpu = append(s.gpu, time.Duration(float64(ms)*1e6)/time.Duration(s.n))
	s.host = append(s.host, host/time.Duration(s.n))
	return err
}

// collect merges this rank's times into the result, which has those of the slowest rank.
func (r *onGPU) collect(result *GPUResult) {
	slower := func(t *Timing, of int) {
		took := r.sides[of].gpu
		p50 := median(took) // sorts
		*t = Timing{max(t.P50, p50), max(t.P99, took[len(took)*99/100])}
	}
	slower(&result.Eager, eager)
	slower(&result.Graph, graph)
	slower(&result.Copy, copies)
	result.Call = max(result.Call, median(r.sides[eager].host))
	result.Launch = max(result.Launch, median(r.sides[launches].host))
	if r.nccl != nil {
		slower(&result.Beside[0].Eager, ncclEager)
		slower(&result.Beside[0].Graph, ncclGraph)
	}
}

// check runs a batch of each side and checks the result: all elements that rank r sends are r + 1.
func (r *onGPU) check(ctx context.Context, c Collective, bytes int) error {
	ranks := r.comm.Size()
	_, n := c.elements(bytes, ranks)
	for i := range r.sides {
		s := &r.sides[i]
		if i == copies || i == launches {
			continue
		}
		err := errors.Join(r.stream.Set(r.recv.Pointer(), 0xff, 4*n), s.put(), r.end.Record(r.stream))
		if err == nil {
			err = s.wait(ctx)
		}
		if err == nil {
			err = r.end.Synchronize()
		}
		if err != nil {
			return err
		}
		got := make([]float32, n)
		if err := r.context.CopyToHost(kernels.Bytes(got), r.recv.Pointer()); err != nil {
			return err
		}
		for i, v := range got {
			want := ranks * (ranks + 1) / 2
			if c == AllGather {
				want = i/(n/ranks) + 1
			}
			if v != float32(want) {
				return fmt.Errorf("element %d of %s over %d ranks is %v, want %d: it is wrong", i, c, ranks, v, want)
			}
		}
	}
	return nil
}
