//go:build linux && cgo

package bench

import (
	"cmp"
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

// Tune measures, for each number of ranks, up to which of the Setup's sizes each kernel whose data comes with its flags
// is the fastest in a graph, and from which of pushSizes on an all-reduce should push. Both lists are sorted.
func Tune(ctx context.Context, s Setup, pushSizes, ranks []int, progress io.Writer) (enginecuda.Tuning, error) {
	reduce := func(r *onGPU, n int) error {
		return ccl.AllReduceOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n), ccl.Sum)
	}
	gather := func(r *onGPU, n int) error {
		return ccl.AllGatherOn(ctx, r.comm, r.stream, r.send.Slice(0, n), r.recv.Slice(0, n*r.comm.Size()))
	}
	scatter := func(r *onGPU, n int) error {
		return ccl.ReduceScatterOn(ctx, r.comm, r.stream, r.send.Slice(0, n*r.comm.Size()), r.recv.Slice(0, n), ccl.Sum)
	}
	tuning := enginecuda.Tuning{}
	for _, n := range ranks {
		// times measures each of a call's kernels, with no other limit than its own.
		times := func(what string, sizes []int, call func(*onGPU, int) error, by []tuned) error {
			for i := range by {
				l := enginecuda.Limits{}
				if by[i].limit != nil {
					*by[i].limit(&l) = cmp.Or(by[i].to, everything)
				}
				fmt.Fprintf(progress, "%d ranks, %s %s:", n, what, by[i].name)
				var err error
				by[i].times, err = tuneTimes(ctx, s, n, sizes, l, call, progress)
				fmt.Fprintln(progress)
				if err != nil {
					return err
				}
			}
			return nil
		}
		// measured sets the limits of a call's kernels, in the order in which it tries them. The last one has none.
		measured := func(what string, call func(*onGPU, int) error, by ...tuned) error {
			if err := times(what, s.Sizes, call, by); err != nil {
				return err
			}
			l := tuning[n]
			for i, t := range by[:len(by)-1] {
				*t.limit(&l) = upTo(s.Sizes, by[:i+1], by[i+1:])
			}
			tuning[n] = l
			return nil
		}
		err := measured("all-reduce", reduce,
			tuned{name: "in one shot, LL", limit: func(l *enginecuda.Limits) *int { return &l.OneShot }},
			tuned{name: "in one shot, LL128", limit: func(l *enginecuda.Limits) *int { return &l.OneShotLL128 }},
			tuned{name: "in two shots, LL", limit: func(l *enginecuda.Limits) *int { return &l.TwoShot }},
			tuned{name: "in two shots, LL128", limit: func(l *enginecuda.Limits) *int { return &l.TwoShotLL128 }},
			tuned{name: "without flags"})
		if err == nil {
			err = measured("all-gather", gather,
				tuned{name: "in LL", limit: func(l *enginecuda.Limits) *int { return &l.Copy }},
				tuned{name: "in LL128", limit: func(l *enginecuda.Limits) *int { return &l.CopyLL128 }},
				tuned{name: "without flags"})
		}
		if err == nil {
			err = measured("reduce-scatter", scatter,
				tuned{
					name:  "in one shot, LL128",
					limit: func(l *enginecuda.Limits) *int { return &l.ReduceScatterLL128 },
				},
				tuned{name: "without flags"})
		}
		ways := []tuned{
			{name: "that reads"},
			{name: "that pushes", limit: func(l *enginecuda.Limits) *int { return &l.Push }, to: 1},
		}
		if err == nil {
			err = times("all-reduce", pushSizes, reduce, ways)
		}
		if err != nil {
			return nil, err
		}
		l := tuning[n]
		if i := slices.Index(pushSizes, upTo(pushSizes, ways[:1], ways[1:])) + 1; i < len(pushSizes) {
			l.Push = pushSizes[i]
		}
		tuning[n] = l
	}
	return tuning, nil
}

// tuned is a kernel's limit, or none, and its times.
type tuned struct {
	name  string
	limit func(*enginecuda.Limits) *int
	to    int // what the limit is set to for the measurement; 0 for everything
	times []time.Duration
}

// upTo is the largest size up to which some kernel is no more than 2 % slower than the others, which is noise.
func upTo(sizes []int, some, others []tuned) (bytes int) {
	best := func(of []tuned, i int) time.Duration {
		return slices.MinFunc(of, func(a, b tuned) int { return cmp.Compare(a.times[i], b.times[i]) }).times[i]
	}
	for i, size := range sizes {
		if rival := best(others, i); best(some, i) > rival+rival/50 {
			break
		}
		bytes = size
	}
	return bytes
}

// tuneTimes measures a call for each size.
func tuneTimes(ctx context.Context, s Setup, ranks int, sizes []int, l enginecuda.Limits,
	call func(*onGPU, int) error, progress io.Writer,
) (all []time.Duration, err error) {
	largest := ranks * slices.Max(s.Sizes)
	o := enginecuda.Options{
		Tuning:  enginecuda.Tuning{ranks: l},
		Mailbox: largest * 2, // of a packet half is data
	}
	w, err := openWorld(ctx, ranks, max(largest, slices.Max(sizes)), o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	for _, bytes := range sizes {
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
	n := s.batch(bytes)
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
