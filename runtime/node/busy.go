package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// busy tells, by the processor time that the process uses, whether it computes or sleeps outside of Carillon. It
// measures all the time, so that the answer is of now.
type busy struct {
	used func() time.Duration // by the process so far

	mu   sync.Mutex
	last [2]usage // measured last, the older one first
}

// usage is the processor time that had been used by a time.
type usage struct {
	at   time.Time
	used time.Duration
}

const (
	// busyInterval is how often usage is measured. The share is of the last one to two intervals.
	busyInterval = 2 * time.Second
	// leastSpan is the least time over which a share is told.
	leastSpan = 500 * time.Millisecond
	// computing is the share of a processor from which a process computes.
	computing = 0.5
)

func newBusy(used func() time.Duration) *busy {
	now := usage{time.Now(), used()}
	return &busy{used: used, last: [2]usage{now, now}}
}

// age is since when it is measured, before run.
func (b *busy) age() time.Duration { return time.Since(b.last[0].at) }

// run measures until ctx ends.
func (b *busy) run(ctx context.Context) {
	ticker := time.NewTicker(busyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		b.last = [2]usage{b.last[1], {time.Now(), b.used()}}
		b.mu.Unlock()
	}
}

// String is "it computes (0.98 of a processor)"; empty until there is something to say.
func (b *busy) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, first := usage{time.Now(), b.used()}, b.last[0]
	if now.at.Sub(first.at) < leastSpan {
		return ""
	}
	share, what := first.share(now), "sleeps or waits for something"
	if share > computing {
		what = "computes"
	}
	return fmt.Sprintf("it %s (%.2f of a processor)", what, share)
}

// share is the share of a processor that was used between two times.
func (u usage) share(to usage) float64 {
	if span := to.at.Sub(u.at); span > 0 {
		return (to.used - u.used).Seconds() / span.Seconds()
	}
	return 0
}

// processorTime is the processor time that the process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // which fails for none that there is
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
