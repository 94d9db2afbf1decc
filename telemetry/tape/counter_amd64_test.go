package tape

import (
	"sync"
	"testing"
	"time"
)

// between says whether the kernel's clock, read before and behind, has c's time between, but for what Now may be off by.
func between(c *counted) (off time.Duration, ok bool) {
	before := kernelNow()
	now := c.now()
	after := kernelNow()
	switch {
	case now < before:
		off = time.Duration(now - before)
	case now > after:
		off = time.Duration(now - after)
	}
	return off, -ClockError < off && off < ClockError
}

// The clock is the kernel's, over many anchors, and after pauses in which nobody read it.
func TestCounterIsTheKernelsClock(t *testing.T) {
	c := &counted{}
	var worst time.Duration
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		off, ok := between(c)
		if !ok {
			t.Fatalf("it is off by %v", off)
		}
		worst = max(worst, off.Abs())
	}
	if c.slope.Load() == 0 {
		t.Error("the counter was never used")
	}
	t.Logf("off by %v at most", worst)
}

// A counter that jumps, with its machine that sleeps or is moved, is found out.
func TestCounterJumps(t *testing.T) {
	for name, by := range map[string]int64{"back": 1 << 40, "a little back": 1 << 20, "ahead": -1 << 40, "ahead of an anchor": -2 * anchorTicks} {
		c := &counted{}
		for c.slope.Load() == 0 {
			c.now()
		}
		c.ticks.Add(uint64(by)) // as if the counter had gone the other way
		for begin := time.Now(); time.Since(begin) < 30*time.Millisecond; {
			if off, ok := between(c); !ok {
				t.Errorf("%s: it is off by %v", name, off)
				break
			}
		}
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
					now := c.now()
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
