package ccl

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

func quiet(t *testing.T) *Runtime {
	t.Helper()
	rt, err := New(Config{Engine: host.Kind(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// alone makes a Shrink of three ranks at which the other remaining rank does not arrive.
func alone(t *testing.T, c *Comm, exclude int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if child, err := c.Shrink(ctx, []int{exclude}, ShrinkAbort); err == nil {
		return errors.Join(errors.New("a shrink without the other rank"), child.Close())
	}
	return nil
}

// A Finalize that gives up ends earlier meetings but not later ones: a communicator that failed meanwhile has failed,
// and can be shrunk.
func TestShrinkAfterAFinalizeThatGaveUp(t *testing.T) {
	rt := quiet(t)
	comms, err := rt.InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	c := comms[0]
	shrunk, finalized := make(chan error, 1), make(chan error, 1)
	waiting := func(n int) {
		for deadline := time.Now().Add(20 * time.Second); len(c.turn.calls()) < n; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("in the line are %v", c.turn.calls())
			}
		}
	}
	go func() { // waits for rank 1, which does not arrive
		_, err := c.Shrink(t.Context(), []int{2}, ShrinkDefault)
		shrunk <- err
	}()
	waiting(1)
	first, giveUp := context.WithCancel(t.Context())
	work := IAllReduce(first, c, []int64{1}, make([]int64, 1), Sum)
	second, giveUpToo := context.WithCancel(t.Context())
	go func() { finalized <- c.Finalize(second) }()
	waiting(3)
	giveUp()
	if err := work.Wait(t.Context()); !errors.Is(err, context.Canceled) || c.State() != lifecycle.StateFailed {
		t.Errorf("the operation: %v, and the communicator is %s", err, c.State())
	}
	giveUpToo()
	for what, ch := range map[string]chan error{"Shrink": shrunk, "Finalize": finalized} {
		if err := <-ch; !errors.Is(err, ErrUnfinished) {
			t.Errorf("%s: %v, want that it is unfinished", what, err)
		}
	}
	if err := alone(t, comms[1], 2); err != nil { // its first Shrink; rank 0 made one, too
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := make(chan error, 2)
	for _, c := range comms[:2] {
		go func() {
			child, err := c.Shrink(ctx, []int{2}, ShrinkDefault)
			if err == nil {
				err = errors.Join(Barrier(ctx, child), child.Destroy(ctx))
			}
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Errorf("the second Shrink: %v", err)
		}
	}
	end(t, []*Runtime{rt}, comms)
}

func end(t *testing.T, rts []*Runtime, comms []*Comm) {
	t.Helper()
	for _, c := range comms {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, rt := range rts {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
