package node

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// busy says what the process does outside of Carillon, by the processor time that it used between two questions: a rank that others wait
// for computes, or sleeps.
type busy struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration
	text string
}

// leastSpan is the least time over which it is measured; who asks sooner is told what was told before.
const leastSpan = 500 * time.Millisecond

func newBusy() *busy { return &busy{at: time.Now(), used: processorTime()} }

// String is "it used 0.98 of a processor over the last 5.2s"; empty until there is something to say.
func (b *busy) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	span := now.Sub(b.at)
	if span < leastSpan {
		return b.text
	}
	used := processorTime()
	share := (used - b.used).Seconds() / span.Seconds()
	b.at, b.used = now, used
	what := "sleeps or waits for something"
	if share > 0.5 {
		what = "computes"
	}
	b.text = fmt.Sprintf("it %s (%.2f of a processor over the last %s)", what, share, span.Round(100*time.Millisecond))
	return b.text
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
