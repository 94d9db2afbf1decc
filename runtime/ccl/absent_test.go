package ccl_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// refusal checks that err is a UsageError with the code, whose text says everything.
func refusal(t *testing.T, what string, err error, code lifecycle.Code, says ...string) {
	t.Helper()
	var usage *ccl.UsageError
	if !errors.As(err, &usage) || usage.Code != code {
		t.Errorf("%s: %v, want a UsageError with code %s", what, err, code)
		return
	}
	for _, s := range says {
		if strings.Count(err.Error(), s) != 1 {
			t.Errorf("%s: %q, want it to say %q once", what, err, s)
		}
	}
}

func TestCommunicatorThatIsNone(t *testing.T) {
	for name, c := range map[string]*ccl.Comm{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			if c.Rank() != -1 || c.Size() != 0 || c.Name() != "" || !c.ID().IsZero() ||
				c.State() != lifecycle.StateNone {
				t.Errorf("it is rank %d of %d of %q, %s and %s", c.Rank(), c.Size(), c.Name(), c.ID(), c.State())
			}
			if top := c.Topology(); len(top.Ranks) != 0 {
				t.Errorf("its topology is %v", top)
			}
			if got := c.String(); got != "no communicator" {
				t.Errorf("it calls itself %q", got)
			}
			ctx, one := t.Context(), []int64{1}
			for call, err := range map[string]error{
				"split":       second(c.Split(ctx, 0, 0)),
				"shrink":      second(c.Shrink(ctx, []int{1}, ccl.ShrinkDefault)),
				"grow":        second(c.Grow(ctx, ccl.UniqueID{}, 2)),
				"revoke":      c.Revoke(nil),
				"finalize":    c.Finalize(ctx),
				"destroy":     c.Destroy(ctx),
				"abort":       c.Abort(nil),
				"async_error": c.AsyncError(),
				"wait":        c.Wait(ctx),
				"all_reduce":  ccl.AllReduce(ctx, c, one, one, ccl.Sum),
				"barrier":     ccl.Barrier(ctx, c),
				"broadcast":   ccl.IBroadcast(ctx, c, one, one, 0).Wait(ctx),
			} {
				refusal(t, call, err, lifecycle.CodeInvalidArgument, call+": ", "the communicator is nil")
			}
			_, err := c.Lost(ctx)
			refusal(t, "Lost", err, lifecycle.CodeInvalidArgument, "the communicator is nil")
			if strings.Contains(err.Error(), "async_error") {
				t.Errorf("Lost speaks of a call that was not made: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// All ranks of an InitAll belong to one call: when its context has ended, none of them is at fault.
func TestInitAllWithADeadContext(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	comms, err := rt.InitAll(ctx, 3)
	system, ok := errors.AsType[*ccl.SystemError](err)
	if _, blames := errors.AsType[*ccl.PeerError](err); !ok || blames || comms != nil ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("it makes %v, and its error is %v", comms, err)
	} else if want := lifecycle.CodeOf(context.Canceled); system.Code != want {
		t.Errorf("its code is %v, want %v", system.Code, want)
	}
}

func TestNoWork(t *testing.T) {
	for name, w := range map[string]*ccl.Work{"nil": nil, "zero": {}} {
		<-w.Done()
		for _, err := range []error{w.Wait(t.Context()), w.Err()} {
			refusal(t, name, err, lifecycle.CodeInvalidArgument, "there is no operation: the Work is nil or zero")
		}
	}
}

func TestLostOnADeadCommunicator(t *testing.T) {
	c := together(t, 1)[0]
	if err := c.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.Lost(t.Context())
	refusal(t, "Lost", err, lifecycle.CodeDestroyed, "it was already destroyed")
	if strings.Contains(err.Error(), "async_error") {
		t.Errorf("Lost speaks of a call that was not made: %v", err)
	}
}

func TestRuntimeThatIsNone(t *testing.T) {
	for name, rt := range map[string]*ccl.Runtime{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			g := rt.GroupStart(ctx)
			_, idErr := rt.NewUniqueID()
			_, allErr := rt.InitAll(ctx, 2)
			for call, err := range map[string]error{
				"World":            second(rt.World(ctx)),
				"InitRank":         second(rt.InitRank(ctx, ccl.UniqueID{}, 1, 0)),
				"InitRankScalable": second(rt.InitRankScalable(ctx, []ccl.UniqueID{{}}, 1, 0)),
				"InitAll":          allErr,
				"JoinGrow":         second(rt.JoinGrow(ctx, ccl.UniqueID{}, 2, 1)),
				"NewUniqueID":      idErr,
				"With":             ccl.With(ctx, rt, ccl.UniqueID{}, 1, 0, func(*ccl.Comm) error { return nil }),
				"Group":            rt.Group(ctx, func(*ccl.Group) error { return nil }),
				"GroupEnd":         rt.GroupEnd(g),
			} {
				refusal(t, call, err, lifecycle.CodeInvalidArgument, "there is no runtime")
			}
			if err := rt.Close(ctx); err != nil {
				t.Errorf("Close: %v; %d communicators live", err, rt.Live())
			}
		})
	}
}

func TestGroupThatIsNone(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*ccl.Group{
		"nil": nil, "zero": {},
		"of a nil runtime": (*ccl.Runtime)(nil).GroupStart(t.Context()),
	} {
		refusal(t, name+", GroupEnd", rt.GroupEnd(g), lifecycle.CodeInvalidUsage, "GroupStart")
		refusal(t, name+", inner GroupEnd", rt.GroupEnd(rt.GroupStart(g)), lifecycle.CodeInvalidUsage, "GroupStart")
		for call, err := range map[string]error{
			"an operation": ccl.Barrier(g, comms[0]),
			"World":        second(rt.World(g)),
			"Split":        second(comms[0].Split(g, 0, 0)),
		} {
			refusal(t, name+", "+call, err, lifecycle.CodeInvalidUsage, "GroupStart did not make")
		}
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(sum(ctx, c), c.Destroy(ctx)) })
}

// The text says only once what is wrong.
func TestUniqueIDThatIsNone(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	_, err := rt.InitRank(t.Context(), ccl.UniqueID{}, 1, 0)
	refusal(t, "InitRank", err, lifecycle.CodeInvalidArgument, "invalid argument", "all zeros")
	c := together(t, 1)[0]
	broken, err := lifecycle.NewUniqueID("")
	if err != nil {
		t.Fatal(err)
	}
	broken[30]++
	_, err = c.Grow(t.Context(), broken, 2)
	refusal(t, "Grow", err, lifecycle.CodeInvalidArgument, "invalid argument", "damaged")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
