package tape

import (
	"testing"
	"time"
)

// One moment has one time of day in all that is told of it, however often the clocks are read together in between,
// until the time of day is set.
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
			t.Errorf("read together %v apart by a goroutine that was away for longer, the same moment is %v, and was %v", off, got, first)
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
func TestBothClocks(t *testing.T) {
	for range 100 {
		before, dayBefore := Now(), time.Now().UnixNano()
		mono, wall, within := bothClocks()
		after, dayAfter := Now(), time.Now().UnixNano()
		if mono < before || mono > after || wall < dayBefore || wall > dayAfter || within < 0 || within > after-before {
			t.Fatalf("%d of %d to %d, %d of %d to %d, within %d", mono, before, after, wall, dayBefore, dayAfter, within)
		}
	}
}
