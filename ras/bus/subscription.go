package bus

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Subscription is a subscriber's queue. One goroutine calls Next.
type Subscription struct {
	bus    *Bus
	filter Filter
	ready  chan struct{} // has a token if something changed

	mu      sync.Mutex
	backlog []*Event // from the history, after the id that it resumes at
	queue   []*Event
	missed  uint64 // dropped since the last notice
	dropped uint64 // dropped in all
	seen    string // the id of what Next returned last
	ended   bool
}

// push queues an event, and drops the oldest one if the queue is full.
func (s *Subscription) push(ev *Event) {
	s.mu.Lock()
	var dropped bool
	if s.queue, dropped = enqueue(s.queue, ev, s.bus.cfg.Queue); dropped {
		s.missed++
		s.dropped++
	}
	s.mu.Unlock()
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *Subscription) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.signal()
}

// enqueue appends to a queue of at most limit events, and reports whether the oldest was dropped for it.
func enqueue(queue []*Event, ev *Event, limit int) (_ []*Event, dropped bool) {
	if dropped = len(queue) >= limit; dropped {
		_, queue = dequeue(queue)
	}
	return append(queue, ev), dropped
}

func dequeue(queue []*Event) (*Event, []*Event) {
	ev := queue[0]
	queue[0] = nil // the array stays for a while
	return ev, queue[1:]
}

// Events yields the events that Next returns, until ctx ends, or the Bus is closed and nothing is queued.
func (s *Subscription) Events(ctx context.Context) iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for {
			ev, err := s.Next(ctx)
			if err != nil || !yield(ev) {
				return
			}
		}
	}
}

// Next waits for an event. Events of the types semconv.EventMissed and semconv.EventGap are the Bus's own notices to
// this subscriber; they come in place of missing events, whatever the filter. The error is ErrClosed once the Bus or
// the subscription is closed and nothing is queued, or the cause of ctx's end.
func (s *Subscription) Next(ctx context.Context) (*Event, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ev, ended := s.take()
		if ev != nil {
			return ev, nil
		}
		if ended {
			return nil, ErrClosed
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
		}
	}
}

func (s *Subscription) take() (ev *Event, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.backlog) > 0:
		ev, s.backlog = dequeue(s.backlog)
	case s.missed > 0:
		ev = s.bus.missed(s.seen, s.missed)
		s.missed = 0
		return ev, false
	case len(s.queue) > 0:
		ev, s.queue = dequeue(s.queue)
	default:
		return nil, s.ended
	}
	if !ev.Notice() {
		s.seen = ev.ID
	}
	return ev, false
}

// Waiting tells whether Next would return at once.
func (s *Subscription) Waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backlog) > 0 || s.missed > 0 || len(s.queue) > 0
}

// Dropped counts the events that this subscriber missed.
func (s *Subscription) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Close ends the subscription; what is queued is lost. Closing twice is harmless.
func (s *Subscription) Close() {
	s.bus.detach(s)
	s.mu.Lock()
	s.ended, s.backlog, s.missed, s.queue = true, nil, 0, nil
	s.mu.Unlock()
	s.signal()
}

// Notice tells whether the event is the Bus's own notice to one subscriber, of missed events or of a gap. A subscriber
// can't resume after it.
func (e *Event) Notice() bool { return e.Type == semconv.EventMissed || e.Type == semconv.EventGap }

func (b *Bus) notice(kind, id, text string, data any) *Event {
	ev := Event{Type: kind, Severity: Warning, Text: text, Data: data, Time: time.Now().Round(0), Source: b.cfg.Source}
	_ = ev.prepare() // its data are numbers and words
	ev.ID, ev.Job = id, b.cfg.Job
	ev.wire = sync.OnceValues(ev.encode)
	return &ev
}

// missed is the notice of n events that a queue dropped after the one with the id seen.
func (b *Bus) missed(seen string, n uint64) *Event {
	number := strconv.FormatUint(n, 10)
	text := number + " events were dropped here: they came faster than they were taken"
	return b.notice(semconv.EventMissed, seen+"-missed-"+number, text, Missed{After: seen, Missed: n})
}

// gap is the notice that the history doesn't have the event that a subscriber wanted to resume after.
func (b *Bus) gap(after string, n uint64, why string) *Event {
	after = words.Clip(after, 64)
	text := "events are missing here: the id to resume from is " + why
	if n > 0 {
		text = strconv.FormatUint(n, 10) + " events are missing here: they are " + why
	}
	return b.notice(semconv.EventGap, formatID(b.epoch, b.seq)+"-gap", text, Missed{After: after, Missed: n, Why: why})
}

// Missed is the data of the notices of events that are missing.
type Missed struct {
	// After is the id of the last event before them, as far as it is known.
	After string `json:"after"`
	// Missed is how many there are; 0 if that isn't known.
	Missed uint64 `json:"missed,omitempty"`
	// Why is the reason of a gap: "forgotten", "unknown" (an id of another process), or "malformed" (no id at all).
	Why string `json:"why,omitempty"`
}
