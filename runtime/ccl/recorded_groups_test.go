package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func ofGroups(ev *tape.Event) bool { return ev.Life.Act == tape.ActGroup }

// A group is one act on each of its communicators, with all its calls, including those of inner groups, from the end of
// the outermost group. All these acts begin at the same time.
func TestNestedGroupsOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		a, b := initAll(t, rt, "a"), initAll(t, rt, "b")
		err := rt.Group(t.Context(), func(g *ccl.Group) error {
			for r := range 2 {
				if err := errors.Join(ccl.Barrier(g, a[r]), rt.Group(g, func(in *ccl.Group) error {
					return errors.Join(ccl.Barrier(in, a[r]), ccl.Barrier(in, b[r]))
				})); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, rt.Group(t.Context(), func(g *ccl.Group) error {
			return errors.Join(ccl.Barrier(g, b[0]), ccl.Barrier(g, b[1]))
		})); err != nil {
			t.Error(err)
		}
		each(t, append(a, b...), func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	}, ofGroups)
	want := []string{
		"a/0 group start seq=1 ops=2 ok", "a/0 group end seq=1 ops=2 ok",
		"a/1 group start seq=1 ops=2 ok", "a/1 group end seq=1 ops=2 ok",
		"b/0 group start seq=1 ops=1 ok", "b/0 group end seq=1 ops=1 ok", "b/0 group start seq=2 ops=1 ok",
		"b/0 group end seq=2 ops=1 ok",
		"b/1 group start seq=1 ops=1 ok", "b/1 group end seq=1 ops=1 ok", "b/1 group start seq=2 ops=1 ok",
		"b/1 group end seq=2 ops=1 ok",
	}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Error(diff)
	}
	starts := map[int64]int{} // how many communicators have a group of that start
	for _, ev := range events {
		if ev.Life.Stage == tape.StageEnd {
			starts[ev.Life.Start]++
		}
	}
	if counts := slices.Sorted(maps.Values(starts)); !slices.Equal(counts, []int{2, 4}) {
		t.Errorf("numbers of communicators whose groups have the same start: %v", counts)
	}
}

// A failed group says on each communicator which of its calls took effect.
func TestFailedGroupOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		a, b := initAll(t, rt, "a"), initAll(t, rt, "b")
		err := rt.Group(t.Context(), func(g *ccl.Group) error {
			for r := range 2 {
				if err := errors.Join(ccl.Barrier(g, a[r]), ccl.Broadcast(g, a[r], []int8{1}, []int8{1}, r),
					ccl.Barrier(g, a[r]), ccl.Barrier(g, b[r])); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, ccl.ErrMismatch) {
			t.Errorf("%v, want a mismatch", err)
		}
		each(t, append(a, b...), func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	}, func(ev *tape.Event) bool { return ofGroups(ev) && ev.Life.Stage == tape.StageEnd })
	want := []string{
		"a/0 group end seq=1 ops=3 mismatch", "a/1 group end seq=1 ops=3 mismatch",
		"b/0 group end seq=1 ops=1 ok", "b/1 group end seq=1 ops=1 ok",
	}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Fatal(diff)
	}
	for _, ev := range events[:2] {
		if !strings.Contains(ev.Life.Text, "1 of 3 calls took effect, and then: broadcast") {
			t.Errorf("rank %d: the text is %q", ev.Comm.Rank, ev.Life.Text)
		}
	}
}

// The groups of a non-blocking communicator are numbered in the order of their ends, and calls postponed for them are
// recorded after their starts, however late they are made.
func TestGroupsInTheBackgroundOnTape(t *testing.T) {
	const groups = 20
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		comms := initAll(t, rt, "a", ccl.NonBlocking())
		for _, c := range comms {
			for i := range groups {
				err := rt.Group(t.Context(), func(g *ccl.Group) error {
					for range i + 1 {
						if err := ccl.Barrier(g, c); err != nil {
							return err
						}
					}
					return nil
				})
				if !errors.Is(err, ccl.ErrInProgress) {
					t.Errorf("%v, want ErrInProgress", err)
				}
			}
			if err := c.Destroy(t.Context()); !errors.Is(err, ccl.ErrInProgress) {
				t.Errorf("Destroy with unfinished group jobs: %v, want ErrInProgress", err)
			}
		}
		each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(c.Wait(ctx), c.Destroy(ctx)) })
	}, func(ev *tape.Event) bool {
		return ev.Comm.Rank == 0 &&
			(ofGroups(ev) && ev.Life.Stage == tape.StageStart || ev.Life.Stage == tape.StageMisuse)
	})
	var want []string
	for i := range groups {
		want = append(want, fmt.Sprintf("a/0 group start seq=%d ops=%d ok", i+1, i+1))
	}
	want = append(want, "a/0 destroy misuse seq=0 ops=0 in_progress")
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Error(diff)
	}
}

