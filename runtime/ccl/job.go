package ccl

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// job is a call on one communicator that may go on in the background: init, split, finalize, its part in a group.
type job struct {
	*Work
	group *groupJob // that it is a part of; nil for none
}

func newJob() *job { return &job{Work: newWork()} }

// complete is called once, when the communicator has taken note of the job's end.
func (j *job) complete() {
	if j.group != nil {
		j.group.release()
	}
}

// groupJob is a group whose calls are being made: an object of its own, which belongs to the runtime, and not to the
// goroutine that made it. Each communicator in the group holds a reference, until its user has seen the end: in
// GroupEnd for a blocking one, in AsyncError or Wait for a non-blocking one. Nothing else completes it.
type groupJob struct {
	rt   *Runtime
	refs atomic.Int32
}

func (rt *Runtime) newGroupJob(comms int) *groupJob {
	g := &groupJob{rt: rt}
	g.refs.Store(int32(comms))
	rt.groupJobs.Add(1)
	return g
}

func (g *groupJob) release() {
	if g.refs.Add(-1) == 0 {
		g.rt.groupJobs.Add(-1)
	}
}

// jobs are the unfinished jobs of a communicator, oldest first. A job leaves the list in poll only, which AsyncError
// and Wait call: nothing else completes one.
type jobs struct {
	mu      sync.Mutex
	list    []*job
	dropped bool // for good
}

// add puts a job on the list. On a communicator that is no more it is complete at once.
func (s *jobs) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		j.complete()
		return
	}
	s.list = append(s.list, j)
}

// poll completes what has ended, in order, up to the first error. done is false, and err ErrInProgress, when something
// has not.
func (s *jobs) poll() (err error, done bool) { //nolint:revive // the error is the answer, done says if it is final
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) > 0 {
		j := s.list[0]
		if !j.ended() {
			return ErrInProgress, false
		}
		s.list = s.list[1:]
		j.complete()
		if j.err != nil {
			return j.err, true
		}
	}
	return nil, true
}

// complete completes a job that has ended, if it is on the list.
func (s *jobs) complete(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, j); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
		j.complete()
	}
}

// drop completes all jobs without a look, and those that come yet: their communicator is no more.
func (s *jobs) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.list {
		j.complete()
	}
	s.list, s.dropped = nil, true
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
