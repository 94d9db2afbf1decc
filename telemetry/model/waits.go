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
	waits map[int32]Wait // by rank
}

// waitFor records that the running operation waits for a rank from now on, -1 for none.
func (c *Comm) waitFor(rank int32, now int64) {
	if c.wait >= 0 && now > c.waitSince {
		w := &c.windows[0]
		if w.waits == nil || now-w.start >= waitWindow {
			c.windows[1] = *w
			*w = window{start: max(c.waitSince, now-longestWait), waits: make(map[int32]Wait)}
		}
		one := Wait{Rank: c.wait, Time: now - max(c.waitSince, w.start), Ops: 1}
		if one.Time > longestWait {
			one.Long, one.LongTime, one.Time = 1, one.Time, longestWait
		}
		w.add(one)
	}
	c.wait, c.waitSince = rank, now
}

func (w *window) add(more Wait) {
	sum := w.waits[more.Rank]
	w.waits[more.Rank] = Wait{
		Rank: more.Rank, Time: sum.Time + more.Time, Ops: sum.Ops + more.Ops,
		Long: sum.Long + more.Long, LongTime: sum.LongTime + more.LongTime,
	}
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
	byRank := func(a, b Wait) int { return cmp.Compare(a.Rank, b.Rank) }
	return slices.SortedFunc(maps.Values(sum.waits), byRank), now - sum.start
}
