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

// Now is CLOCK_MONOTONIC in nanoseconds: the clock of all times on a tape, and the same in all processes of a host.
// It makes no system call where the kernel offers the clock in user space. If the kernel's clock is made of a counter
// of the processor, Now reads the counter itself, at less than half of the cost; then it is off by two microseconds at
// most, and by up to six while NTP changes the rate of the kernel's clock. If the counter jumps, as when a virtual
// machine migrates, it is off for some milliseconds. It never goes back.
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

// kernelNow is CLOCK_MONOTONIC by Go's own clock, which costs half of what clock_gettime through x/sys does.
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

// counterClock is CLOCK_MONOTONIC, read from the processor's counter by a line that is valid for a few milliseconds. A
// later reading makes the next line, so that the clock follows the kernel's. It allocates nothing: an operation that
// takes long makes several.
type counterClock struct {
	shown shownLine
	mu    sync.Mutex // for making the next line
	last  line       // the one shown
}

// line is the time by the counter, from one reading of both clocks on, the anchor.
type line struct {
	ticks, ticksGood uint64 // the counter at the anchor, and for how many ticks the line holds; 0: it doesn't
	mono             int64  // the time that the line tells at the anchor
	slope            uint64 // nanoseconds a tick, times 2^32
	kernel           int64  // the kernel's time at the anchor; mono may be ahead of it
	measured         uint64 // the kernel's slope before the anchor; 0 if unknown
}

// at is the time by the line when the counter is at ticks, if it holds then.
func (l *line) at(ticks uint64) (mono int64, holds bool) {
	since := l.since(ticks)
	return l.mono + int64(since*l.slope>>32), since < l.ticksGood
}

// since is how many ticks are since the anchor: none if the counter is behind it by no more than processors are apart.
func (l *line) since(ticks uint64) uint64 {
	if l.ticks-ticks <= skewTicks {
		return 0
	}
	return ticks - l.ticks
}

// shownLine is a line that any goroutine reads while one at a time shows the next.
//
// Invariant: no two lines have the same ticks, and while the words change, ticksGood is 0. So they are of one line if
// ticksGood isn't 0, which is read first of the others, and ticks are the same before and after.
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

// now is the time by the line, if it holds and isn't being replaced. Where there is none, it doesn't read the counter.
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
	// skewTicks is how far a goroutine may read the counter behind a reading that another made before: processors
	// execute the instruction out of order, and those of a virtual machine may be apart. A counter that is further
	// behind jumped.
	skewTicks = 1 << 12
	// tightTicks is how long reading both clocks may take for an anchor.
	tightTicks = 512
	// sameSlope is the part of a slope by which the next may differ: more than NTP changes it.
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

// next is the line that follows l from a reading of both clocks on, and the time of that reading. It is l if
// the reading is of no use: it was interrupted (not tight), or is too near to the anchor.
func (l line) next(ticks uint64, kernel int64, tight bool) (next line, now int64) {
	now = max(kernel, l.mono+int64(l.ticksGood*l.slope>>32)) // l may have told up to that
	since := l.since(ticks)
	if !tight || since < leastTicks {
		return l, now
	}
	next = line{ticks: ticks, kernel: kernel, mono: now}
	if since > mostTicks { // after a long pause, or the counter went back
		return next, now
	}
	next.measured = uint64(kernel-l.kernel) << 32 / since
	// A line that begins ahead of the kernel's clock falls back to it. It is valid only if the kernel's clock had that
	// slope twice: else the counter jumped, as when a machine slept or migrated, or the rate changed.
	ahead := uint64(now-kernel) << 32 / lineTicks
	apart := max(next.measured, l.measured) - min(next.measured, l.measured)
	if apart <= l.measured/sameSlope && ahead <= next.measured/sameSlope {
		next.slope, next.ticksGood = next.measured-ahead, lineTicks
	}
	return next, now
}
