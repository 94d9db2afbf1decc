package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

func TestGroup(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	// One goroutine works for all ranks, which only a group makes possible.
	a, err := rt.InitAll(t.Context(), 3, ccl.WithName("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := rt.InitAll(t.Context(), 2, ccl.WithName("b"))
	if err != nil {
		t.Fatal(err)
	}
	sums, swapped := make([][]int64, 3), make([][]int64, 2)
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		for r, c := range a {
			sums[r] = []int64{int64(r)}
			if err := ccl.AllReduce(g, c, sums[r], sums[r], ccl.Sum); err != nil {
				return err
			}
		}
		return rt.Group(g, func(g *ccl.Group) error {
			for r, c := range b {
				swapped[r] = make([]int64, 100_000)
				if err := errors.Join(ccl.Send(g, c, ramp(r, 100_000), 1-r),
					ccl.Recv(g, c, swapped[r], 1-r)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range a {
		if err := want("sum", sums[r], []int64{3}); err != nil {
			t.Error(err)
		}
	}
	for r := range b {
		if err := want("what was swapped", swapped[r], ramp(1-r, 100_000)); err != nil {
			t.Error(err)
		}
	}
	for _, c := range append(a, b...) {
		if err := c.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestGroupOfInits(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms := make([]*ccl.Comm, 3)
	err = rt.Group(t.Context(), func(g *ccl.Group) (err error) {
		for r := range comms {
			if comms[r], err = rt.InitRank(g, id, len(comms), r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	each(t,
		comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(ccl.Barrier(ctx, c), c.Destroy(ctx)) })
}

func TestNonBlocking(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	first, err := rt.InitRank(t.Context(), id, 2, 0, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) || first == nil {
		t.Fatalf("InitRank = %v, %v; want a communicator and ErrInProgress", first, err)
	}
	if err := first.AsyncError(); !errors.Is(err, ccl.ErrInProgress) {
		t.Fatalf("AsyncError while the other rank has not come: %v", err)
	}
	if err := ccl.Barrier(t.Context(), first); !errors.Is(err, ccl.ErrInProgress) &&
		lifecycle.CodeOf(err) != lifecycle.CodeInitializing {
		t.Fatalf("Barrier while the other rank has not come: %v", err)
	}
	second, err := rt.InitRank(t.Context(), id, 2, 1, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, []*ccl.Comm{first, second}, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		child, err := c.Split(ctx, 0, 0)
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Split = %w, want ErrInProgress", err)
		}
		if err := errors.Join(child.Wait(ctx), c.Wait(ctx), ccl.Barrier(ctx, child)); err != nil {
			return err
		}
		if err := child.Finalize(ctx); !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Finalize = %w, want ErrInProgress", err)
		}
		return errors.Join(child.Wait(ctx), child.Destroy(ctx), c.Destroy(ctx))
	})
}

// One goroutine splits for all ranks: a rank that wants no communicator does not wait for the others, either.
func TestGroupOfSplits(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	children := make([]*ccl.Comm, 3)
	err = rt.Group(ctx, func(g *ccl.Group) (err error) {
		for r, c := range comms {
			color := r
			if r != 1 {
				color = ccl.NoColor
			}
			if children[r], err = c.Split(g, color, 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if children[0] != nil || children[2] != nil || children[1].Size() != 1 {
		t.Errorf("the children are %v", children)
	}
	each(t,
		comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(ccl.Barrier(ctx, c), c.Destroy(ctx)) })
	if err := children[1].Close(); err != nil {
		t.Error(err)
	}
}

func TestGroupRefusesWhatIsNotReady(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := rt.InitRank(t.Context(), id, 2, 0, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	err = rt.Group(t.Context(), func(g *ccl.Group) error { return ccl.Barrier(g, c) })
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Errorf("Barrier in a group, while the other rank has not come: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestGroupOfInitsObeysItsContext(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var c *ccl.Comm
	err = rt.Group(ctx, func(g *ccl.Group) (err error) {
		c, err = rt.InitRank(g, id, 2, 0)
		return err
	})
	if !errors.Is(err, ccl.ErrNotJoined) {
		t.Errorf("%v, want that rank 1 has not arrived", err)
	}
	if state := c.State(); state != lifecycle.StateFailed {
		t.Errorf("it is %s", state)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// An inner group that is given up takes its calls with it, and no rank waits for them.
func TestGroupsGivenUp(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	sums := [][]int32{{1}, {2}}
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		for r, c := range comms {
			if err := ccl.AllReduce(g, c, sums[r], sums[r], ccl.Sum); err != nil {
				return err
			}
		}
		inner := rt.Group(g, func(g *ccl.Group) error {
			return errors.Join(ccl.Barrier(g, comms[0]), no) // the other rank makes no such call
		})
		if !errors.Is(inner, no) {
			return fmt.Errorf("the inner group: %w", inner)
		}
		return nil
	})
	if err := errors.Join(err, want("sum", sums[0], []int32{3}), want("sum", sums[1], []int32{3})); err != nil {
		t.Error(err)
	}

	var work *ccl.Work
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		rt.GroupStart(g) // never ended
		work = ccl.IAllReduce(g, comms[0], sums[0], sums[0], ccl.Sum)
		return no
	})
	if !errors.Is(err, no) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var usage *ccl.UsageError
	if err := work.Wait(ctx); !errors.As(err, &usage) {
		t.Errorf("the call of a group that was given up: %v", err)
	}
}

func TestNonBlockingSplitIsInProgressOnTheParent(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return c.Wait(ctx) })
	first, err := comms[0].Split(t.Context(), 0, 0)
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	for call, err := range map[string]error{
		"AsyncError": comms[0].AsyncError(), "another Split": second(comms[0].Split(t.Context(), 0, 0)),
		"Finalize": comms[0].Finalize(t.Context()), "Destroy": comms[0].Destroy(t.Context()),
		"the child's AsyncError": first.AsyncError(),
	} {
		if !errors.Is(err, ccl.ErrInProgress) {
			t.Errorf("%s while the other rank has not split: %v, want ErrInProgress", call, err)
		}
	}
	if rank, size := first.Rank(), first.Size(); rank != -1 || size != 0 {
		t.Errorf("the child is rank %d of %d before it knows", rank, size)
	}
	if _, err := comms[1].Split(t.Context(), ccl.NoColor, 0); !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, append(comms, first), func(ctx context.Context, c *ccl.Comm) error { return c.Wait(ctx) })
	each(t, append(comms, first), func(ctx context.Context, c *ccl.Comm) error { return c.Destroy(ctx) })
}

// A group that is given up takes its own calls with it, and those of its inner groups, but no others.
func TestGroupGivenUpTakesItsOwnCalls(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	sums := [][]int32{{1}, {2}}
	err = rt.Group(t.Context(), func(outer *ccl.Group) error {
		kept := rt.GroupStart(outer)
		err := rt.Group(outer, func(given *ccl.Group) error {
			if err := ccl.AllReduce(kept, comms[0], sums[0], sums[0], ccl.Sum); err != nil {
				return err
			}
			if err := ccl.AllReduce(outer, comms[1], sums[1], sums[1], ccl.Sum); err != nil {
				return err
			}
			if err := rt.Group(given, func(inside *ccl.Group) error {
				return ccl.Barrier(inside, comms[0])
			}); err != nil {
				return err
			}
			return errors.Join(ccl.Barrier(given, comms[1]), no)
		})
		if !errors.Is(err, no) {
			return err
		}
		return rt.GroupEnd(kept)
	})
	if err := errors.Join(err, want("sum", sums[0], []int32{3}), want("sum", sums[1], []int32{3})); err != nil {
		t.Error(err)
	}
	each(t, comms, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
}

// If a group can't be ended, because an inner one was left open, nothing keeps waiting for its calls.
func TestGroupWithAnInnerOneLeftOpen(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var work *ccl.Work
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		rt.GroupStart(g) // never ended
		work = ccl.IAllReduce(g, comms[0], []int64{1}, make([]int64, 1), ccl.Sum)
		return nil
	})
	if lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		t.Errorf("the group: %v, want invalid usage", err)
	}
	if err := work.Err(); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		t.Errorf("its call: %v, want invalid usage", err)
	}
	func() {
		work = ccl.IAllReduce(rt.GroupStart(t.Context()), comms[0], []int64{1}, make([]int64, 1), ccl.Sum)
	}()
	collectUntil(t,
		"end of the call of a group that nobody can end", func() bool {
			return !errors.Is(work.Err(), ccl.ErrInProgress)
		})
	each(t, comms, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
}

// Making a communicator in a group that has ended, or in one of another runtime, is refused.
func TestMakingInsideAGroupThatIsNone(t *testing.T) {
	rt, other := newRuntime(t, ccl.Config{}), newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ended, foreign := rt.GroupStart(t.Context()), other.GroupStart(t.Context())
	if err := rt.GroupEnd(ended); err != nil {
		t.Fatal(err)
	}
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*ccl.Group{
		"ended": ended, "foreign": foreign,
		"in a foreign one": rt.GroupStart(foreign),
	} {
		for call, err := range map[string]error{
			"InitRank": second(rt.InitRank(g, id, 1, 0)), "World": second(rt.World(g)),
			"Split": second(comms[0].Split(g, 0, 0)),
		} {
			if code := lifecycle.CodeOf(err); code != lifecycle.CodeInvalidUsage {
				t.Errorf("%s in a group that is %s: %v, want invalid usage", call, name, err)
			}
		}
		if _, err := rt.InitAll(g, 2); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
			t.Errorf("InitAll in a group that is %s: %v, want invalid usage", name, err)
		}
	}
	if n := rt.Live(); n != 1 {
		t.Errorf("%d communicators are alive, want the first", n)
	}
	if err := comms[0].Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
