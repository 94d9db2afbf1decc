package model

import (
	"cmp"
	"slices"
	"time"
)

const (
	waitWindow  = int64(20 * time.Second) // over which waits are summed up, once or twice
	longestWait = int64(time.Second)      // that counts of one wait: one that lasts is a stall, not a straggler's doing
)

// window sums up waits from start on.
type window struct {
	start int64
	waits map[int32]*Wait
}

// waitFor notes that the running operation waits for another rank from now on, -1 for none.
func (c *Comm) waitFor(rank int32, now int64) {
	if c.wait >= 0 && now > c.waitSince {
		w := c.window(now)
		sum := w.waits[c.wait]
		if sum == nil {
			sum = &Wait{Rank: c.wait}
			w.waits[c.wait] = sum
		}
		sum.Time += min(now-c.waitSince, longestWait)
		sum.Ops++
	}
	c.wait, c.waitSince = rank, now
}

// window is the current one.
func (c *Comm) window(now int64) *window {
	w := &c.windows[0]
	if w.waits == nil || now-w.start >= waitWindow {
		c.windows[1] = *w
		*w = window{start: now, waits: make(map[int32]*Wait)}
	}
	return w
}

// Waits is how long operations of the communicator waited for each rank lately, in the order of ranks, and over how
// long that was summed up: 20 to 40 seconds, less when the first wait is not as long ago. A single wait counts for a
// second at most.
func (c *Comm) Waits(now int64) (list []Wait, over int64) {
	if c.windows[0].waits == nil {
		return nil, 0
	}
	from := c.windows[0].start
	if c.windows[1].waits != nil && now-from < waitWindow {
		from = c.windows[1].start
	}
	for i := range c.windows {
		if c.windows[i].waits == nil || c.windows[i].start < from {
			continue
		}
		for rank, w := range c.windows[i].waits {
			byRank := func(l Wait, rank int32) int { return cmp.Compare(l.Rank, rank) }
			at, found := slices.BinarySearchFunc(list, rank, byRank)
			if !found {
				list = slices.Insert(list, at, Wait{Rank: rank})
			}
			list[at].Time += w.Time
			list[at].Ops += w.Ops
		}
	}
	return list, now - from
}
