package ccl

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// A rank that can't make its child gives up its place in the line, and the other ranks are told that they wait in vain.
func TestSplitThatOneRankCannotMake(t *testing.T) {
	rt := quiet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	comms, err := rt.InitAll(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	other := make(chan error, 1)
	go func() {
		_, err := comms[1].Split(ctx, NoColor, 0)
		other <- err
	}()
	closed := func(v bool) {
		rt.mu.Lock()
		rt.closed = v
		rt.mu.Unlock()
	}
	closed(true)
	if _, err := comms[0].Split(ctx, 0, 0); !errors.Is(err, ErrRuntimeClosed) {
		t.Errorf("Split = %v, want that the runtime is closed", err)
	}
	if err := <-other; !errors.Is(err, ErrAbandoned) {
		t.Errorf("the other rank's Split = %v, want that it was abandoned", err)
	}
	closed(false)
	for _, c := range comms {
		if err := c.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A Shrink that can't make its child delays no rank.
func TestShrinkThatCannotBeMade(t *testing.T) {
	rt := quiet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	comms, err := rt.InitAll(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	rt.mu.Lock()
	rt.closed = true
	rt.mu.Unlock()
	if _, err := comms[0].Shrink(ctx, []int{1}, ShrinkDefault); !errors.Is(err, ErrRuntimeClosed) {
		t.Errorf("Shrink = %v, want that the runtime is closed", err)
	}
	if err := comms[0].turn.wait(ctx, comms[0].turn.line(lifecycle.CallBarrier)); err != nil {
		t.Fatalf("nobody can make a call any more: %v", err)
	}
	comms[0].turn.leave()
	rt.mu.Lock()
	rt.closed = false
	rt.mu.Unlock()
	for _, c := range comms {
		if err := c.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Error(err)
	}
}
