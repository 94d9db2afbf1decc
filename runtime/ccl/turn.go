package ccl

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
)

// turn orders the calls on one communicator: one runs, the others wait in the order of their arrival. Its holder may
// use the communicator's engine, and write operations on its tape.
//
// Invariant: state is free, or contains the holder's call and whether a ticket waits: awaited is set exactly while
// waiting is not empty or mu is held. When a holder leaves, the turn passes to the first waiter without becoming free.
// Without waiters, a turn is taken and left without mu.
type turn struct {
	state   atomic.Uint32
	mu      sync.Mutex // guards waiting, and the bit awaited of state
	waiting []*ticket
}

// The values of a turn's state: free, or held plus the holder's call, with or without awaited.
const (
	free    = 0
	held    = 1 << 8
	awaited = 1 << 9
)

// ticket is a place in the line. granted is closed when it gets the turn.
type ticket struct {
	call    lifecycle.Call
	granted chan struct{}
}

func (t *turn) tryTake(call lifecycle.Call) bool {
	return t.state.CompareAndSwap(free, held|uint32(call))
}

// line takes a place at the end of the line for a call; it may get the turn at once.
func (t *turn) line(call lifecycle.Call) *ticket {
	k := &ticket{call: call, granted: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.tryTake(call) {
			close(k.granted)
			return k
		}
		if s := t.state.Load(); s != free && t.state.CompareAndSwap(s, s|awaited) {
			t.waiting = append(t.waiting, k)
			return k
		}
	}
}

// wait waits until k gets the turn. If ctx ends first, it leaves the line and returns ctx's error.
func (t *turn) wait(ctx context.Context, k *ticket) error {
	select {
	case <-k.granted:
	case <-ctx.Done():
		if t.stepOut(k) { // it has not got the turn in the meantime
			return context.Cause(ctx)
		}
	}
	return nil
}

// cancel gives up a place, whether it has got the turn or not.
func (t *turn) cancel(k *ticket) {
	if !t.stepOut(k) {
		t.leave()
	}
}

// stepOut removes a place from the line; it returns false if the place has got the turn.
func (t *turn) stepOut(k *ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, k)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if len(t.waiting) == 0 {
		t.state.And(^uint32(awaited))
	}
	return true
}

func (t *turn) leave() {
	if s := t.state.Load(); s&awaited == 0 && t.state.CompareAndSwap(s, free) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 { // the last waiter has stepped out
		t.state.Store(free)
		return
	}
	next := t.waiting[0]
	t.waiting[0] = nil
	t.waiting = t.waiting[1:]
	s := held | uint32(next.call)
	if len(t.waiting) > 0 {
		s |= awaited
	}
	t.state.Store(s)
	close(next.granted)
}

// calls returns the names of the holder's call and of those in line, in order.
func (t *turn) calls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state.Load()
	if s == free {
		return nil
	}
	all := []string{lifecycle.Call(s).String()}
	for _, k := range t.waiting {
		all = append(all, k.call.String())
	}
	return all
}
