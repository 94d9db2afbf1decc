package tape

import (
	"time"

	"golang.org/x/sys/unix"
)

// epoch is one moment on both of the clocks that kernelNow connects. It never changes.
var epoch, epochMono = startClock()

// Now is CLOCK_MONOTONIC in nanoseconds: the clock of all times on a tape, and the same in all processes of a host. It makes no
// system call where the kernel offers the clock in user space. Where the processor's own counter can be trusted it reads that, at
// less than half of the cost; then it is off by less than ClockError.
func Now() int64 { return readClock(&counterClock) }

// kernelNow is CLOCK_MONOTONIC as the kernel has it. Go's own monotonic clock is the same, counted from another zero; reading it through
// time.Since costs half of what clock_gettime through x/sys does.
func kernelNow() int64 { return epochMono + int64(time.Since(epoch)) }

func startClock() (time.Time, int64) {
	// The tightest of a few tries, so that being preempted between the two readings does not move the zero.
	var at time.Time
	var mono int64
	tightest := time.Duration(1<<63 - 1)
	for range 8 {
		before := time.Now()
		m := monotonic()
		if gap := time.Since(before); gap < tightest {
			tightest, at, mono = gap, before, m-int64(gap)/2
		}
	}
	return at, mono
}

func monotonic() int64 {
	var ts unix.Timespec
	// It can't fail: every Linux has this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
