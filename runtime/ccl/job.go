package ccl

import (
	"context"
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

// jobs are the unfinished jobs of a communicator, oldest first. A job leaves the list in poll and wait only, which AsyncError and Wait
// call: nothing else completes one.
type jobs struct {
	mu   sync.Mutex
	list []*job
}

func (s *jobs) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, j)
}

// poll completes what has ended, in order, up to the first error. done is false, and err ErrInProgress, when something has not.
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
