//go:build linux && cgo

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

const everything = 1 << 40

// limited is a kernel, and the limit that decides when it is used.
type limited struct {
	name  string
	limit func(*enginecuda.Limits) *int // nil: the kernel has no limit
	to    int                           // what the limit is set to for the measurement; 0: everything
}

// ways are the kernels of a call, in the order in which the call considers them.
type ways struct {
	call Collective
	by   []limited
}

var tuned = []ways{
	{AllReduce, []limited{
		{name: "in one shot, LL", limit: func(l *enginecuda.Limits) *int { return &l.OneShot }},
		{name: "in one shot, LL128", limit: func(l *enginecuda.Limits) *int { return &l.OneShotLL128 }},
		{name: "in two shots, LL", limit: func(l *enginecuda.Limits) *int { return &l.TwoShot }},
		{name: "in two shots, LL128", limit: func(l *enginecuda.Limits) *int { return &l.TwoShotLL128 }},
		{name: "without flags"},
	}},
	{AllGather, []limited{
		{name: "in LL", limit: func(l *enginecuda.Limits) *int { return &l.Copy }},
		{name: "in LL128", limit: func(l *enginecuda.Limits) *int { return &l.CopyLL128 }},
		{name: "without flags"},
	}},
	{ReduceScatter, []limited{
		{name: "in one shot, LL128", limit: func(l *enginecuda.Limits) *int { return &l.ReduceScatterLL128 }},
		{name: "without flags"},
	}},
}

// pushing are the kernels for sizes beyond all other limits.
var pushing = []ways{
	{AllReduce, []limited{
		{name: "that reads"},
		{name: "that pushes", limit: func(l *enginecuda.Limits) *int { return &l.Push }, to: 1},
	}},
	{ReduceScatter, []limited{
		{name: "that reads"},
		{name: "that pushes", limit: func(l *enginecuda.Limits) *int { return &l.ReduceScatterPush }, to: 1},
	}},
}

// Tune measures two limits for each number of ranks: up to which of the Setup's sizes each kernel whose data comes with
// its flags is the fastest in a graph, and from which of pushSizes on ranks should push. Both lists are sorted.
func Tune(ctx context.Context, s Setup, pushSizes, ranks []int, progress io.Writer) (enginecuda.Tuning, error) {
	tuning := enginecuda.Tuning{}
	for _, n := range ranks {
		// times measures a call with each of its kernels.
		times := func(call Collective, sizes []int, by []limited) (all [][]time.Duration, err error) {
			for _, kernel := range by {
				fmt.Fprintf(progress, "%d ranks, %s %s:", n, strings.ReplaceAll(string(call), "_", "-"), kernel.name)
				took, err := tuneTimes(ctx, s, n, sizes, call, kernel, progress)
				fmt.Fprintln(progress)
				if err != nil {
					return nil, err
				}
				all = append(all, took)
			}
			return all, nil
		}
		var l enginecuda.Limits
		for _, t := range tuned {
			all, err := times(t.call, s.Sizes, t.by)
			if err != nil {
				return nil, err
			}
			for i, kernel := range t.by[:len(t.by)-1] {
				*kernel.limit(&l) = upTo(s.Sizes, all[:i+1], all[i+1:])
			}
		}
		for _, p := range pushing {
			sizes := slices.Clone(pushSizes)
			for i := range sizes {
				if p.call != AllReduce { // limits are in bytes of a rank's part
					sizes[i] /= n
				}
			}
			all, err := times(p.call, sizes, p.by)
			if err != nil {
				return nil, err
			}
			if i := slices.Index(sizes, upTo(sizes, all[:1], all[1:])) + 1; i < len(sizes) {
				*p.by[1].limit(&l) = sizes[i]
			}
		}
		tuning[n] = l
	}
	return tuning, nil
}

// upTo is the largest size up to which the fastest of some kernels is at most 2 % slower than the fastest of the
// others; 2 % is noise. Each kernel has a time for each size.
func upTo(sizes []int, some, others [][]time.Duration) (bytes int) {
	best := func(of [][]time.Duration, i int) time.Duration {
		return slices.MinFunc(of, func(a, b []time.Duration) int { return cmp.Compare(a[i], b[i]) })[i]
	}
	for i, size := range sizes {
		if rival := best(others, i); best(some, i) > rival+rival/50 {
			break
		}
		bytes = size
	}
	return bytes
}

// tuneTimes measures a call at each size, with only the kernel's own limit set.
func tuneTimes(ctx context.Context, s Setup, ranks int, sizes []int, call Collective, kernel limited,
	progress io.Writer,
) (all []time.Duration, err error) {
	var l enginecuda.Limits
	if kernel.limit != nil {
		*kernel.limit(&l) = cmp.Or(kernel.to, everything)
	}
	largest := ranks * slices.Max(s.Sizes)
	o := enginecuda.Options{
		Tuning:  enginecuda.Tuning{ranks: l},
		Mailbox: largest * 2, // half of a packet is data
	}
	most := slices.Max(sizes)
	if call != AllReduce {
		most *= ranks
	}
	w, err := openWorld(ctx, ranks, max(largest, most), o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	for _, bytes := range sizes {
		took, err := w.measureGraph(ctx, s, call, bytes)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, " %s %s", humanize.IBytes(uint64(bytes)), formatLatency(took))
		all = append(all, took)
	}
	return all, nil
}

// measureGraph is the time of a call in a graph, on the slowest rank. bytes are counted as in a limit: those of the
// buffer for an all-reduce, else those of a rank's part.
func (w *world) measureGraph(ctx context.Context, s Setup, call Collective, bytes int) (took time.Duration, err error) {
	defer w.forget(&err)
	n := s.batch(bytes)
	if call != AllReduce {
		bytes *= len(w.ranks)
	}
	err = w.all(ctx, func(_ context.Context, r *onGPU) error {
		launch, err := r.captured(repeat(n, r.ours(ctx, call, bytes)))
		r.sides = []side{{put: launch, wait: r.comm.Wait, n: n}}
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
