package ccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// sum checks that the ranks of a communicator can work together.
func sum(ctx context.Context, c *ccl.Comm) error {
	buf := []int64{int64(c.Rank()), 1}
	n := int64(c.Size())
	return errors.Join(ccl.AllReduce(ctx, c, buf, buf, ccl.Sum), want("sum", buf, []int64{n * (n - 1) / 2, n}))
}

// separate makes n ranks that each have their own runtime, as in separate processes.
func separate(t *testing.T, n int, opts ...ccl.Option) []*ccl.Comm {
	t.Helper()
	rts := make([]*ccl.Runtime, n)
	for i := range rts {
		rts[i] = newRuntime(t, ccl.Config{})
	}
	id, err := rts[0].NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms := make([]*ccl.Comm, n)
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() {
			var err error
			if comms[r], err = rts[r].InitRank(t.Context(), id, n, r, opts...); err != nil &&
				!errors.Is(err, ccl.ErrInProgress) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms
}

func together(t *testing.T, n int) []*ccl.Comm {
	t.Helper()
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

var placements = map[string]func(t *testing.T, n int) []*ccl.Comm{
	"one process":      together,
	"several runtimes": func(t *testing.T, n int) []*ccl.Comm { t.Helper(); return separate(t, n) },
}

func TestShrinkAfterARankIsGone(t *testing.T) {
	for name, place := range placements {
		t.Run(name, func(t *testing.T) {
			comms := place(t, 4)
			each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
				if c.Rank() == 1 {
					return c.Abort(errors.New("as if it had died"))
				}
				err := sum(ctx, c)
				var peer *ccl.PeerError
				if !errors.As(err, &peer) || peer.Rank != 1 {
					return fmt.Errorf("%w, want that rank 1 is at fault", err)
				}
				rest, err := c.Shrink(ctx, []int{peer.Rank}, ccl.ShrinkAbort, ccl.WithName("rest"))
				if err != nil {
					return err
				}
				if wantRank := max(c.Rank()-1, 0); rest.Rank() != wantRank || rest.Size() != 3 {
					return fmt.Errorf("%s, want rank %d of 3", rest, wantRank)
				}
				// The result is a communicator like any other: it can be split, and shrunk again.
				if err := sum(ctx, rest); err != nil {
					return err
				}
				half, err := rest.Split(ctx, 0, 0)
				if err != nil {
					return err
				}
				if err := errors.Join(sum(ctx, half), half.Destroy(ctx)); err != nil {
					return err
				}
				if rest.Rank() == 2 {
					return errors.Join(rest.Abort(nil), c.Destroy(ctx))
				}
				two, err := rest.Shrink(ctx, []int{2}, ccl.ShrinkAbort)
				if err != nil {
					return err
				}
				return errors.Join(sum(ctx, two), two.Destroy(ctx), rest.Destroy(ctx), c.Destroy(ctx))
			})
		})
	}
}

func TestShrinkOfAHealthyCommunicator(t *testing.T) {
	comms := together(t, 3)
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if c.Rank() == 2 {
			return c.Destroy(ctx)
		}
		small, err := c.Shrink(ctx, []int{2}, ccl.ShrinkDefault)
		if err != nil {
			return err
		}
		return errors.Join(sum(ctx, small), small.Destroy(ctx), c.Destroy(ctx))
	})
}

func TestRevokeThenSplit(t *testing.T) {
	for name, place := range placements {
		t.Run(name, func(t *testing.T) {
			each(t, place(t, 4), func(ctx context.Context, c *ccl.Comm) error {
				if c.Rank() == 3 {
					if err := c.Revoke(errors.New("data set changed")); err != nil {
						return err
					}
				} else {
					if err := sum(ctx, c); !errors.Is(err, ccl.ErrPeerAborted) ||
						!strings.Contains(err.Error(), "data set changed") {
						return fmt.Errorf("%w, want that rank 3 revoked", err)
					}
					if err := c.Revoke(nil); err != nil {
						return err
					}
				}
				if err := sum(ctx, c); !errors.Is(err, ccl.ErrRevoked) {
					return fmt.Errorf("%w, want ErrRevoked", err)
				}
				half, err := c.Split(ctx, c.Rank()%2, 0)
				if err != nil {
					return err
				}
				return errors.Join(sum(ctx, half), half.Destroy(ctx), c.Destroy(ctx))
			})
		})
	}
}

