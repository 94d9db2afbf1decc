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

// How long to wait before the same endpoint is tried again.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 3 * time.Second
)

// stream is the listening to the events of one rank. When its stream breaks, it goes on where it was; when it can't be
// reached, or isn't sound, with another one, from the beginning of what that remembers.
type stream struct {
	targets  []endpoint.Target
	unsound  []string // URLs not to listen to, if there is another one: a stopped process says nothing
	to       endpoint.Target
	after    string             // the id of the last event from there
	cancel   context.CancelFunc // ends it; nil: nobody is listened to
	open     bool               // it was let in there, whether there is anything to hear or not
	began    time.Time
	why      string    // nobody is heard; empty if somebody is
	failures int       // one after the other
	retry    time.Time // nobody is listened to before
}

// heard is an event, or that the stream is open, or why it has ended.
type heard struct {
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

// choose is the target to listen to next: the one that was listened to, or, if it failed, the one behind it.
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
	if s.open && now.Sub(s.began) > backoffMost { // it was no flapping
		s.failures = 0
	}
	s.cancel()
	s.cancel, s.open = nil, false
	s.failures++ // mostly, a process that ends its stream is ending
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ended its stream of events", s.to.URL)
	}
	s.why = err.Error()
	if again := s.failures - len(s.targets); again >= 0 { // all were tried
		s.retry = now.Add(min(backoffFirst<<min(again, 8), backoffMost))
	}
}

// listen goes on with listening, unless it does, or waits for somebody to listen to.
func (w *Watcher) listen(ctx context.Context, now time.Time) {
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
		w.once.begin(now)
	}
	listening, cancel := context.WithCancel(ctx)
	s.cancel, s.began = cancel, now
	after := s.after
	tell := func(h heard) error {
		select {
		case w.events <- h:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.running.Go(func() {
		err := w.cfg.Client.Stream(listening, to, after,
			func() { _ = tell(heard{opened: true}) },
			func(ev *bus.Event) error { return tell(heard{event: ev}) })
		_ = tell(heard{err: err})
	})
}
