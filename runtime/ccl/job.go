package ccl

import (
	"context"
	"slices"
	"sync"
)

// jobs lists the calls on a communicator that run in the background and are not completed, oldest first: init, split,
// finalize, its part in a group. A job leaves the list in poll, which AsyncError and Wait call, and at the end of a
// group whose caller waited for it: nothing else completes a job.
type jobs struct {
	mu      sync.Mutex
	list    []*Work
	dropped bool // permanently
}

// add puts a job on the list, unless the communicator has ended.
func (s *jobs) add(j *Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropped {
		s.list = append(s.list, j)
	}
}

// poll completes ended jobs, in order, up to the first error. It returns ErrInProgress if a job has not ended.
func (s *jobs) poll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) > 0 {
		j := s.list[0]
		if !j.ended() {
			return ErrInProgress
		}
		s.list = s.list[1:]
		if j.err != nil {
			return j.err
		}
	}
	return nil
}

// complete completes a job that has ended, if it is on the list.
func (s *jobs) complete(j *Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(other *Work) bool { return other == j })
}

// drop removes all jobs, including those added later, as the communicator has ended.
func (s *jobs) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.dropped = nil, true
}

func (s *jobs) unfinished() []*Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// wait blocks until the jobs that are on the list now have ended, or ctx ends. It completes no job.
func (s *jobs) wait(ctx context.Context) error {
	for _, j := range s.unfinished() {
		select {
		case <-j.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