func TestGrow(t *testing.T) {
	comms := separate(t, 2)
	late := newRuntime(t, ccl.Config{})
	carried := make(chan ccl.UniqueID, 1)
	rt := newRuntime(t, ccl.Config{})
	each(t, append(comms, nil), func(ctx context.Context, c *ccl.Comm) error {
		if c == nil { // the new rank
			c, err := late.JoinGrow(ctx, <-carried, 3, 2)
			if err != nil {
				return err
			}
			return errors.Join(sum(ctx, c), c.Destroy(ctx))
		}
		var id ccl.UniqueID
		if c.Rank() == 1 {
			var err error
			if id, err = rt.NewUniqueID(); err != nil {
				return err
			}
			carried <- id
		}
		grown, err := c.Grow(ctx, id, 3)
		if err != nil {
			return err
		}
		if grown.Rank() != c.Rank() || grown.Size() != 3 {
			return fmt.Errorf("grown is %s", grown)
		}
		if err := errors.Join(sum(ctx, grown), grown.Destroy(ctx)); err != nil {
			return err
		}
		// An id works only once.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if again, err := c.Grow(ctx, id, 3); err == nil || again != nil {
			return fmt.Errorf("the second Grow with an id: %v, %w", again, err)
		}
		return c.Destroy(context.WithoutCancel(ctx))
	})
}

func TestBadResizes(t *testing.T) {
	comms := together(t, 3)
	c, ctx := comms[0], t.Context()
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no such rank": {second(c.Shrink(ctx, []int{3}, ccl.ShrinkDefault)), "excluded rank 3"},
		"negative":     {second(c.Shrink(ctx, []int{-1}, ccl.ShrinkDefault)), "excluded rank -1"},
		"twice":        {second(c.Shrink(ctx, []int{1, 1}, ccl.ShrinkDefault)), "rank 1 is excluded twice"},
		"itself":       {second(c.Shrink(ctx, []int{0}, ccl.ShrinkDefault)), "excludes itself"},
		"nobody":       {second(c.Shrink(ctx, nil, ccl.ShrinkDefault)), "no rank is excluded"},
		"mode":         {second(c.Shrink(ctx, []int{1}, 7)), "mode is 7"},
		"not larger":   {second(c.Grow(ctx, ccl.UniqueID{}, 3)), "nranks is 3"},
		"nil":          {second((*ccl.Comm)(nil).Shrink(ctx, []int{1}, 0)), "nil"},
	} {
		var usage *ccl.UsageError
		if !errors.As(tc.err, &usage) || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v, want a UsageError that says %q", name, tc.err, tc.says)
		}
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if _, err := c.Grow(ctx, ccl.UniqueID{}, 4); err == nil ||
			!strings.Contains(err.Error(), "no rank passes a unique id") {
			return fmt.Errorf("Grow without an id: %w", err)
		}
		return errors.Join(sum(ctx, c), c.Destroy(ctx))
	})
}

