package ccl

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
)

// turn orders the calls on one communicator: one runs, the others wait in the order in which they came. Its holder may
// use the communicator's engine, and write operations on its tape.
//
// Invariant: state is free, or names the holder, and tells whether a ticket waits: awaited is set exactly while waiting
// is not empty or mu is held. When a holder leaves, the turn passes to the first waiter without becoming free. A turn
// without waiters is taken and left without mu.
type turn struct {
	state   atomic.Uint32
	mu      sync.Mutex // guards waiting, and the bit awaited of state
	waiting []*ticket
}

// The values of a turn's state: free, or held and the holder's call, with or without awaited.
const (
	free    = 0
	held    = 1 << 8
	awaited = 1 << 9
)

// ticket is a place in the line. granted is closed when its turn has come.
type ticket struct {
	call    lifecycle.Call
	granted chan struct{}
}

func (t *turn) tryTake(call lifecycle.Call) bool {
	return t.state.CompareAndSwap(free, held|uint32(call))
}

// line takes a place at the end of the line for a call; the turn may be its own at once.
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

// wait waits until k's turn has come. When ctx ends first it leaves the line and returns ctx's error.
func (t *turn) wait(ctx context.Context, k *ticket) error {
	select {
	case <-k.granted:
	case <-ctx.Done():
		if t.stepOut(k) { // it was not granted in the meantime
			return context.Cause(ctx)
		}
	}
	return nil
}

// cancel gives a place up, whether its turn has come or not.
func (t *turn) cancel(k *ticket) {
	if !t.stepOut(k) {
		t.leave()
	}
}

// stepOut takes a place out of the line; false when its turn has come.
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
	if len(t.waiting) == 0 { // the last has stepped out
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

// calls names the calls of the holder and of the line, in order.
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
