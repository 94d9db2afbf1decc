package jobsim

import (
	"container/heap"
	"time"
)

// timer is what happens at a time.
type timer struct {
	at    int64
	order uint64 // of those at one time
	do    func()
}

type timers []*timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].order < t[j].order
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(*timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// clock is virtual time: CLOCK_MONOTONIC of all processes.
type clock struct {
	now   int64
	due   timers
	order uint64
}

// Now is the time in nanoseconds.
func (c *clock) Now() int64 { return c.now }

// After has f called d from now.
func (c *clock) After(d time.Duration, f func()) {
	c.order++
	heap.Push(&c.due, &timer{c.now + int64(max(d, 0)), c.order, f})
}

// Run lets the time go on until then.
func (c *clock) Run(until int64) {
	for len(c.due) > 0 && c.due[0].at <= until {
		t := heap.Pop(&c.due).(*timer)
		c.now = max(c.now, t.at)
		t.do()
	}
	c.now = max(c.now, until)
}

// Next is when something happens next; false if nothing does.
func (c *clock) Next() (at int64, ok bool) {
	if len(c.due) == 0 {
		return 0, false
	}
	return c.due[0].at, true
}
