//go:build linux && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/runtime/ccl"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

const everything = 1 << 40

// Tune measures, for each number of ranks, up to which of the sizes each kernel in packets is the fastest in a graph.
func Tune(ctx context.Context, s Setup, ranks []int, progress io.Writer) (enginecuda.Tuning, error) {
	reduce := func(r *onGPU, n int) error {
		return ccl.AllReduceOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n), ccl.Sum)
	}
	gather := func(r *onGPU, n int) error {
		return ccl.AllGatherOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n*r.comm.Size()))
	}
	tuning := enginecuda.Tuning{}
	// upTo is the largest size up to which all are as fast as with others, but for one in fifty, which is noise.
	upTo := func(times []time.Duration, others ...[]time.Duration) (bytes int) {
		for i, t := range times {
			for _, o := range others {
				if t > o[i]+o[i]/50 {
					return bytes
				}
			}
			bytes = s.Sizes[i]
		}
		return bytes
	}
	for _, n := range ranks {
		times := func(name string, l enginecuda.Limits, call func(*onGPU, int) error) ([]time.Duration, error) {
			fmt.Fprintf(progress, "%d ranks, %s:", n, name)
			all, err := tuneTimes(ctx, s, n, l, call, progress)
			fmt.Fprintln(progress)
			return all, err
		}
		oneShot, err1 := times("all-reduce in one shot", enginecuda.Limits{OneShot: everything}, reduce)
		twoShot, err2 := times("all-reduce in two shots", enginecuda.Limits{TwoShot: everything}, reduce)
		fifos, err3 := times("all-reduce through FIFOs", enginecuda.Limits{}, reduce)
		packets, err4 := times("all-gather in packets", enginecuda.Limits{Copy: everything}, gather)
		exchange, err5 := times("all-gather through FIFOs", enginecuda.Limits{}, gather)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return nil, err
		}
		l := enginecuda.Limits{OneShot: upTo(oneShot, twoShot, fifos), Copy: upTo(packets, exchange)}
		l.TwoShot = max(l.OneShot, upTo(twoShot, fifos))
		tuning[n] = l
	}
	return tuning, nil
}

// tuneTimes is what a call takes, of each size.
func tuneTimes(ctx context.Context, s Setup, ranks int, l enginecuda.Limits, call func(*onGPU, int) error,
	progress io.Writer,
) (all []time.Duration, err error) {
	largest := ranks * slices.Max(s.Sizes)
	o := enginecuda.Options{
		Tuning:  enginecuda.Tuning{ranks: l},
		Mailbox: largest * 2, // each packet is half data
	}
	w, err := openWorld(ctx, ranks, largest, ours(o))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	for _, bytes := range s.Sizes {
		err := w.all(func(r *onGPU) error {
			return r.measureGraph(ctx, s, func() error { return call(r, bytes/4) })
		})
		if err != nil {
			return nil, err
		}
		var t Timing
		for _, r := range w.ranks {
			t = t.slower(r.graph)
		}
		fmt.Fprintf(progress, " %s %s", humanize.IBytes(uint64(bytes)), formatLatency(t.P50))
		all = append(all, t.P50)
	}
	return all, nil
}

// measureGraph makes batches of a call in a graph.
func (r *onGPU) measureGraph(ctx context.Context, s Setup, call func() error) error {
	graph, err := r.capture(repeat(call))
	if err != nil {
		return err
	}
	defer graph.Destroy() //nolint:errcheck // nothing of it runs any more
	launch := func() error { return graph.Launch(r.stream) }
	once, err := r.time(ctx, launch) // warm
	if err != nil {
		return err
	}
	n, err := largest(ctx, r.comm, float64(s.iterations(batch*once)))
	if err != nil {
		return err
	}
	r.graph = nil
	for range int(n) {
		took, err := r.time(ctx, launch)
		if err != nil {
			return err
		}
		r.graph = append(r.graph, took)
	}
	return nil
}
