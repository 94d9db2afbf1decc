package tape

import (
	"sync"
	"testing"
	"time"
)

// between says whether the kernel's clock, read before and behind, has c's time between, but for what Now may be off by.
func between(c *counted) (off time.Duration, ok bool) {
	before := kernelNow()
	now := readClock(c)
	after := kernelNow()
	switch {
	case now < before:
		off = time.Duration(now - before)
	case now > after:
		off = time.Duration(now - after)
	}
	return off, -ClockError < off && off < ClockError
}

// The clock is the kernel's, over many anchors. It is read from the counter where that can be trusted, and only there.
func TestCounterIsTheKernelsClock(t *testing.T) {
	c := &counted{}
	if useCounter {
		c = running(t)
	}
	var worst time.Duration
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		off, ok := between(c)
		if !ok {
			t.Fatalf("it is off by %v", off)
		}
		worst = max(worst, off.Abs())
	}
	if used := c.version.Load() > 0; used != useCounter {
		t.Errorf("the counter was used: %v, and can be trusted: %v", used, useCounter)
	}
	t.Logf("off by %v at most, the counter was used: %v", worst, useCounter)
}

// line is the one that counts.
func (c *counted) line() *line { return &c.lines[c.version.Load()%2] }

// running is a clock that has found the counter's slope.
func running(t *testing.T) *counted {
	t.Helper()
	c := &counted{}
	for begin := time.Now(); c.line().slope.Load() == 0; c.now() {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the counter's slope isn't found")
		}
	}
	return c
}

// isRight checks that c is the kernel's clock, when some anchors were made or at once.
func isRight(t *testing.T, c *counted, anchors uint64) {
	t.Helper()
	for begin := readCounter(); readCounter()-begin < anchors*anchorTicks; {
		c.now()
	}
	for begin := time.Now(); time.Since(begin) < 30*time.Millisecond; {
		if off, ok := between(c); !ok {
			t.Errorf("it is off by %v", off)
			return
		}
	}
}

// A counter that jumps, with its machine that sleeps or is moved, is found out.
func TestCounterJumps(t *testing.T) {
	for _, tt := range []struct {
		name    string
		by      int64
		anchors uint64
	}{
		{"back", -1 << 40, 0},
		{"a little back", -1 << 20, 3},
		{"very little back", -1 << 12, 3},
		{"ahead", 1 << 40, 0},
		{"ahead of an anchor", 2 * anchorTicks, 0},
		{"just ahead of an anchor", 3 * anchorTicks / 2, 3},
		{"a little ahead", 1 << 20, 3},
		{"very little ahead", 1 << 12, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t)
			c.line().ticks.Add(uint64(-tt.by)) // as if the counter had gone the other way
			isRight(t, c, tt.anchors)
		})
	}
}

// While the clock is read all the time, it follows the kernel's when that changes its rate, as who sets it by degrees lets it.
func TestCounterFollowsTheKernelsRate(t *testing.T) {
	for name, part := range map[string]int64{"slower": 2000, "much slower": 20, "faster": -2000, "much faster": -20} {
		t.Run(name, func(t *testing.T) {
			c := running(t)
			slope := c.line().slope.Load()
			slope += uint64(int64(slope) / part) // as if it had been that until now
			c.line().slope.Store(slope)
			c.found = slope
			isRight(t, c, 3)
		})
	}
}

// No goroutine sees a time before one that it has seen.
func TestCounterNeverGoesBack(t *testing.T) {
	c := &counted{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := int64(0)
			for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
				for range 1000 {
					now := readClock(c)
					if now < last {
						t.Errorf("%d after %d", now, last)
						return
					}
					last = now
				}
			}
		})
	}
	wg.Wait()
}
