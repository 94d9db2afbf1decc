package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// A finalized communicator that failed meanwhile may be shrunk: its processes exist, whatever became of its operations.
func TestShrinkOfOneThatFailedWhileItFinalized(t *testing.T) {
	comms := together(t, 3)
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if c.Rank() == 2 {
			return c.Abort(nil)
		}
		work := ccl.IAllReduce(ctx, c, []int64{1}, make([]int64, 1), ccl.Sum)
		if err := c.Finalize(ctx); err != nil && !errors.Is(err, ccl.ErrFailed) {
			return fmt.Errorf("Finalize: %w", err)
		}
		if err := work.Wait(ctx); !errors.Is(err, ccl.ErrPeerAborted) {
			return fmt.Errorf("the operation: %w", err)
		}
		if c.State() != lifecycle.StateFailed {
			return errors.Join(c.Destroy(ctx), fmt.Errorf("it is %s", c.State()))
		}
		small, err := c.Shrink(ctx, []int{2}, ccl.ShrinkDefault)
		if err != nil {
			return err
		}
		return errors.Join(sum(ctx, small), small.Destroy(ctx), c.Destroy(ctx))
	})
}

// A Finalize during which an operation failed does not return success: the communicator has failed, and is not
// finalized.
func TestFinalizeSaysThatItFailed(t *testing.T) {
	comms := together(t, 2)
	c := comms[0]
	work := ccl.IAllReduce(t.Context(), c, []int64{1}, make([]int64, 1), ccl.Sum)
	finalized := make(chan error, 1)
	go func() { finalized <- c.Finalize(t.Context()) }()
	until(t, "Finalize waits", func() bool { return c.State() == lifecycle.StateFinalizing })
	if err := comms[1].Abort(nil); err != nil {
		t.Error(err)
	}
	if err := work.Wait(t.Context()); !errors.Is(err, ccl.ErrPeerAborted) {
		t.Errorf("the operation: %v", err)
	}
	if err := <-finalized; !errors.Is(err, ccl.ErrFailed) || c.State() != lifecycle.StateFailed {
		t.Errorf("Finalize = %v, and it is %s; want that it failed", err, c.State())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A call that can't be made inside a group cancels nothing there.
func TestShrinkInsideAGroup(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []ccl.ShrinkMode{ccl.ShrinkDefault, ccl.ShrinkAbort} {
		err := rt.Group(t.Context(), func(g *ccl.Group) error { return second(comms[0].Shrink(g, []int{1}, mode)) })
		if lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage || comms[0].State() != lifecycle.StateReady {
			t.Errorf("mode %d: %v, and it is %s; want invalid usage, and nothing changed", mode, err, comms[0].State())
		}
	}
	each(t, comms, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
}

// Splits before a Revoke do not count after it: one rank may have been in a split when another rank revoked.
func TestSplitAfterARevokeThatInterruptedASplit(t *testing.T) {
	for name, place := range placements {
		t.Run(name, func(t *testing.T) {
			each(t, place(t, 2), func(ctx context.Context, c *ccl.Comm) error {
				if c.Rank() == 0 {
					if child, err := c.Split(ctx, 0, 0); !errors.Is(err, ccl.ErrPeerAborted) {
						return fmt.Errorf("the first Split: %v, %w", child, err)
					}
				}
				if err := c.Revoke(nil); err != nil {
					return err
				}
				within, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				child, err := c.Split(within, 0, 0)
				if err != nil {
					return err
				}
				return errors.Join(sum(ctx, child), child.Destroy(ctx), c.Destroy(ctx))
			})
		})
	}
}

// Children are numbered anew after a Revoke, and their names show that to humans.
func TestNameAfterARevoke(t *testing.T) {
	each(t, together(t, 2), func(ctx context.Context, c *ccl.Comm) error {
		before, err := c.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if err := c.Revoke(nil); err != nil {
			return err
		}
		after, err := c.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		err = errors.Join(before.Destroy(ctx), after.Destroy(ctx), c.Destroy(ctx))
		if before.Name() != "comm/1" || after.Name() != "comm/after-revoke/1" {
			err = errors.Join(err, fmt.Errorf("the children are %q and %q", before.Name(), after.Name()))
		}
		return err
	})
}

// Ranks that shrink with different lists all fail at once, and all are told which rank passed which list: whether or
// not the lists have the first rank or the size in common, and whether or not a rank that only one list leaves out
// arrives.
func TestShrinkByDifferentLists(t *testing.T) {
	for name, lists := range map[string][][]int{
		"another first rank":      {nil, {0}, {1}, {0}},
		"another first and size":  {{1}, {0}, {1}, {0, 1}},
		"the same first rank":     {{3}, {3}, {3}, {2}},
		"the first one differs":   {{3}, {2}, nil, {2}},
		"both firsts don't come":  {nil, {2}, {0}, {0}},
		"the others are complete": {{1}, {0}, {1}, {1}},
		"another size":            {{3}, {2, 3}, {3}, nil},
		"each another one":        {{1}, {2}, {3}, {0}},
	} {
		for where, place := range placements {
			t.Run(name+", "+where, func(t *testing.T) {
				each(t, place(t, 4), func(ctx context.Context, c *ccl.Comm) error {
					list := lists[c.Rank()]
					if list == nil {
						return c.Close()
					}
					small, err := c.Shrink(ctx, list, ccl.ShrinkAbort)
					if err == nil {
						if !complete(lists, list) {
							err = errors.New("it has shrunk")
						}
						return errors.Join(err, small.Close(), c.Close())
					}
					peer, is := errors.AsType[*ccl.PeerError](err)
					says := func(s string) bool { return strings.Contains(err.Error(), s) }
					if is && peer.Code == lifecycle.CodeMismatch && peer.Rank < 0 && says("disagree on who goes on") &&
						(says("out "+words.Ranks(list)) || says("another rank contradicts it")) {
						err = nil
					}
					return errors.Join(err, c.Close())
				})
			})
		}
	}
}

// complete reports whether all ranks that a list does not leave out passed this list: they may have met before another
// rank arrived.
func complete(lists [][]int, list []int) bool {
	for rank, given := range lists {
		if !slices.Contains(list, rank) && !slices.Equal(given, list) {
			return false
		}
	}
	return true
}
