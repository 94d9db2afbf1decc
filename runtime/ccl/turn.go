package ccl

import (
	"context"
	"slices"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
)

// turn orders the calls on one communicator: one runs, the others wait in the order in which they came. Its holder may
// use the communicator's engine, and write operations on its tape.
//
// Invariant: held is true exactly while somebody has the turn; when a holder leaves, the turn passes to the first
// waiter without becoming free.
type turn struct {
	mu      sync.Mutex
	held    bool
	holder  lifecycle.Call // the last one
	waiting []*ticket
}

// ticket is a place in the line. granted is closed when its turn has come.
type ticket struct {
	call    lifecycle.Call
	granted chan struct{}
}

func (t *turn) tryTake(call lifecycle.Call) bool {
	t.mu.Lock()
	ok := !t.held
	if ok {
		t.held, t.holder = true, call
	}
	t.mu.Unlock()
	return ok
}

// line takes a place at the end of the line for a call; the turn may be its own at once.
func (t *turn) line(call lifecycle.Call) *ticket {
	k := &ticket{call: call, granted: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		t.held, t.holder = true, call
		close(k.granted)
		return k
	}
	t.waiting = append(t.waiting, k)
	return k
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

func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held = len(t.waiting) > 0; t.held {
		next := t.waiting[0]
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
		t.holder = next.call
		close(next.granted)
	}
}

// calls names the one that has the turn and those in the line, in order.
func (t *turn) calls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		return nil
	}
	all := []string{t.holder.String()}
	for _, k := range t.waiting {
		all = append(all, k.call.String())
	}
	return all
}
