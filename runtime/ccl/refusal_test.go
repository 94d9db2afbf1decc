package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Ranks that wait for a rank whose call was refused are told why it aborted, unless it has made another call since.
func TestAbortAfterARefusedCallTellsWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		cause      error
		goesOn     bool
		says, lies string
	}{
		"refused":          {nil, false, "its last call was refused: all_reduce: recv has 2 elements", "nothing"},
		"with a cause":     {errBroken, false, "broken", "refused"},
		"that it got over": {nil, true, "was aborted", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			through := make(chan struct{}) // rank 1 is through the barrier
			each(t, together(t, 2), func(ctx context.Context, c *ccl.Comm) error {
				if c.Rank() == 0 {
					if err := ccl.AllReduce(ctx, c, []int64{1}, make([]int64, 2), ccl.Sum); !errors.Is(err,
						lifecycle.ErrInvalidArgument) {
						return fmt.Errorf("the bad call: %w", err)
					}
					if tc.goesOn {
						if err := ccl.Barrier(ctx, c); err != nil {
							return err
						}
						<-through
					}
					return c.Abort(tc.cause)
				}
				if tc.goesOn {
					if err := ccl.Barrier(ctx, c); err != nil {
						return err
					}
					through <- struct{}{}
				}
				err := sum(ctx, c)
				if !errors.Is(err, ccl.ErrPeerAborted) || !strings.Contains(err.Error(), tc.says) ||
					strings.Contains(err.Error(), tc.lies) {
					return errors.Join(c.Close(), fmt.Errorf("the other rank: %w; want it to say %q", err, tc.says))
				}
				return c.Close()
			})
		})
	}
}

// If a group can't be ended because an inner one is open, the error says where that was started. A function that leaves
// an inner group open ends it with its own group.
func TestInnerGroupLeftOpenIsNamed(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	c, err := rt.World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	outer := rt.GroupStart(t.Context())
	middle := rt.GroupStart(outer)
	inner := startInner(rt, middle)
	for _, g := range []*ccl.Group{outer, middle} {
		refusal(t, "GroupEnd", rt.GroupEnd(g), lifecycle.CodeInvalidUsage, "startInner", "refusal_test.go")
	}
	for _, g := range []*ccl.Group{inner, middle, outer} {
		if err := rt.GroupEnd(g); err != nil {
			t.Error(err)
		}
	}
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		err := rt.Group(g, func(g *ccl.Group) error {
			return errors.Join(ccl.Barrier(startInner(rt, g), c), ccl.Barrier(g, c))
		})
		refusal(t, "the function that leaves a group open", err, lifecycle.CodeInvalidUsage, "startInner")
		return nil
	})
	if err != nil {
		t.Errorf("the group around it: %v", err)
	}
	if err := c.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

//go:noinline
func startInner(rt *ccl.Runtime, g *ccl.Group) *ccl.Group { return rt.GroupStart(g) }

// A rank that groups its messages while others don't still counts the collective groups as they do.
func TestGroupNumbersAreThoseOfTheOtherRanks(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		each(t, initAll(t, rt, "a"), func(ctx context.Context, c *ccl.Comm) error {
			data := []int64{1}
			err := func() error {
				if c.Rank() == 1 {
					return ccl.Recv(ctx, c, data, 0)
				}
				return rt.Group(ctx, func(g *ccl.Group) error { return ccl.Send(g, c, data, 1) })
			}()
			return errors.Join(err, rt.Group(ctx, func(g *ccl.Group) error { return ccl.Barrier(g, c) }),
				c.Destroy(ctx))
		})
	}, func(ev *tape.Event) bool { return ofGroups(ev) && ev.Life.Stage == tape.StageEnd })
	var together []uint64
	for _, ev := range events {
		if ev.Life.Seq < 1000 {
			together = append(together, ev.Life.Seq)
		}
	}
	if len(events) != 3 || len(together) != 2 || together[0] != 1 || together[1] != 1 {
		t.Errorf("of %d groups %v are numbered among the ranks', want 1 on both", len(events), together)
	}
}
