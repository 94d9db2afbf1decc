package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// recorded runs fn with a runtime that has a tape, closes the runtime, and returns the records of acts that want
// accepts.
func recorded(
	t *testing.T, fn func(rt *ccl.Runtime, log *syncBuffer), want func(*tape.Event) bool, change ...func(*ccl.Config),
) []tape.Event {
	t.Helper()
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	cfg := ccl.Config{Engine: host.Kind(), Tape: w, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, f := range change {
		f(&cfg)
	}
	rt, err := ccl.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fn(rt, &log)
	if err := errors.Join(rt.Close(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	var events []tape.Event
	for ev := range eventsOf(t, w) {
		if ev.IsLife && want(&ev) {
			events = append(events, ev)
		}
	}
	return events
}

// eventsOf yields the events of a tape that has been written.
func eventsOf(t *testing.T, w *tape.Writer) iter.Seq[tape.Event] {
	t.Helper()
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return func(yield func(tape.Event) bool) {
		for ev, err := range r.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(ev) {
				return
			}
		}
	}
}

// tell describes each record in a line, ordered by communicator, rank and time.
func tell(events []tape.Event) []string {
	slices.SortStableFunc(events, func(a, b tape.Event) int {
		if c := strings.Compare(a.Comm.Name, b.Comm.Name); c != 0 {
			return c
		}
		return a.Comm.Rank - b.Comm.Rank
	})
	lines := make([]string, len(events))
	for i, ev := range events {
		r := ev.Life
		lines[i] = fmt.Sprintf("%s/%d %s %s seq=%d ops=%d %s", ev.Comm.Name, ev.Comm.Rank, r.Act, r.Stage,
			r.Seq, r.Ops, r.Code)
	}
	return lines
}

func initAll(t *testing.T, rt *ccl.Runtime, name string, opts ...ccl.Option) []*ccl.Comm {
	t.Helper()
	comms, err := rt.InitAll(t.Context(), 2, append(opts, ccl.WithName(name))...)
	if err != nil && !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return c.Wait(ctx) })
	return comms
}

// A communicator is not shared if one goroutine makes all its ranks and makes all calls on them.
func TestSharedOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		alone, shared := initAll(t, rt, "alone"), initAll(t, rt, "shared")
		each(t, shared, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
		each(t, shared, func(ctx context.Context, c *ccl.Comm) error {
			if err := c.Destroy(ctx); !errors.Is(err, ccl.ErrDestroyed) {
				return fmt.Errorf("a second destroy: %w", err)
			}
			return nil
		})
		if err := errors.Join(alone[0].Destroy(t.Context()), alone[1].Destroy(t.Context())); err != nil {
			t.Error(err)
		}
	}, func(ev *tape.Event) bool { return ev.Life.Act == tape.ActDestroy && ev.Life.Stage != tape.StageStart })
	if len(events) != 6 {
		t.Fatalf("%d records, want 6: %v", len(events), tell(events))
	}
	for _, ev := range events {
		if want := ev.Comm.Name == "shared"; ev.Life.Shared != want {
			t.Errorf("%s rank %d, %s: shared is %t, want %t",
				ev.Comm.Name, ev.Comm.Rank, ev.Life.Stage, ev.Life.Shared, want)
		}
	}
}

// A communicator that becomes unreachable while the runtime stops is reported once, and nothing is reported after the
// runtime's end.
func TestLeakIsReportedOnce(t *testing.T) {
	const comms = 200
	var text string
	recorded(t, func(rt *ccl.Runtime, log *syncBuffer) {
		for range comms {
			if _, err := rt.World(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := ccl.Barrier(rt.GroupStart(t.Context()), initOne(t, rt)); err != nil {
				t.Fatal(err)
			}
		}
		collectUntil(t, "the first reports", func() bool { return log.String() != "" })
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
		text = log.String()
		runtime.GC()
		if late := log.String(); late != text {
			t.Errorf("reported after the end: %s", late[len(text):])
		}
	}, func(*tape.Event) bool { return false })
	if n := strings.Count(text, "communicator leaked"); n != 2*comms {
		t.Errorf("%d leaks in the log, want %d", n, 2*comms)
	}
}

func initOne(t *testing.T, rt *ccl.Runtime) *ccl.Comm {
	t.Helper()
	c, err := rt.World(t.Context(), ccl.WithName("of a group"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A refused call to make a communicator is on the tape like any other mistake.
func TestRefusedInitsOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		id, err := rt.NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for call, err := range map[string]error{
			"InitRank":         second(rt.InitRank(ctx, id, 2, 2, ccl.WithName("a"))),
			"InitRankScalable": second(rt.InitRankScalable(ctx, nil, 2, 0, ccl.WithName("b"))),
			"JoinGrow":         second(rt.JoinGrow(ctx, ccl.UniqueID{}, 2, 1, ccl.WithName("c"))),
			"no ranks":         second(rt.InitRank(ctx, id, 0, 0, ccl.WithName("d"))),
		} {
			var usage *ccl.UsageError
			if !errors.As(err, &usage) {
				t.Errorf("%s: %v, want a UsageError", call, err)
			}
		}
		if _, err := rt.InitAll(ctx, 0, ccl.WithName("e")); err == nil {
			t.Error("InitAll of no ranks")
		}
		if n := rt.Live(); n != 0 {
			t.Errorf("%d communicators are alive", n)
		}
	}, func(ev *tape.Event) bool { return ev.Life.Stage == tape.StageMisuse })
	want := []string{
		"a/2 init misuse seq=0 ops=0 invalid_argument", "b/0 init misuse seq=0 ops=0 invalid_argument",
		"c/1 grow misuse seq=0 ops=0 invalid_argument",
		"d/0 init misuse seq=0 ops=0 invalid_argument", "e/-1 init misuse seq=0 ops=0 invalid_argument",
	}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Error(diff)
	}
	for _, ev := range events {
		if !strings.Contains(ev.Life.Site.Func, "TestRefusedInitsOnTape") || ev.Life.Text == "" {
			t.Errorf("%s: made by %s: %q", ev.Comm.Name, ev.Life.Site, ev.Life.Text)
		}
	}
}

