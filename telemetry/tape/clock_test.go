package tape

import (
	"sync"
	"testing"
	"time"
)

// A moment always has the same time of day, however often the clocks are read together in between, until the time of
// day is set.
func TestWallKeepsItsPair(t *testing.T) {
	w := newTape(t, Config{})
	mono, wall := Now(), time.Now().UnixNano()
	pair := func(off, within time.Duration) time.Time {
		w.clock.Lock()
		w.pairClocks(mono+int64(time.Hour), wall+int64(time.Hour+off), int64(within))
		w.clock.Unlock()
		return openTape(t, w.Path()).Header().Wall(mono)
	}
	first := pair(0, 0)
	for _, off := range []time.Duration{300, -700, 20 * time.Microsecond} {
		if got := pair(off, 0); !got.Equal(first) {
			t.Errorf("read together %v apart, the same moment is %v, and was %v", off, got, first)
		}
	}
	for _, off := range []time.Duration{2 * time.Millisecond, -3 * time.Millisecond} {
		if got := pair(off, 3*time.Millisecond); !got.Equal(first) {
			t.Errorf("read together %v apart by a goroutine that was away for longer, the same moment is "+
				"%v, and was %v", off,
				got, first)
		}
	}
	for _, off := range []time.Duration{time.Minute, -time.Hour, 2 * time.Millisecond} {
		if got, want := pair(off, 0), time.Unix(0, wall+int64(off)); !got.Equal(want) {
			t.Errorf("the time of day is set by %v: the moment is %v, want %v", off, got, want)
		}
	}
}

// Now is the kernel's clock, whatever it is read from.
func TestNowIsTheKernelsClock(t *testing.T) {
	const off = int64(6 * time.Microsecond)
	for range 1000 {
		before, now, after := kernelNow(), Now(), kernelNow()
		if now < before-off || now > after+off {
			t.Fatalf("it is %d, and the kernel's clock %d to %d", now, before, after)
		}
	}
}

// A reading of both clocks says how far apart its readings are.
func TestReadTogether(t *testing.T) {
	for range 100 {
		before, dayBefore := Now(), time.Now().UnixNano()
		mono, wall, within := readTogether(Now, wallNow)
		after, dayAfter := Now(), time.Now().UnixNano()
		if mono < before || mono > after || wall < dayBefore || wall > dayAfter || within < 0 || within > after-before {
			t.Fatalf("%d of %d to %d, %d of %d to %d, within %d",
				mono, before, after, wall, dayBefore, dayAfter, within)
		}
	}
}

// running is a clock that has found the counter's slope.
func running(t *testing.T) *counterClock {
	t.Helper()
	c := &counterClock{}
	for begin := time.Now(); c.now() == 0 || c.last.ticksGood == 0; {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the counter's slope isn't found")
		}
	}
	return c
}

// isRight checks that c is the kernel's clock, once it has made some lines.
func isRight(t *testing.T, c *counterClock, lines uint64) {
	t.Helper()
	for begin := readCounter(); useCounter && readCounter()-begin < lines*lineTicks; {
		c.now()
	}
	const off = int64(6 * time.Microsecond)
	for begin := time.Now(); time.Since(begin) < 30*time.Millisecond; {
		before, now, after := kernelNow(), c.now(), kernelNow()
		if now < before-off || now > after+off {
			t.Errorf("it is %d, and the kernel's clock %d to %d", now, before, after)
			return
		}
	}
}

// A counter that jumps, as when its machine sleeps or migrates, is detected; and while the clock is read continually,
// it follows the kernel's clock when that changes its rate.
func TestCounterIsFoundOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*line)
		lines  uint64
	}{
		{"nothing", func(*line) {}, 0},
		{"back", func(l *line) { l.ticks += 1 << 40 }, 4},
		{"a little back", func(l *line) { l.ticks += 1 << 20 }, 3},
		{"ahead", func(l *line) { l.ticks -= 1 << 40 }, 4},
		{"ahead of the line's end", func(l *line) { l.ticks -= 2 * lineTicks }, 4},
		{"slower", func(l *line) { l.slope += l.slope / 2000; l.measured = l.slope }, 4},
		{"faster", func(l *line) { l.slope -= l.slope / 2000; l.measured = l.slope }, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &counterClock{}
			if useCounter { // else it is the kernel's clock at each reading
				c = running(t)
				changed := c.last
				tt.change(&changed)
				c.set(changed)
			}
			isRight(t, c, tt.lines)
		})
	}
}

// A counter that is a little behind that of the processor that made a line gives the line's start.
func TestCounterIsBehindALine(t *testing.T) {
	made := line{
		ticks: 1 << 40, ticksGood: lineTicks, mono: int64(time.Hour), slope: 1 << 31,
		kernel: int64(time.Hour), measured: 1 << 31,
	}
	ticks := made.ticks - skewTicks
	now, holds := made.at(ticks)
	if !holds {
		_, now = made.next(ticks, made.kernel, true)
	}
	if now != made.mono {
		t.Errorf("it is %d, and the line begins at %d", now, made.mono)
	}
}

// An operation that takes longer than a line makes the next, and allocates nothing for it.
func TestNextLineAllocatesNothing(t *testing.T) {
	c := &counterClock{}
	next := func() {
		if !useCounter { // then there are no lines
			c.now()
			return
		}
		for begin := readCounter(); readCounter()-begin < lineTicks+leastTicks; {
			c.now()
		}
	}
	if n := testing.AllocsPerRun(10, next); n != 0 {
		t.Errorf("%v allocations in a line's time", n)
	}
}

// No goroutine sees a time before one that it has seen.
func TestClockNeverGoesBack(t *testing.T) {
	c := &counterClock{}
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
