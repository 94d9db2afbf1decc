package bus

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
)

// SinkConfig is the part that the Configs of sinks over HTTP have in common.
type SinkConfig struct {
	// Bus is where the events come from. Required.
	Bus    *Bus
	Filter Filter
	// Transport sends the requests. nil is one of the sink's own, which verifies receivers by the system's roots.
	Transport http.RoundTripper
	// Logger gets a line when a receiver rejects what it is sent, and when it accepts again. nil means slog.Default().
	Logger *slog.Logger
}

// Sink carries events out of the process.
type Sink interface {
	// Name tells the sink from others, in metrics and in the log: "webhook".
	Name() string
	// Run sends events, beginning with the Bus's history, until ctx ends, or until the Bus is closed and everything
	// queued has been sent. Neither is an error. When it returns, none of the sink's goroutines is running. It is
	// called once.
	Run(ctx context.Context) error
	// Stats may be called at any time, from any goroutine.
	Stats() Stats
}

// Stats counts events by their fate. The Bus's own notices about missed events don't count.
type Stats struct {
	Pushed  uint64 // accepted by the receiver
	Dropped uint64 // never sent, because the queue was full
	Failed  uint64 // given up
}

// Counts are Stats for concurrent use. The zero value is ready.
type Counts struct{ Pushed, Failed atomic.Uint64 }

// Delivered counts an event as accepted or, because of err, as given up.
func (c *Counts) Delivered(ev *Event, err error) {
	switch {
	case ev.Notice():
	case err != nil:
		c.Failed.Add(1)
	default:
		c.Pushed.Add(1)
	}
}

// Stats returns the counts, with the sink's number of dropped events.
func (c *Counts) Stats(dropped uint64) Stats {
	return Stats{Pushed: c.Pushed.Load(), Failed: c.Failed.Load(), Dropped: dropped}
}

// one is a Sink that sends one event at a time.
type one struct {
	name    string
	sub     *Subscription
	deliver func(context.Context, *Event) error
	counts  Counts
}

// NewSink makes a Sink that passes events to deliver, one at a time: the history, then the events from now on. An event
// on which deliver fails counts as given up, unless the context of Run has ended.
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
