package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A non-blocking Grow waits for no rank: neither for the other ranks, one of which has the id, nor for the new one. The
// parent is in progress until the child is ready.
func TestNonBlockingGrow(t *testing.T) {
	for name, place := range map[string]func(t *testing.T) []*ccl.Comm{
		"one process": func(t *testing.T) []*ccl.Comm {
			t.Helper()
			comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2, ccl.NonBlocking())
			if !errors.Is(err, ccl.ErrInProgress) {
				t.Fatal(err)
			}
			return comms
		},
		"several runtimes": func(t *testing.T) []*ccl.Comm { t.Helper(); return separate(t, 2, ccl.NonBlocking()) },
	} {
		t.Run(name, func(t *testing.T) {
			comms := place(t)
			each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return c.Wait(ctx) })
			late := newRuntime(t, ccl.Config{})
			id, err := late.NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			all := make([]*ccl.Comm, 3)
			// Call it on one rank after the other: a call that waited for other ranks would not return.
			for r, mine := range []ccl.UniqueID{{}, id} {
				if all[r], err = comms[r].Grow(t.Context(), mine, 3); !errors.Is(err, ccl.ErrInProgress) {
					t.Fatalf("Grow on rank %d: %v", r, err)
				}
				if all[r].Rank() != r || all[r].Size() != 3 || all[r].Name() != "comm/1" {
					t.Errorf("the child is %s", all[r])
				}
				if err := comms[r].AsyncError(); !errors.Is(err, ccl.ErrInProgress) {
					t.Errorf("the parent, while its child is being made: %v", err)
				}
				if err := comms[r].Destroy(t.Context()); !errors.Is(err, ccl.ErrInProgress) {
					t.Errorf("Destroy of the parent: %v", err)
				}
			}
			if all[2], err = late.JoinGrow(t.Context(), id, 3, 2, ccl.NonBlocking()); !errors.Is(err,
				ccl.ErrInProgress) {
				t.Fatal(err)
			}
			each(t, all, func(ctx context.Context, c *ccl.Comm) error {
				if err := c.Wait(ctx); err != nil {
					return err
				}
				if c.ID() != lifecycle.RootCommID(id) {
					return fmt.Errorf("the child has id %s, want that of the unique id", c.ID())
				}
				return errors.Join(sum(ctx, c), c.Destroy(ctx))
			})
			each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
				return errors.Join(c.Wait(ctx), c.Destroy(ctx))
			})
		})
	}
}

// An error in the background belongs to the child; the parent is unaffected.
func TestNonBlockingGrowWithoutAnID(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		child, err := c.Grow(ctx, ccl.UniqueID{}, 3)
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Grow: %w", err)
		}
		if err := child.Wait(ctx); !errors.Is(err, lifecycle.ErrInvalidArgument) {
			return fmt.Errorf("the child: %w, want that there is no id", err)
		}
		return errors.Join(child.Destroy(ctx), c.Wait(ctx), sum(ctx, c), c.Destroy(ctx))
	})
}

// The act of a Grow lasts until its child is made, and names the child. On the tape, the child only has the id that its
// ranks know.
func TestNonBlockingGrowOnTape(t *testing.T) {
	var id ccl.UniqueID
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		comms := initAll(t, rt, "a", ccl.NonBlocking())
		var err error
		if id, err = rt.NewUniqueID(); err != nil {
			t.Fatal(err)
		}
		all := make([]*ccl.Comm, 3)
		for r, mine := range []ccl.UniqueID{id, {}} {
			if all[r], err = comms[r].Grow(t.Context(), mine, 3, ccl.WithName("b")); !errors.Is(err,
				ccl.ErrInProgress) {
				t.Fatal(err)
			}
		}
		if all[2], err = rt.JoinGrow(t.Context(), id, 3, 2, ccl.WithName("b")); err != nil {
			t.Fatal(err)
		}
		each(t, append(all,
			comms...), func(ctx context.Context, c *ccl.Comm) error { return errors.Join(c.Wait(ctx), c.Destroy(ctx)) })
	}, func(ev *tape.Event) bool {
		return ev.Life.Act == tape.ActGrow || ev.Life.Act == tape.ActInit && ev.Comm.Name == "b"
	})
	child := lifecycle.RootCommID(id)
	connects, grown := map[int]int64{}, map[int]int64{}
	for _, ev := range events {
		switch r := ev.Life; {
		case r.Act == tape.ActInit && ev.Comm.ID != child:
			t.Errorf("the %s of rank %d's init is told of communicator %s", r.Stage, ev.Comm.Rank, ev.Comm.ID)
		case r.Act == tape.ActInit && r.Stage == tape.StagePhase && r.Phase == tape.PhaseConnect:
			connects[ev.Comm.Rank] = r.Time
		case r.Act == tape.ActGrow && r.Stage == tape.StageEnd:
			grown[ev.Comm.Rank] = r.Time
			if r.Child != child || r.Code != lifecycle.CodeOK {
				t.Errorf("rank %d's grow ended with %s and made %s", ev.Comm.Rank, r.Code, r.Child)
			}
		}
	}
	for r := range 2 {
		if connects[r] == 0 || grown[r] < connects[r] {
			t.Errorf("rank %d's grow ended at %d, its child connected from %d", r, grown[r], connects[r])
		}
	}
}
