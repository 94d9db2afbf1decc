package tape

import (
	"bytes"
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
// Invariant: version is odd while the other words change.
type counted struct {
	version atomic.Uint64
	ticks   atomic.Uint64 // the anchor; 0: there is none
	mono    atomic.Int64
	kernel  atomic.Int64  // the kernel's time of the anchor, behind mono if the line before it was too steep
	slope   atomic.Uint64 // nanoseconds a tick, times 2^32; 0: not known yet
	found   atomic.Uint64 // the kernel's slope before the anchor, which counts if the one before that was the same
}

const (
	// anchorTicks is how long an anchor serves: 3 to 8 ms at the rates of today's counters.
	anchorTicks = 1 << 24
	// leastTicks and mostTicks bound the distance of two anchors for a slope between them: what two that are tight may be off by, on a line
	// that is four times as long, is within ClockError.
	leastTicks = 1 << 22
	mostTicks  = 1 << 32
	// tightTicks is how long reading both clocks may take for the two to be one moment.
	tightTicks = 512
	// sameSlope is the part of a slope by which another may differ.
	sameSlope = 1024
	// changing is how often a reader looks again who finds the words being changed. It takes some nanoseconds, unless the goroutine that
	// does it is preempted.
	changing = 100
)

func (c *counted) now() int64 {
	for range changing {
		version := c.version.Load()
		anchor, mono, slope := c.ticks.Load(), c.mono.Load(), c.slope.Load()
		since := readCounter() - anchor
		if version&1 != 0 || c.version.Load() != version {
			continue
		}
		if since < anchorTicks && slope != 0 {
			return mono + int64(since*slope>>32)
		}
		if since < 2*anchorTicks { // nobody was told a later time by the anchor
			return c.adjust(mono + int64(min(since, anchorTicks)*slope>>32))
		}
		break
	}
	return c.adjust(0)
}

// adjust reads the kernel's clock, and makes the next anchor unless somebody else is at it. The time is at least least, so that it
// does not go back where the line that ends was a little too steep.
func (c *counted) adjust(least int64) int64 {
	version := c.version.Load() // first, so that no anchor that is older than another takes its place
	before := readCounter()
	kernel := kernelNow()
	after := readCounter()
	mono := max(kernel, least)
	if after-before > tightTicks || version&1 != 0 || !c.version.CompareAndSwap(version, version+1) {
		return mono
	}
	defer c.version.Store(version + 2)
	ticks := before + (after-before)/2
	since := ticks - c.ticks.Load()
	slope := uint64(0) // after a long pause, or if the counter went back
	switch {
	case since < leastTicks:
		return mono // too near to tell
	case since < mostTicks:
		slope = uint64(kernel-c.kernel.Load()) << 32 / since
	}
	found := c.found.Swap(slope)
	if off := max(slope, found) - min(slope, found); off > found/sameSlope {
		slope = 0 // the counter jumped, or the kernel's clock goes at another rate
	}
	// A line that begins ahead of the kernel's clock comes back to it; if it is far ahead, the kernel's clock has to reach it first.
	if ahead := uint64(mono-kernel) << 32 / anchorTicks; ahead < slope/sameSlope {
		slope -= ahead
	} else if ahead > 0 {
		slope = 0
	}
	c.slope.Store(slope)
	c.ticks.Store(ticks)
	c.mono.Store(mono)
	c.kernel.Store(kernel)
	return mono
}