// Mistakes that belong to no single communicator are recorded on those of the group.
func TestMisusedGroupsOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, log *syncBuffer) {
		a := initAll(t, rt, "a")
		g := rt.GroupStart(t.Context())
		if err := errors.Join(ccl.Barrier(g, a[0]), ccl.Barrier(g, a[1]), rt.GroupEnd(g)); err != nil {
			t.Fatal(err)
		}
		err := rt.GroupEnd(g)
		if lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage ||
			!strings.Contains(err.Error(), "the first was made by ccl_test.TestMisusedGroupsOnTape") {
			t.Errorf("a second GroupEnd: %v", err)
		}
		b := initAll(t, rt, "b")
		func() {
			if err := ccl.Barrier(rt.GroupStart(t.Context()), b[1]); err != nil {
				t.Error(err)
			}
		}()
		collectUntil(t,
			"report of the open group", func() bool { return strings.Contains(log.String(), "group was never ended") })
		each(t, append(a, b...), func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	}, func(ev *tape.Event) bool { return ev.Life.Stage == tape.StageMisuse })
	want := []string{
		"a/0 group misuse seq=0 ops=0 invalid_usage", "a/1 group misuse seq=0 ops=0 invalid_usage",
		"b/1 group misuse seq=0 ops=0 invalid_usage",
	}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Fatal(diff)
	}
	for i, ev := range events {
		r := ev.Life
		if again := i < 2; (r.Call == lifecycle.CallGroupEnd) != again || r.First.IsZero() == again {
			t.Errorf("%s rank %d: %s, the first at %s", ev.Comm.Name, ev.Comm.Rank, r.Call, r.First)
		}
		if !strings.Contains(r.Site.Func, "TestMisusedGroupsOnTape") {
			t.Errorf("%s rank %d: the site is %s", ev.Comm.Name, ev.Comm.Rank, r.Site)
		}
	}
	if text := events[2].Life.Text; !strings.Contains(text, "never ended") ||
		!strings.Contains(text, "1 of them, were not made") {
		t.Errorf("the open group: %q", text)
	}
}

// If a group's inits fail, its other calls are not made, and each of their communicators records that.
func TestGroupWhoseInitsFailOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		a := initAll(t, rt, "a")
		id, err := rt.NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err = rt.Group(ctx, func(g *ccl.Group) error {
			c, err := rt.InitRank(g, id, 2, 0, ccl.WithName("never"))
			t.Cleanup(func() { _ = c.Close() })
			return errors.Join(err, ccl.Barrier(g, a[0]), ccl.Barrier(g, a[1]))
		})
		var failed *ccl.GroupError
		if !errors.As(err, &failed) || !errors.Is(err, ccl.ErrNotJoined) || len(failed.Results) != 3 {
			t.Errorf("%v, want a GroupError about three communicators", err)
		}
		each(t, a, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(sum(ctx, c), c.Destroy(ctx)) })
	}, ofGroups)
	want := []string{
		"a/0 group start seq=1 ops=1 ok", "a/0 group end seq=1 ops=1 not_joined",
		"a/1 group start seq=1 ops=1 ok", "a/1 group end seq=1 ops=1 not_joined",
	}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Fatal(diff)
	}
	for _, ev := range events {
		if ev.Life.Stage == tape.StageEnd && !strings.Contains(ev.Life.Text, "0 of 1 calls took effect") {
			t.Errorf("rank %d: the text is %q", ev.Comm.Rank, ev.Life.Text)
		}
	}
}