func TestInitRankScalable(t *testing.T) {
	for _, tc := range []struct{ n, ids int }{{1, 1}, {5, 1}, {5, 2}, {7, 3}, {4, 4}} {
		t.Run(fmt.Sprintf("%d ranks, %d ids", tc.n, tc.ids), func(t *testing.T) {
			rts := make([]*ccl.Runtime, tc.ids)
			ids := make([]ccl.UniqueID, tc.ids)
			for i := range ids {
				rts[i] = newRuntime(t, ccl.Config{})
				var err error
				if ids[i], err = rts[i].NewUniqueID(); err != nil {
					t.Fatal(err)
				}
			}
			comms := make([]*ccl.Comm, tc.n)
			var wg sync.WaitGroup
			for r := range comms {
				wg.Go(func() {
					var err error
					if comms[r], err = rts[r%tc.ids].InitRankScalable(t.Context(), ids, tc.n, r); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if !t.Failed() {
				each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
					return errors.Join(sum(ctx, c), c.Destroy(ctx))
				})
			}
		})
	}
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	for name, ids := range map[string][]ccl.UniqueID{"none": nil, "too many": {id, id, id}, "the same": {id, id}} {
		if _, err := rt.InitRankScalable(t.Context(), ids, 2,
			0); lifecycle.CodeOf(err) != lifecycle.CodeInvalidArgument {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// collectUntil runs the garbage collector until done returns true.
func collectUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestLeaks(t *testing.T) {
	var log syncBuffer
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 2, ccl.WithName("forgotten"))
	if err != nil {
		t.Fatal(err)
	}
	kept := comms[1]
	comms = slices.Delete(comms, 0, 1) // rank 0's handle is gone: the slot is cleared
	collectUntil(t, "leak of rank 0", func() bool { return rt.Live() == 1 })
	if s := log.String(); !strings.Contains(s, "nobody holds it") || !strings.Contains(s, "resize_test.go") {
		t.Errorf("the log does not tell of the leak:\n%s", s)
	}
	if err := sum(t.Context(), kept); !errors.Is(err, ccl.ErrPeerAborted) {
		t.Errorf("the other rank: %v, want that rank 0 aborted", err)
	}
	group := func() { // a group left open
		g := rt.GroupStart(t.Context())
		_ = g
	}
	group()
	collectUntil(t,
		"report of the open group", func() bool { return strings.Contains(log.String(), "group was never ended") })
	// kept has failed, so it is not a leak; this one is usable.
	alive, err := rt.World(t.Context(), ccl.WithName("alive"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s := log.String()
	if n := strings.Count(s, "communicator leaked"); n != 2 || !strings.Contains(s, "comm=alive") ||
		!strings.Contains(s, "the runtime stops") {
		t.Errorf("the log does not tell of the leak at the end, or of more:\n%s", s)
	}
	runtime.KeepAlive(comms)
	runtime.KeepAlive(alive)
}

// There is no leak when an error ends a job, or the process is told to end: a single line is logged about what is left.
func TestWhatAFailedJobLeavesIsNoLeak(t *testing.T) {
	for name, told := range map[string]bool{"an error": false, "told to end": true} {
		t.Run(name, func(t *testing.T) {
			var comms []*ccl.Comm
			var text string
			leaks := recorded(t, func(rt *ccl.Runtime, log *syncBuffer) {
				for i := range 10 {
					c, err := rt.InitAll(t.Context(), 2, ccl.WithName(fmt.Sprint("c", i)))
					if err != nil {
						t.Fatal(err)
					}
					comms = append(comms, c...)
				}
				if !told {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					if err := sum(ctx, comms[0]); !errors.Is(err, ccl.ErrTimeout) {
						t.Errorf("a sum without the other rank: %v", err)
					}
				}
				if err := rt.Close(t.Context()); err != nil {
					t.Error(err)
				}
				text = log.String()
			}, func(ev *tape.Event) bool { return ev.Life.Act == tape.ActLeak }, func(cfg *ccl.Config) {
				cfg.ToldToEnd = func() bool { return told }
			})
			if len(leaks) != 0 || strings.Contains(text, "leaked") || strings.Count(text, "\n") != 1 {
				t.Errorf("%d leaks are on the tape, and the log is:\n%s", len(leaks), text)
			}
			runtime.KeepAlive(comms)
		})
	}
}

func TestWith(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	run := func(rank int, id ccl.UniqueID, fn func(*ccl.Comm) error) error {
		return ccl.With(t.Context(), rt, id, 2, rank, fn)
	}
	for name, tc := range map[string]struct {
		fn   [2]func(*ccl.Comm) error
		want [2]error
	}{
		"well": {
			[2]func(*ccl.Comm) error{
				func(c *ccl.Comm) error { return sum(t.Context(), c) },
				func(c *ccl.Comm) error { return errors.Join(sum(t.Context(), c), c.Close()) },
			},
			[2]error{nil, nil},
		},
		"one fails": {
			[2]func(*ccl.Comm) error{
				func(*ccl.Comm) error { return errBroken },
				func(c *ccl.Comm) error { return sum(t.Context(), c) },
			},
			[2]error{errBroken, ccl.ErrPeerAborted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := rt.NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			var got [2]error
			var wg sync.WaitGroup
			for r := range got {
				wg.Go(func() { got[r] = run(r, id, tc.fn[r]) })
			}
			wg.Wait()
			for r := range got {
				if !errors.Is(got[r], tc.want[r]) || tc.want[r] == nil && got[r] != nil {
					t.Errorf("rank %d: %v, want %v", r, got[r], tc.want[r])
				}
			}
			if n := rt.Live(); n != 0 {
				t.Errorf("%d communicators are left", n)
			}
		})
	}
}

var errBroken = errors.New("broken")

func TestGroupThatFailsHalfWay(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	a, err := rt.InitAll(t.Context(), 2, ccl.WithName("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := rt.InitAll(t.Context(), 2, ccl.WithName("b"))
	if err != nil {
		t.Fatal(err)
	}
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		for r := range 2 {
			ok, odd := []int64{1}, make([]int64, 1+r) // the ranks disagree about the second call on a
			if err := errors.Join(
				ccl.AllReduce(g, a[r], ok, ok, ccl.Sum), ccl.AllReduce(g, a[r], odd, odd, ccl.Sum),
				ccl.Barrier(g, a[r]), ccl.Barrier(g, b[r]),
			); err != nil {
				return err
			}
		}
		return nil
	})
	var group *ccl.GroupError
	if !errors.As(err, &group) || !errors.Is(err, ccl.ErrMismatch) || len(group.Results) != 4 {
		t.Fatalf("%v, want a GroupError about four communicators", err)
	}
	for _, r := range group.Results {
		calls, done, failed := 3, 1, true
		if strings.HasPrefix(r.Comm, "b ") {
			calls, done, failed = 1, 1, false
		}
		if r.Calls != calls || r.Done != done || (r.Err != nil) != failed {
			t.Errorf("%s: %d of %d calls, %v; want %d of %d", r.Comm, r.Done, r.Calls, r.Err, done, calls)
		}
	}
	for r := range 2 {
		if a[r].State() != lifecycle.StateFailed || b[r].State() != lifecycle.StateReady {
			t.Errorf("the states are %s and %s", a[r].State(), b[r].State())
		}
	}
	each(t, append(a, b...), func(_ context.Context, c *ccl.Comm) error { return c.Close() })
}

func TestUnfinishedGroupJob(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms := make([]*ccl.Comm, 2)
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	for r := range comms {
		if comms[r], err = rt.InitRank(t.Context(), id, 2, r, ccl.NonBlocking()); !errors.Is(err, ccl.ErrInProgress) {
			t.Fatal(err)
		}
	}
	// Until something polls it, the init is not complete, however long it has been done.
	for call, err := range map[string]error{
		"Split": second(comms[0].Split(t.Context(), 0, 0)), "Finalize": comms[0].Finalize(t.Context()),
		"Destroy": comms[0].Destroy(t.Context()),
	} {
		if !errors.Is(err, ccl.ErrInProgress) {
			t.Errorf("%s during init: %v, want ErrInProgress", call, err)
		}
	}
	for _, c := range comms {
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	group := func(c *ccl.Comm) error {
		return rt.Group(t.Context(), func(g *ccl.Group) error { return ccl.Barrier(g, c) })
	}
	if err := group(comms[0]); !errors.Is(err, ccl.ErrInProgress) {
		t.Fatalf("GroupEnd: %v, want ErrInProgress", err)
	}
	for call, err := range map[string]error{
		"Split":    second(comms[0].Split(t.Context(), 0, 0)),
		"Shrink":   second(comms[0].Shrink(t.Context(), []int{1}, ccl.ShrinkDefault)),
		"Finalize": comms[0].Finalize(t.Context()),
		"Destroy":  comms[0].Destroy(t.Context()),
	} {
		if !errors.Is(err, ccl.ErrInProgress) {
			t.Errorf("%s with an unfinished group job: %v, want ErrInProgress", call, err)
		}
	}
	if s := comms[0].State(); s != lifecycle.StateReady {
		t.Errorf("the state is %s: something changed", s)
	}
	if err := group(comms[1]); !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		return errors.Join(c.Wait(ctx), c.Destroy(ctx))
	})
}

func TestDestroyInsideAGroup(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	c, err := rt.World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = rt.Group(t.Context(), func(g *ccl.Group) error { return c.Destroy(g) })
	if lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage || !strings.Contains(err.Error(), "inside a group") {
		t.Errorf("%v, want a UsageError", err)
	}
	other := newRuntime(t, ccl.Config{})
	err = other.Group(t.Context(), func(g *ccl.Group) error { return ccl.Barrier(g, c) })
	if lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage || !strings.Contains(err.Error(), "another runtime") {
		t.Errorf("%v, want a UsageError", err)
	}
	if err := c.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
