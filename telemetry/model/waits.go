package model

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	waitWindow  = int64(20 * time.Second) // length of one sum of waits; there are up to two
	longestWait = int64(time.Second)      // the most that one wait counts: a longer wait shows a stall, not a straggler
)

// window sums up waits from start on.
type window struct {
	start int64
	waits map[int32]waitSum // by rank
}

// waitSum is how long operations waited for a rank. An operation that waits for it several times counts once.
type waitSum struct {
	Wait
	last int64 // the start of the operation that counted last
}

// waitFor records that an operation, the one that runs, waits for a rank from now on, -1 for none.
func (c *Comm) waitFor(o *Op, rank int32, now int64) {
	if c.wait >= 0 && now > c.waitSince {
		w := &c.windows[0]
		if w.waits == nil || now-w.start >= waitWindow {
			c.windows[1] = *w
			*w = window{start: max(c.waitSince, now-longestWait), waits: make(map[int32]waitSum)}
		}
		one := Wait{Rank: c.wait, Time: now - max(c.waitSince, w.start), Ops: 1}
		if one.Time > longestWait {
			one.Long, one.LongTime, one.Time = 1, one.Time, longestWait
		}
		w.add(waitSum{one, c.waiting})
	}
	c.wait, c.waitSince, c.waiting = rank, now, o.Start
}

func (w *window) add(more waitSum) {
	sum, before := w.waits[more.Rank]
	if before && more.last == sum.last {
		more.Ops--
	}
	w.waits[more.Rank] = waitSum{last: more.last, Wait: Wait{
		Rank: more.Rank, Time: sum.Time + more.Time, Ops: sum.Ops + more.Ops,
		Long: sum.Long + more.Long, LongTime: sum.LongTime + more.LongTime,
	}}
}

// Waits returns how long operations of the communicator recently waited for each rank, in the order of ranks, and over
// which time: the last 20 to 40 seconds, or since the first wait. A single wait counts for a second at most; Wait.Whole
// has its full time, unless a window begins within it.
func (c *Comm) Waits(now int64) (list []Wait, over int64) {
	last, before := &c.windows[0], &c.windows[1]
	if last.waits == nil {
		return nil, 0
	}
	sum := window{last.start, maps.Clone(last.waits)}
	if before.waits != nil && now-last.start < waitWindow {
		sum.start = before.start
		for _, w := range before.waits {
			sum.add(w)
		}
	}
	for _, w := range sum.waits {
		list = append(list, w.Wait)
	}
	slices.SortFunc(list, func(a, b Wait) int { return cmp.Compare(a.Rank, b.Rank) })
	return list, now - sum.start
}
