package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// busy tells, by the processor time that the process uses, whether it computes or sleeps outside of Carillon. It
// measures continuously, so that the answer is current.
type busy struct {
	used  func() time.Duration // by the process so far
	every time.Duration        // how often it is measured

	mu   sync.Mutex
	last [busyParts]usage // the last measurements, oldest first
}

// usage is the processor time that had been used at some time.
type usage struct {
	at   time.Time
	used time.Duration
}

const (
	// The share is measured over a span of this length, or of the stall threshold if that is shorter: a rank that a
	// verdict names has been between its calls for that long, and what it did before doesn't count.
	busySpan = 500 * time.Millisecond
	// minBusySpan is the shortest: the kernel may count in units of 10 ms.
	minBusySpan = 50 * time.Millisecond
	// busyParts is how often it is measured in a span; the last part may not have passed yet.
	busyParts = 5
	// computing is the share of a processor from which a process computes.
	computing = 0.5
)

// newBusy takes the first measurement of used, for a process with this stall threshold; 0 is none.
func newBusy(used func() time.Duration, stall time.Duration) *busy {
	if stall <= 0 || stall > busySpan {
		stall = busySpan
	}
	b := &busy{used: used, every: max(stall, minBusySpan) / busyParts}
	for i := range b.last {
		b.last[i] = usage{time.Now(), used()}
	}
	return b
}

func (b *busy) measure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	copy(b.last[:], b.last[1:])
	b.last[len(b.last)-1] = usage{time.Now(), b.used()}
}

// run measures until ctx ends.
func (b *busy) run(ctx context.Context) { every(ctx, b.every, b.measure) }

// String is "it computes (0.98 of a processor)"; empty until there is something to say.
func (b *busy) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, first := usage{time.Now(), b.used()}, len(b.last)-1
	for first >= 0 && now.at.Sub(b.last[first].at) < (busyParts-1)*b.every {
		first--
	}
	if first < 0 || now.used < b.last[first].used { // the process has ended
		return ""
	}
	share, what := b.last[first].share(now), "sleeps or waits for something"
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
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // never fails for RUSAGE_SELF
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
