package ccl

import (
	"context"
	"slices"
	"sync"
)

// turn orders the calls on one communicator: one runs, the others wait in the order in which they came. Its holder may
// use the communicator's engine, and write operations on its tape.
//
// Invariant: held is true exactly while somebody has the turn; when a holder leaves, the turn passes to the first
// waiter without becoming free.
type turn struct {
	mu      sync.Mutex
	held    bool
	waiting []*ticket
}

// ticket is a place in the line. granted is closed when its turn has come.
type ticket struct {
	granted chan struct{}
}

// tryTake takes the turn if it is free.
func (t *turn) tryTake() bool {
	t.mu.Lock()
	ok := !t.held
	t.held = true
	t.mu.Unlock()
	return ok
}

// line takes a place at the end of the line; the turn may be its own at once.
func (t *turn) line() *ticket {
	k := &ticket{granted: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		t.held = true
		close(k.granted)
		return k
	}
	t.waiting = append(t.waiting, k)
	return k
}

// take waits for the turn. When ctx ends first it leaves the line and returns ctx's error.
func (t *turn) take(ctx context.Context) error {
	if t.tryTake() {
		return nil
	}
	return t.wait(ctx, t.line())
}

// wait waits until k's turn has come. When ctx ends first it leaves the line and returns ctx's error.
func (t *turn) wait(ctx context.Context, k *ticket) error {
	select {
	case <-k.granted:
		return nil
	default:
	}
	select {
	case <-k.granted:
		return nil
	case <-ctx.Done():
	}
	if t.stepOut(k) {
		return context.Cause(ctx)
	}
	return nil // it was granted in the meantime
}

// forgo gives a place up, whether its turn has come or not.
func (t *turn) forgo(k *ticket) {
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
	return true
}

// leave passes the turn on.
func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.held = false
		return
	}
	next := t.waiting[0]
	t.waiting[0] = nil
	t.waiting = t.waiting[1:]
	close(next.granted)
}

// length is the number of holders and waiters.
func (t *turn) length() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.waiting)
	if t.held {
		n++
	}
	return n
}