// On the parent's tape, ranks are those of the parent, even if the error uses the numbers of the child. The child has
// its rank and size from the beginning, by which others know which rank is missing.
func TestRanksOfAFailedShrinkOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		comms, err := rt.InitAll(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var peer *ccl.PeerError
		// Ranks 1, 2 and 3 become 0, 1 and 2, but only the last arrives.
		_, err = comms[3].Shrink(ctx, []int{0}, ccl.ShrinkAbort)
		if !errors.As(err, &peer) || peer.Rank != 0 {
			t.Errorf("%v, want that rank 0 of the new communicator is missing", err)
		}
		each(t, comms, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	}, func(ev *tape.Event) bool {
		return ev.Life.Call == lifecycle.CallShrink
	})
	got := map[tape.Act]int32{}
	for _, ev := range events {
		if ev.Life.Act == tape.ActInit && ev.Life.Stage == tape.StageStart &&
			(ev.Comm.Rank != 2 || ev.Comm.Size != 3) {
			t.Errorf("it began as rank %d of %d, want 2 of 3", ev.Comm.Rank, ev.Comm.Size)
		}
		if ev.Life.Stage != tape.StageEnd {
			continue
		}
		got[ev.Life.Act] = ev.Life.Peer
	}
	if want := map[tape.Act]int32{tape.ActShrink: 1, tape.ActInit: 0}; !maps.Equal(got, want) {
		t.Errorf("the ranks at fault are %v, want %v", got, want)
	}
}

// The record of a shrink's start says which ranks it leaves out.
func TestShrinkOnTape(t *testing.T) {
	var starts []string
	recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		comms, err := rt.InitAll(t.Context(), 6)
		if err != nil {
			t.Fatal(err)
		}
		each(t, comms[2:3], func(ctx context.Context, c *ccl.Comm) error {
			child, err := c.Shrink(ctx, []int{4, 1, 0, 5, 3}, ccl.ShrinkDefault)
			return errors.Join(err, child.Close())
		})
		each(t, comms, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	}, func(ev *tape.Event) bool {
		if r := ev.Life; ev.IsLife && r.Act == tape.ActShrink {
			starts = append(starts, fmt.Sprintf("%s %q", r.Stage, r.Text))
		}
		return false
	})
	if want := []string{`start "without ranks 0-1,3-5"`, `end ""`}; !slices.Equal(starts, want) {
		t.Errorf("%q, want %q", starts, want)
	}
}

// The error of a split may name a rank of the parent that is not a rank of the child.
func TestFailedSplitOnTape(t *testing.T) {
	var ends []string
	recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		each(t, initAll(t, rt, "a"), func(ctx context.Context, c *ccl.Comm) error {
			var err error
			if c.Rank() == 0 {
				_, err = c.Split(ctx, 0, 0, ccl.WithName("b"))
			} else {
				err = ccl.Send(ctx, c, []byte{1}, 0)
			}
			if !errors.Is(err, ccl.ErrMismatch) {
				t.Error(err)
			}
			return c.Abort(nil)
		})
	}, func(ev *tape.Event) bool {
		r := ev.Life
		if ev.IsLife && r.Act != tape.ActNone && r.Stage == tape.StageEnd && r.Code == lifecycle.CodeMismatch {
			ends = append(ends, fmt.Sprintf("%s %s %d", ev.Comm.Name, r.Act, r.Peer))
		}
		return false
	})
	if want := []string{"a split 1", "b init -1"}; !slices.Equal(ends, want) {
		t.Errorf("%q, want %q", ends, want)
	}
}
