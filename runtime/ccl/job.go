package ccl

import (
	"context"
	"slices"
	"sync"
)

// job is a call that may go on in the background: init, split, finalize, a group. The zero job has not begun.
type job struct {
	done chan struct{}
	err  error // written before done is closed
}

func newJob() *job { return &job{done: make(chan struct{})} }

func (j *job) end(err error) {
	j.err = err
	close(j.done)
}

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// jobs are the unfinished jobs of a communicator, oldest first. AsyncError and Wait complete one, by
// poll; so does the end of the group that a blocking communicator was made in. Nothing else does.
type jobs struct {
	mu   sync.Mutex
	list []*job
}

func (s *jobs) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, j)
}

// complete takes a job that has ended off the list, if it is there.
func (s *jobs) complete(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(other *job) bool { return other == j })
}

// clear takes all jobs off the list: their communicator is being closed, and nobody asks for them any more.
func (s *jobs) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

// poll completes what has ended, in order, up to the first error. done is false, and err ErrInProgress, when something
// has not.
func (s *jobs) poll() (err error, done bool) { //nolint:revive // the error is the answer here, and done says whether it is final
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) > 0 {
		j := s.list[0]
		if !j.ended() {
			return ErrInProgress, false
		}
		s.list = s.list[1:]
		if j.err != nil {
			return j.err, true
		}
	}
	return nil, true
}

// unfinished tells whether a job is on the list.
func (s *jobs) unfinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}

// wait blocks until the jobs that are on the list now have ended, or ctx ends. It completes none.
func (s *jobs) wait(ctx context.Context) error {
	s.mu.Lock()
	list := append([]*job(nil), s.list...)
	s.mu.Unlock()
	for _, j := range list {
		select {
		case <-j.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
