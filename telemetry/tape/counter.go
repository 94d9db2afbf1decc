package tape

import (
	"bytes"
	"math"
	"os"
	"sync/atomic"
	"time"
)

// ClockError bounds what Now differs from CLOCK_MONOTONIC by while the kernel's clock keeps its rate. While NTP changes that by its usual
// most, a half of a thousandth, it may be four microseconds more.
const ClockError = 2 * time.Microsecond

// counterClock is the clock of this process.
var counterClock counted

// useCounter says that the processor's counter can be trusted: the kernel itself keeps its time by it, which it does only if it runs at
// one rate, never stops, and is the same on all processors.
var useCounter = hasCounter && kernelUsesCounter()

func kernelUsesCounter() bool {
	name, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && string(bytes.TrimSpace(name)) == counterName
}

// counted is CLOCK_MONOTONIC, read from the processor's counter: the line through one moment on both, the anchor, with the slope of the
// time before it. Each anchor serves for a few milliseconds; who reads the clock after that makes the next. So it follows the kernel,
// which lets NTP change its slope by half a thousandth and more. A counter that jumps, as it may when a machine sleeps or is moved, is found
// out at once if it went far, and with the next anchor else.
//
// Invariant: a line changes only while it is not the one that counts. So nobody ever waits for who makes an anchor.
type counted struct {
	_       [64]byte      // what is written every few milliseconds only has lines of the cache for itself
	version atomic.Uint64 // lines[version%2] counts
	lines   [2]line
	_       [64]byte

	adjusting atomic.Bool
	kernel    int64  // by who is adjusting: the kernel's time of the anchor, from which mono is ahead
	found     uint64 // and: the kernel's slope before the anchor, which counts if the one before that was the same
}

// line says what the time is at which count.
type line struct {
	ticks atomic.Uint64 // the anchor; 0: there is none
	mono  atomic.Int64
	slope atomic.Uint64 // nanoseconds a tick, times 2^32; 0: not known yet
}

const (
	// anchorTicks is how long an anchor serves: 3 to 8 ms at the rates of today's counters.
	anchorTicks = 1 << 24
	// leastTicks and mostTicks bound the distance of two anchors for a slope between them: what two that are tight may be off by, on a line
	// that is four times as long, is within ClockError.
	leastTicks = 1 << 22
	mostTicks  = 1 << 32
	// tightTicks is how long making an anchor may take.
	tightTicks = 512
	// clockAhead is how far, in ns, a line begins ahead of the kernel's clock: so that nobody who has asked that, as there was no line or
	// another's anchor was being made, is told an earlier time by the line then, which may be a little too flat.
	clockAhead = 500
	// sameSlope is the part of a slope by which another may differ.
	sameSlope = 1024
)

// lookAgain is readClock when it is time for another anchor, when somebody has just made one, and where the counter can't be trusted.
func lookAgain(c *counted) int64 {
	if !useCounter {
		return kernelNow()
	}
	return c.now()
}

func (c *counted) now() int64 {
	for {
		version := c.version.Load()
		l := &c.lines[version%2]
		anchor, mono, slope := l.ticks.Load(), l.mono.Load(), l.slope.Load()
		since := readCounter() - anchor
		if c.version.Load() != version {
			continue // and the line may have been another's
		}
		if since > math.MaxUint64-tightTicks { // another processor's counter is a little behind
			since = 0
		}
		switch {
		case since < anchorTicks && slope != 0:
			return mono + int64(since*slope>>32)
		case since < 2*anchorTicks: // nobody was told a later time by the anchor
			return c.adjust(mono + int64(min(since, anchorTicks)*slope>>32))
		default:
			return c.adjust(0)
		}
	}
}

// adjust reads the kernel's clock, and makes the next anchor unless somebody else is at it. The time is at least least, so that it
// does not go back where the line that ends was a little too steep.
func (c *counted) adjust(least int64) int64 {
	if !c.adjusting.CompareAndSwap(false, true) {
		return max(kernelNow(), least)
	}
	defer c.adjusting.Store(false)
	ticks := readCounter()
	kernel := kernelNow()
	told, mono := max(kernel, least), max(kernel+clockAhead, least)
	version := c.version.Load()
	last := &c.lines[version%2]
	since := ticks - last.ticks.Load()
	if since < leastTicks || since < anchorTicks && last.slope.Load() != 0 {
		return told // too near to tell, or somebody has just made one
	}
	slope := uint64(0) // after a long pause, or if the counter went back
	if since < mostTicks {
		slope = uint64(kernel-c.kernel) << 32 / since
	}
	found := slope
	if off := max(slope, c.found) - min(slope, c.found); off > c.found/sameSlope {
		slope = 0 // the counter jumped, or the kernel's clock goes at another rate
	}
	// A line that begins further ahead of the kernel's clock comes back to it; if it is far ahead, the kernel's clock has to reach it first.
	if ahead := uint64(mono-kernel-clockAhead) << 32 / anchorTicks; ahead < slope/sameSlope {
		slope -= ahead
	} else if ahead > 0 {
		slope = 0
	}
	if readCounter()-ticks > tightTicks {
		return told // it was interrupted, and the two readings are not one moment
	}
	next := &c.lines[(version+1)%2]
	next.ticks.Store(ticks)
	next.mono.Store(mono)
	next.slope.Store(slope)
	c.kernel, c.found = kernel, found
	c.version.Store(version + 1)
	return told
}
