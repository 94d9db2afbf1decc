package bus

import (
	"context"
	"sync/atomic"
)

// Sink carries events out of the process.
type Sink interface {
	// Name tells the sink from others, in metrics and in the log: "webhook".
	Name() string
	// Run carries events, those first that the Bus still remembers, until ctx ends, or until the Bus is closed and all
	// that was queued is carried. Both are no error. It blocks, and when it returns nothing of the sink runs any more.
	// It is called once.
	Run(ctx context.Context) error
	// Stats may be called at any time, from any goroutine.
	Stats() Stats
}

// Stats counts events by what became of them. The notices of the Bus itself, of events that were missed, don't count.
type Stats struct {
	Pushed  uint64 // accepted by the receiver
	Dropped uint64 // never sent, because the queue was full
	Failed  uint64 // given up
}

// Counts are Stats that goroutines count together. The zero value is ready.
type Counts struct{ pushed, failed atomic.Uint64 }

// Pushed counts n events that were accepted.
func (c *Counts) Pushed(n int) { c.pushed.Add(uint64(n)) }

// Failed counts n events that were given up.
func (c *Counts) Failed(n int) { c.failed.Add(uint64(n)) }

// Stats are the counts, beside what the sink knows to be dropped.
func (c *Counts) Stats(dropped uint64) Stats {
	return Stats{Pushed: c.pushed.Load(), Failed: c.failed.Load(), Dropped: dropped}
}
