package tape

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Sync waits until whoever calls Read, or Next, has come back for more than what was on the tape when Sync was called, or has been told
// that there is no more. When ctx ends first it returns its error. It may be called from any goroutine but that one.
func (f *Follower) Sync(ctx context.Context) error {
	op, err := f.readWord(hdrOpHead)
	if err != nil {
		return err
	}
	life, err := f.readWord(hdrLifeHead) // behind the other; see cursor
	if err != nil {
		return err
	}
	t := f.syncs.add(op, life)
	defer f.syncs.remove(t)
	f.kick()
	select {
	case <-t.reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// target is how far a Sync wants both rings to be read.
type target struct {
	op, life uint64
	reached  chan struct{}
}

// syncs are the Syncs that wait.
//
// Invariant: waiting is the length of list, so that a Read without any costs one load.
type syncs struct {
	waiting atomic.Int32
	mu      sync.Mutex
	list    []*target
	ended   bool // nothing more is read
}

func (s *syncs) add(op, life uint64) *target {
	t := &target{op: op, life: life, reached: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		close(t.reached)
		return t
	}
	s.list = append(s.list, t)
	s.waiting.Add(1)
	return t
}

func (s *syncs) remove(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, t); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
		s.waiting.Add(-1)
	}
}

// reached ends the Syncs that c has come far enough for, when all that it delivered has been dealt with.
func (s *syncs) reached(c *cursor) {
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(t *target) bool {
		held := c.held && c.life.next == t.life // the last of those on the life ring is still to be delivered
		if held || c.op.next < t.op || c.life.next < t.life {
			return false
		}
		close(t.reached)
		s.waiting.Add(-1)
		return true
	})
}

// end ends all Syncs, those to come too.
func (s *syncs) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		close(t.reached)
	}
	s.list, s.ended = nil, true
	s.waiting.Store(0)
}
