package bus

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
)

// SinkConfig is what the Configs of sinks have in common that send over HTTP.
type SinkConfig struct {
	// Bus is where the events come from. Required.
	Bus    *Bus
	Filter Filter
	// Transport sends the requests. nil is one of the sink's own, which verifies receivers by the system's roots.
	Transport http.RoundTripper
	// Logger hears when a receiver doesn't take what it is sent, and when it does again. nil means slog.Default().
	Logger *slog.Logger
}

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
type Counts struct{ Pushed, Failed atomic.Uint64 }

// Delivered counts an event that was accepted, or given up because of err.
func (c *Counts) Delivered(ev *Event, err error) {
	switch {
	case ev.Notice():
	case err != nil:
		c.Failed.Add(1)
	default:
		c.Pushed.Add(1)
	}
}

// Stats are the counts, and what the sink knows to be dropped.
func (c *Counts) Stats(dropped uint64) Stats {
	return Stats{Pushed: c.Pushed.Load(), Failed: c.Failed.Load(), Dropped: dropped}
}

// one is a Sink that carries events one after the other.
type one struct {
	name    string
	sub     *Subscription
	deliver func(context.Context, *Event) error
	counts  Counts
}

// NewSink makes a Sink that hands events to deliver, one after the other. It queues from now on, after all that is
// remembered. An event on which deliver fails counts as given up, unless the context of Run has ended.
func NewSink(b *Bus, name string, filter Filter, deliver func(context.Context, *Event) error) Sink {
	return &one{name: name, sub: b.Attach(filter, FromStart), deliver: deliver}
}

func (s *one) Name() string { return s.name }

func (s *one) Stats() Stats { return s.counts.Stats(s.sub.Dropped()) }

func (s *one) Run(ctx context.Context) error {
	defer s.sub.Close()
	for ev := range s.sub.Events(ctx) {
		if err := s.deliver(ctx, ev); err == nil || ctx.Err() == nil {
			s.counts.Delivered(ev, err)
		}
	}
	return nil
}