// Operations that progress together are numbered separately on each rank, from 1, and so is the failure of one.
func TestNumbersOfOperationsThatProgressTogether(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j", SampleEvery: 1})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Tape: w, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	one := []int64{1}
	each(t, initAll(t, rt, "a"), func(ctx context.Context, c *ccl.Comm) error {
		other, got := 1-c.Rank(), make([]int64, 1)
		exchange := func() error { return ccl.SendRecv(ctx, c, one, other, got, other) }
		if err := errors.Join(exchange(), ccl.Barrier(ctx, c), exchange(), rt.Group(ctx, func(g *ccl.Group) error {
			return errors.Join(ccl.Send(g, c, one, other), ccl.Recv(g, c, got, other), ccl.Barrier(g, c))
		})); err != nil {
			return err
		}
		// Both have sent and received three messages.
		if c.Rank() == 0 {
			return errors.Join(ccl.Send(ctx, c, one, other), c.Close())
		}
		if err := ccl.Recv(ctx, c, got, other); err != nil {
			return err
		}
		if err := exchange(); !errors.Is(err, ccl.ErrPeerAborted) && !errors.Is(err, lifecycle.ErrUnreachable) {
			return fmt.Errorf("an exchange with a rank that left: %w", err)
		}
		return c.Close()
	})
	if err := errors.Join(rt.Close(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for ev := range eventsOf(t, w) {
		switch {
		case ev.Comm.Rank != 1:
		case !ev.IsLife && ev.Op.Stage == tape.StageEnd:
			got = append(got, fmt.Sprint(ev.Op.Signature.Call, " ", ev.Op.Seq))
		case ev.IsLife && ev.Life.Act == tape.ActNone:
			got = append(got, fmt.Sprint("failed in ", ev.Life.Call, " ", ev.Life.Seq))
		}
	}
	slices.Sort(got)
	want := []string{
		"barrier 1", "barrier 2", "failed in send_recv 4", "group_end 3", "recv 4", "send_recv 1",
		"send_recv 2", "send_recv 4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations of rank 1 (-want +got):\n%s", diff)
	}
}

// A group that stays open is on the tapes of the communicators that it has calls on, until it has ended.
func TestOpenGroupOnTape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
			a, b := initAll(t, rt, "a"), initAll(t, rt, "b")
			fill := func() *ccl.Group {
				g := rt.GroupStart(t.Context())
				if err := errors.Join(ccl.Barrier(g, a[0]), ccl.Barrier(g, a[1])); err != nil {
					t.Fatal(err)
				}
				return g
			}
			g := fill()
			givenUp := errors.New("given up")
			err := rt.Group(g, func(inner *ccl.Group) error { // its calls are recorded, and withdrawn
				if err := errors.Join(ccl.Barrier(inner, b[0]), ccl.Barrier(inner, a[1])); err != nil {
					return err
				}
				<-time.After(5 * time.Second) // in the bubble's time
				return givenUp
			})
			if !errors.Is(err, givenUp) {
				t.Error(err)
			}
			err = errors.Join(ccl.Barrier(g, a[0]), ccl.Barrier(g, a[1]), rt.GroupEnd(g), rt.GroupEnd(fill()))
			if err != nil {
				t.Error(err)
			}
			each(t, slices.Concat(a, b), func(_ context.Context, c *ccl.Comm) error { return c.Close() })
		}, func(ev *tape.Event) bool { return ev.Life.Call == lifecycle.CallGroupStart })
		want := []string{
			"a/0 group start seq=1000000001 ops=0 ok", "a/0 group end seq=1000000001 ops=2 ok",
			"a/1 group start seq=1000000001 ops=0 ok", "a/1 group end seq=1000000001 ops=2 ok",
			"b/0 group start seq=1000000001 ops=0 ok", "b/0 group end seq=1000000001 ops=0 abandoned",
		}
		if diff := cmp.Diff(want, tell(events)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// When a communicator fails, an open group with calls on it may be the reason: it is recorded at once.
func TestOpenGroupOfFailedOnTape(t *testing.T) {
	events := recorded(t, func(rt *ccl.Runtime, _ *syncBuffer) {
		a := initAll(t, rt, "a")
		g := rt.GroupStart(t.Context())
		if err := ccl.Send(g, a[0], []byte{1}, 1); err != nil {
			t.Fatal(err)
		}
		each(t, a, func(ctx context.Context, c *ccl.Comm) error {
			data, err := make([]byte, 1), error(nil)
			if c.Rank() == 0 {
				err = ccl.AllReduce(ctx, c, data, data, ccl.Sum)
			} else {
				err = ccl.Recv(ctx, c, data, 0)
			}
			if err == nil {
				t.Error("a call that doesn't match has no error")
			}
			return c.Abort(nil)
		})
		_ = rt.GroupEnd(g)
	}, func(ev *tape.Event) bool { return ev.Life.Call == lifecycle.CallGroupStart })
	want := []string{"a/0 group start seq=1000000001 ops=0 ok", "a/0 group end seq=1000000001 ops=1 ok"}
	if diff := cmp.Diff(want, tell(events)); diff != "" {
		t.Fatal(diff)
	}
}
