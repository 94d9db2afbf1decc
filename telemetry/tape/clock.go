package tape

import (
	"bytes"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// Now is CLOCK_MONOTONIC in nanoseconds: the clock of all times on a tape, and the same in all processes of a host. It
// makes no system call where the kernel offers the clock in user space. If the kernel's clock is based on a processor's
// counter, Now reads the counter itself, at less than half the cost; then Now is off by two microseconds at most, and
// by up to six while NTP changes the rate of the kernel's clock. If the counter jumps, as when a virtual machine
// migrates, it is off for some milliseconds. It never goes back.
func Now() int64 { return clock.now() }

// clock is the clock of this process.
var clock counterClock

// epoch is a reading of Go's monotonic clock, and epochMono the same moment by the kernel's. Neither ever changes.
var (
	epoch     = time.Now()
	epochMono = func() int64 {
		since, mono, _ := readTogether(sinceEpoch, process.Monotonic)
		return mono - since
	}()
)

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// kernelNow is CLOCK_MONOTONIC by Go's own clock, which costs half as much as clock_gettime through x/sys.
func kernelNow() int64 { return epochMono + sinceEpoch() }

// readTogether reads two clocks at about one moment: it takes the tightest of a few tries, so that a preemption between
// the readings doesn't matter. within is the time from the first reading to the last.
func readTogether(one, other func() int64) (a, b, within int64) {
	within = math.MaxInt64
	for range 8 {
		before := one()
		reading := other()
		if gap := one() - before; gap < within {
			a, b, within = before+gap/2, reading, gap
		}
	}
	return a, b, within
}

// useCounter says that the processor's counter can be trusted: it runs at a constant rate, never stops, and is the same
// on all processors.
var useCounter = func() bool {
	source, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && counterIsClock(string(bytes.TrimSpace(source)), counterIsInvariant())
}()

// counterClock is CLOCK_MONOTONIC, computed from the processor's counter by a linear function, the line, which is valid
// for a few milliseconds. A later reading makes the next line, so that the clock follows the kernel's. Making a line
// allocates nothing: a long operation makes several.
type counterClock struct {
	shown shownLine
	mu    sync.Mutex // for making the next line
	last  line       // the one shown
}

// line computes the time from the counter, starting at one reading of both clocks, the anchor.
type line struct {
	ticks, ticksGood uint64 // the counter at the anchor, and for how many ticks the line holds; 0: none
	mono             int64  // the line's time at the anchor
	slope            uint64 // nanoseconds a tick, times 2^32
	kernel           int64  // the kernel's time at the anchor; mono may be ahead of it
	measured         uint64 // the kernel's slope before the anchor; 0 if unknown
}

// at is the time by the line when the counter is at ticks, if it holds then.
func (l *line) at(ticks uint64) (mono int64, holds bool) {
	since := l.since(ticks)
	return l.mono + int64(since*l.slope>>32), since < l.ticksGood
}

// since is the number of ticks since the anchor: 0 if the counter is behind it by no more than the skew between
// processors.
func (l *line) since(ticks uint64) uint64 {
	if l.ticks-ticks <= skewTicks {
		return 0
	}
	return ticks - l.ticks
}

// shownLine is a line that any goroutine reads while one at a time shows the next.
//
// Invariant: no two lines have the same ticks, and while the words change, ticksGood is 0. So the words are of one line
// if ticksGood isn't 0 and ticks is the same before and after reading the others, of which ticksGood is read first.
type shownLine struct {
	ticks, ticksGood, slope atomic.Uint64
	mono                    atomic.Int64
}

func (s *shownLine) show(l *line) {
	s.ticksGood.Store(0)
	s.ticks.Store(l.ticks)
	s.slope.Store(l.slope)
	s.mono.Store(l.mono)
	s.ticksGood.Store(l.ticksGood)
}

// now is the time by the line, if the line holds and isn't being replaced. If there is none, now doesn't read the
// counter.
func (s *shownLine) now() (mono int64, holds bool) {
	anchor, good := s.ticks.Load(), s.ticksGood.Load()
	if good == 0 {
		return 0, false
	}
	since := readCounter() - anchor
	mono = s.mono.Load() + int64(since*s.slope.Load()>>32)
	return mono, since < good && s.ticks.Load() == anchor
}

const (
	// lineTicks is how long a line holds: 3 to 8 ms at the rates of today's counters.
	lineTicks = 1 << 24
	// leastTicks and mostTicks bound the distance of two anchors for a slope between them. The error of two tight
	// anchors, on a line that is four times as long, is less than a microsecond.
	leastTicks = 1 << 22
	mostTicks  = 1 << 31
	// skewTicks is how far a reading of the counter may be behind an earlier one by another goroutine: processors
	// execute the instruction out of order, and the counters of a virtual machine's processors may differ. A counter
	// that is further behind has jumped.
	skewTicks = 1 << 12
	// tightTicks is how long reading both clocks may take for an anchor.
	tightTicks = 512
	// sameSlope bounds the difference of the next slope to 1/sameSlope: more than NTP changes it by.
	sameSlope = 1024
)

func (c *counterClock) now() int64 {
	if now, holds := c.shown.now(); holds {
		return now
	}
	return c.nextLine()
}

// nextLine reads the kernel's clock, and makes the next line if it can.
func (c *counterClock) nextLine() int64 {
	if !useCounter {
		return kernelNow()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ticks := readCounter()
	if now, holds := c.last.at(ticks); holds { // another goroutine has just made one
		return now
	}
	kernel := kernelNow()
	next, now := c.last.next(ticks, kernel, readCounter()-ticks < tightTicks)
	c.set(next)
	return now
}

// set makes l the line. The caller has mu.
func (c *counterClock) set(l line) {
	c.last = l
	c.shown.show(&l)
}

// next returns the line that follows l from a reading of both clocks on, and the time of that reading. The line is l if
// the reading is useless: it was interrupted (not tight), or is too near to the anchor.
func (l line) next(ticks uint64, kernel int64, tight bool) (next line, now int64) {
	now = max(kernel, l.mono+int64(l.ticksGood*l.slope>>32)) // l may have returned times up to that
	since := l.since(ticks)
	if !tight || since < leastTicks {
		return l, now
	}
	next = line{ticks: ticks, kernel: kernel, mono: now}
	if since > mostTicks { // after a long pause, or the counter went back
		return next, now
	}
	next.measured = uint64(kernel-l.kernel) << 32 / since
	// A line that begins ahead of the kernel's clock falls back to it. It is valid only if two successive measurements
	// gave the same slope: else the counter jumped, as when a machine slept or migrated, or the rate changed.
	ahead := uint64(now-kernel) << 32 / lineTicks
	apart := max(next.measured, l.measured) - min(next.measured, l.measured)
	if apart <= l.measured/sameSlope && ahead <= next.measured/sameSlope {
		next.slope, next.ticksGood = next.measured-ahead, lineTicks
	}
	return next, now
}
