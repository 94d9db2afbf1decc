package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/ras/bus"
)

// How long to wait before the same endpoint is tried again.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 3 * time.Second
)

// stream listens to the events of one rank. When its stream breaks, it goes on where it was; when it can't be reached,
// or isn't sound, with another one, from the beginning of what that remembers.
type stream struct {
	client *endpoint.Client
	heard  chan heard

	mu      sync.Mutex
	targets []endpoint.Target
	unsound []string
	to      endpoint.Target
	cancel  context.CancelFunc // of the stream to to; nil: there is none
	open    bool               // it was let in there
	why     string             // nobody is heard
	more    chan struct{}      // a token: targets changed
}

// heard is an event, or that another rank is listened to from now on.
type heard struct {
	moved bool
	event *bus.Event
}

func newStream(client *endpoint.Client) *stream {
	return &stream{client: client, heard: make(chan heard, 256), more: make(chan struct{}, 1)}
}

// reach says which targets there are to listen to.
func (s *stream) reach(targets []endpoint.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(targets, s.targets) {
		return
	}
	s.targets = targets
	s.wake()
}

// avoid names targets not to listen to, if there is another one: a stopped process says nothing.
func (s *stream) avoid(urls []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsound = urls
	if s.cancel != nil && slices.Contains(urls, s.to.URL) && s.sound() {
		s.cancel()
	}
}

// sound tells whether there is a process to listen to that isn't to be avoided. s.mu is held.
func (s *stream) sound() bool {
	return slices.ContainsFunc(s.targets, func(t endpoint.Target) bool { return !slices.Contains(s.unsound, t.URL) })
}

func (s *stream) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// trouble says why nobody is heard; empty if somebody is.
func (s *stream) trouble() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// listening tells whether somebody lets it listen at the moment, whether there is anything to hear or not.
func (s *stream) listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// heardFrom is the target that it listens to at the moment; the zero Target if there is none.
func (s *stream) heardFrom() endpoint.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return endpoint.Target{}
	}
	return s.to
}

func (s *stream) setProblem(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = why
}

// choose is the target to listen to next: the one that was listened to, or, if it failed, the one behind it.
func (s *stream) choose(failed bool) (endpoint.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	candidates := slices.DeleteFunc(slices.Clone(s.targets),
		func(t endpoint.Target) bool { return slices.Contains(s.unsound, t.URL) })
	if len(candidates) == 0 {
		candidates = s.targets
	}
	if len(candidates) == 0 {
		return endpoint.Target{}, false
	}
	at := slices.Index(candidates, s.to)
	switch {
	case at < 0:
		at = 0
	case failed:
		at = (at + 1) % len(candidates)
	}
	return candidates[at], true
}

// run listens until ctx ends.
func (s *stream) run(ctx context.Context) {
	after, backoff, failures := endpoint.All, backoffFirst, 0
	for ctx.Err() == nil {
		to, ok := s.choose(failures > 0)
		if !ok {
			s.setProblem("no process of the job has a health endpoint that can be asked")
			s.pause(ctx, time.Hour)
			continue
		}
		if to != s.to {
			after = endpoint.All
			if !s.tell(ctx, heard{moved: true}) {
				return
			}
		}
		began := time.Now()
		opened, err := s.listen(ctx, to, &after)
		if ctx.Err() != nil {
			return
		}
		if opened && time.Since(began) > backoffMost { // it was no flapping
			backoff, failures = backoffFirst, 0
		}
		failures++ // mostly, a process that ends its stream is ending
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s ended its stream of events", to.URL)
		}
		s.setProblem(err.Error())
		if failures >= s.reachable() { // all were tried
			s.pause(ctx, backoff)
			backoff = min(2*backoff, backoffMost)
		}
	}
}

func (s *stream) reachable() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.targets)
}

// pause waits, but no longer than until there is somebody else to listen to.
func (s *stream) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.more:
	case <-ctx.Done():
	}
}

// listen listens to one until its stream ends, and keeps the id of the last event in after.
func (s *stream) listen(ctx context.Context, to endpoint.Target, after *string) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.to, s.cancel = to, cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.cancel, s.open = nil, false
		s.mu.Unlock()
	}()
	err = s.client.Stream(ctx, to, *after, func() {
		opened = true
		s.mu.Lock()
		s.open, s.why = true, ""
		s.mu.Unlock()
	}, func(ev *bus.Event) error {
		if ev.ID != "" && !ev.Notice() {
			*after = ev.ID
		}
		if !s.tell(ctx, heard{event: ev}) {
			return context.Cause(ctx)
		}
		return nil
	})
	return opened, err
}

func (s *stream) tell(ctx context.Context, h heard) bool {
	select {
	case s.heard <- h:
		return true
	case <-ctx.Done():
		return false
	}
}
