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

// Tune measures, for each number of ranks, up to which size each kernel that sends packets is the fastest in a graph.
func Tune(ctx context.Context, s Setup, ranks []int, progress io.Writer) (enginecuda.Tuning, error) {
	reduce := func(r *onGPU, n int) error {
		return ccl.AllReduceOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n), ccl.Sum)
	}
	gather := func(r *onGPU, n int) error {
		return ccl.AllGatherOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n*r.comm.Size()))
	}
	tuning := enginecuda.Tuning{}
	// upTo is the largest size up to which times are no more than 2 % above the others', which is noise.
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

// tuneTimes measures a call for each size.
func tuneTimes(ctx context.Context, s Setup, ranks int, l enginecuda.Limits, call func(*onGPU, int) error,
	progress io.Writer,
) (all []time.Duration, err error) {
	largest := ranks * slices.Max(s.Sizes)
	o := enginecuda.Options{
		Tuning:  enginecuda.Tuning{ranks: l},
		Mailbox: largest * 2, // each packet is half data
	}
	w, err := openWorld(ctx, ranks, largest, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	for _, bytes := range s.Sizes {
		took, err := w.measureGraph(ctx, s, bytes, call)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, " %s %s", humanize.IBytes(uint64(bytes)), formatLatency(took))
		all = append(all, took)
	}
	return all, nil
}

// measureGraph is the time of a call in a graph, on the slowest rank.
func (w *world) measureGraph(ctx context.Context, s Setup, bytes int, call func(*onGPU, int) error) (
	took time.Duration, err error,
) {
	defer func() {
		for _, r := range w.ranks {
			err = errors.Join(err, r.forget())
		}
	}()
	n := batch(bytes)
	err = w.all(ctx, func(_ context.Context, r *onGPU) error {
		launch, err := r.captured(repeat(n, func() error { return call(r, bytes/4) }))
		r.sides = []side{{name: graph, put: launch, wait: r.comm.Wait, n: n}}
		return err
	})
	if err == nil {
		err = w.rounds(ctx, s)
	}
	if err != nil {
		return 0, err
	}
	for _, r := range w.ranks {
		took = max(took, median(r.sides[0].gpu))
	}
	return took, nil
}
