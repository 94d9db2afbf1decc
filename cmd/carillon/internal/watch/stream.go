package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/ras/bus"
)

// Waits before an endpoint is tried again.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 3 * time.Second
)

// stream reads the events of one rank. When the connection breaks, it resumes after the last event. When the rank is
// unreachable or unsound, it switches to another rank, and reads all events that the other rank remembers.
type stream struct {
	targets  []endpoint.Target
	unsound  []string // URLs to avoid, if there is another: a stopped process sends nothing
	to       endpoint.Target
	after    string             // the id of the last event from to
	cancel   context.CancelFunc // ends the connection; nil: none
	open     bool               // the endpoint has accepted it
	began    time.Time
	why      string    // why there is no connection; empty if there is one
	failures int       // in a row
	retry    time.Time // not before
}

// message is an event, or says that the stream is open, or why it has ended.
type message struct {
	event  *bus.Event
	opened bool
	err    error
}

func (s *stream) reach(targets []endpoint.Target) {
	if !slices.Equal(targets, s.targets) {
		s.targets, s.retry = targets, time.Time{}
	}
}

func (s *stream) avoid(urls []string) {
	s.unsound = urls
	if s.cancel != nil && slices.Contains(urls, s.to.URL) && len(s.sound()) > 0 {
		s.cancel()
	}
}

func (s *stream) sound() []endpoint.Target {
	return slices.DeleteFunc(slices.Clone(s.targets),
		func(t endpoint.Target) bool { return slices.Contains(s.unsound, t.URL) })
}

// choose returns the target to connect to: the last one, or the next one if the last one failed.
func (s *stream) choose(failed bool) (endpoint.Target, bool) {
	candidates := s.sound()
	if len(candidates) == 0 {
		candidates = s.targets
	}
	if len(candidates) == 0 {
		return endpoint.Target{}, false
	}
	at := slices.Index(candidates, s.to)
	if at < 0 || failed {
		at = (at + 1) % len(candidates)
	}
	return candidates[at], true
}

func (s *stream) ended(err error, now time.Time) {
	if s.open && now.Sub(s.began) > backoffMost { // a stable connection
		s.failures = 0
	}
	s.cancel()
	s.cancel, s.open = nil, false
	s.failures++ // also after a regular end: a process that ends its stream is usually ending
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ended its stream of events", s.to)
	}
	s.why = err.Error()
	if again := s.failures - len(s.targets); again >= 0 { // all were tried
		s.retry = now.Add(min(backoffFirst<<min(again, 8), backoffMost))
	}
}

// listen connects the stream, unless it is connected or waits before it tries again.
func (w *watcher) listen(ctx context.Context, now time.Time) {
	s := &w.stream
	if s.cancel != nil || now.Before(s.retry) {
		return
	}
	to, ok := s.choose(s.failures > 0)
	if !ok {
		s.why = "no process of the job has a health endpoint that can be asked"
		return
	}
	if to != s.to {
		s.to, s.after = to, endpoint.All
		w.history.begin(now)
	}
	listening, cancel := context.WithCancel(ctx)
	s.cancel, s.began = cancel, now
	after := s.after
	tell := func(h message) error {
		select {
		case w.events <- h:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.running.Go(func() {
		err := w.cfg.Client.Stream(listening, to, after,
			func() { _ = tell(message{opened: true}) },
			func(ev *bus.Event) error { return tell(message{event: ev}) })
		_ = tell(message{err: err})
	})
}
