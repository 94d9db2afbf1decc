package jobsim

import (
	"slices"
	"time"
)

// timer calls do at a time.
type timer struct {
	at int64
	do func()
}

// clock is virtual time: CLOCK_MONOTONIC of all processes.
type clock struct {
	now int64
	due []timer // latest first; at one time, the one set last first
}

// Now is the time in nanoseconds.
func (c *clock) Now() int64 { return c.now }

// After calls f d from now.
func (c *clock) After(d time.Duration, f func()) {
	at := c.now + int64(max(d, 0))
	i, _ := slices.BinarySearchFunc(c.due, at, func(t timer, at int64) int {
		if t.at > at {
			return -1
		}
		return 1
	})
	c.due = slices.Insert(c.due, i, timer{at, f})
}

// Run advances the clock to until, and calls the timers that fall due.
func (c *clock) Run(until int64) {
	for n := len(c.due) - 1; n >= 0 && c.due[n].at <= until; n = len(c.due) - 1 {
		next := c.due[n]
		c.due[n] = timer{} // for the garbage collector
		c.due = c.due[:n]
		c.now = max(c.now, next.at)
		next.do()
	}
	c.now = max(c.now, until)
}
