package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// A non-blocking parent is in progress while a child is made from it, so that a caller that waits for the parent finds
// the child ready.
func TestParentIsInProgressDuringSplit(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		child, err := c.Split(ctx, 0, 0)
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Split: %w", err)
		}
		for call, err := range map[string]error{
			"Split": second(c.Split(ctx, 0, 0)), "Finalize": c.Finalize(ctx), "Destroy": c.Destroy(ctx),
			"Shrink": second(c.Shrink(ctx, []int{1 - c.Rank()}, ccl.ShrinkDefault)),
		} {
			if !errors.Is(err, ccl.ErrInProgress) {
				return fmt.Errorf("%s while a split is in progress: %w", call, err)
			}
		}
		if err := c.Wait(ctx); err != nil {
			return err
		}
		if child.State() != lifecycle.StateReady {
			return fmt.Errorf("the parent has left ErrInProgress, and the child is %s", child.State())
		}
		return errors.Join(child.Wait(ctx), sum(ctx, child), child.Destroy(ctx), c.Destroy(ctx))
	})
}

// Several splits in one group do not block each other.
func TestSplitsInAGroup(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		var a, b *ccl.Comm
		err := rt.Group(ctx, func(g *ccl.Group) (err error) {
			if a, err = c.Split(g, 0, 0); err == nil {
				b, err = c.Split(g, 0, -c.Rank())
			}
			return err
		})
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("GroupEnd: %w", err)
		}
		if err := c.Destroy(ctx); !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Destroy after GroupEnd: %w", err)
		}
		if err := errors.Join(c.Wait(ctx), a.Wait(ctx), b.Wait(ctx)); err != nil {
			return err
		}
		return errors.Join(sum(ctx, a), sum(ctx, b), a.Destroy(ctx), b.Destroy(ctx), c.Destroy(ctx))
	})
}

// If the parent is aborted while a shrink waits for its turn, the shrink does not wait for ranks that will not arrive.
func TestAbortEndsAShrinkThatWaits(t *testing.T) {
	comms := together(t, 3)
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if c.Rank() != 0 {
			return nil
		}
		w := ccl.IAllReduce(ctx, c, []int64{1}, make([]int64, 1), ccl.Sum) // has the turn, forever
		child, err := c.Shrink(ctx, []int{2}, ccl.ShrinkDefault, ccl.NonBlocking())
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Shrink: %w", err)
		}
		if err := c.Abort(nil); err != nil {
			return err
		}
		if err := child.Wait(ctx); !errors.Is(err, ccl.ErrAborted) {
			return fmt.Errorf("the child: %w, want ErrAborted", err)
		}
		if err := w.Wait(ctx); !errors.Is(err, ccl.ErrAborted) {
			return fmt.Errorf("the operation: %w, want ErrAborted", err)
		}
		return child.Close()
	})
	for _, c := range comms[1:] {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
