package ccl_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// worldOf describes a job of two ranks, and rank 0's port, which is in use until the listener is closed.
func worldOf(t *testing.T) (worlds [2]launch.World, taken net.Listener) {
	t.Helper()
	var listen net.ListenConfig
	taken, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for r := range worlds {
		worlds[r] = launch.World{
			Rank: r, Size: 2, LocalRank: r, LocalSize: 2, Address: taken.Addr().String(),
			Job: "j", Secret: []byte("s"),
		}
	}
	return worlds, taken
}

// A World that ends before it tries to meet the others may be made again by its rank alone, which then meets them.
func TestWorldThatWasNotBegunDoesNotCount(t *testing.T) {
	for name, fails := range map[string]func(t *testing.T, rts [2]*ccl.Runtime){
		"rank 0's address is taken": func(t *testing.T, rts [2]*ccl.Runtime) {
			t.Helper()
			if _, err := rts[0].World(t.Context()); err == nil || !strings.Contains(err.Error(), "holds the port") {
				t.Errorf("World on a port that is taken: %v", err)
			}
		},
		"rank 1 is refused": func(t *testing.T, rts [2]*ccl.Runtime) {
			t.Helper()
			ended := rts[1].GroupStart(t.Context())
			if err := rts[1].GroupEnd(ended); err != nil {
				t.Fatal(err)
			}
			if _, err := rts[1].World(ended); !errors.Is(err, lifecycle.ErrInvalidUsage) {
				t.Errorf("World in a group that has ended: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			worlds, taken := worldOf(t)
			rts := [2]*ccl.Runtime{
				newRuntime(t, ccl.Config{World: worlds[0]}), newRuntime(t, ccl.Config{World: worlds[1]}),
			}
			fails(t, rts)
			if err := taken.Close(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 { // both ranks count from here on
				comms := make([]*ccl.Comm, 2)
				var wg sync.WaitGroup
				for r, rt := range rts {
					wg.Go(func() {
						var err error
						if comms[r], err = rt.World(ctx); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					})
				}
				wg.Wait()
				if t.Failed() {
					return
				}
				each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
					return errors.Join(sum(ctx, c), c.Destroy(ctx))
				})
			}
		})
	}
}

// A World that could not be made leaves a record, whatever the reason.
func TestWorldThatWasNotBegunOnTape(t *testing.T) {
	worlds, taken := worldOf(t)
	defer taken.Close()
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	world := func(in launch.World, closed bool) error {
		rt := newRuntime(t, ccl.Config{World: in, Tape: w})
		if closed {
			if err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_, err := rt.World(t.Context())
		return err
	}
	nowhere := worlds[0]
	nowhere.Address = "nowhere"
	errs := []error{world(worlds[0], false), world(nowhere, false), world(launch.World{}, true)}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for ev := range eventsOf(t, w) {
		if rec := ev.Life; ev.IsLife && rec.Stage != tape.StageStart {
			got = append(got, strings.Join([]string{
				ev.Comm.Name, rec.Act.String(), rec.Stage.String(), rec.Code.String(),
				rec.Text,
			}, " "))
			if !strings.Contains(rec.Site.String(), "world_test.go") {
				t.Errorf("record %d: the site is %s", len(got), rec.Site)
			}
		}
	}
	want := []string{
		"world init end system " + errs[0].Error(),
		"world init misuse invalid_argument " + errs[1].Error(),
		"world init misuse invalid_usage " + errs[2].Error(),
	}
	if len(got) != len(want) {
		t.Fatalf("there are %s records: %q", strconv.Itoa(len(got)), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("record %d is %q, want %q", i, got[i], want[i])
		}
	}
	if !errors.Is(errs[2], ccl.ErrRuntimeClosed) {
		t.Errorf("World on a closed runtime: %v", errs[2])
	}
}

// TestRankZeroIsLateForItsSecondWorld: a rank that has met rank 0 at the job's address waits there for rank 0's second
// World for as long as its context lets it.
func TestRankZeroIsLateForItsSecondWorld(t *testing.T) {
	t.Parallel() // it waits for eight seconds
	worlds, taken := worldOf(t)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	waits := make(chan time.Duration, 16) // as rank 1's log says
	log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "waited" {
				waits <- a.Value.Duration()
			}
			return a
		},
	}))
	rts := [2]*ccl.Runtime{
		newRuntime(t, ccl.Config{World: worlds[0]}), newRuntime(t, ccl.Config{World: worlds[1], Log: log}),
	}
	var late, early errgroup.Group
	world := func(rt *ccl.Runtime) func() error {
		return func() error {
			c, err := rt.World(t.Context())
			if err != nil {
				return err
			}
			return c.Destroy(t.Context())
		}
	}
	late.Go(world(rts[0]))
	if err := errors.Join(world(rts[1])(), late.Wait()); err != nil {
		t.Fatal(err)
	}
	early.Go(func() error {
		defer close(waits)
		return world(rts[1])()
	})
	for waited := range waits {
		if waited >= 8*time.Second {
			late.Go(world(rts[0]))
			break
		}
	}
	if err := errors.Join(early.Wait(), late.Wait()); err != nil {
		t.Error(err)
	}
}

// TestWorldsOfTwoRuns checks that a job that is started again in the same environment makes communicators with other
// ids, and that its tapes show another run.
func TestWorldsOfTwoRuns(t *testing.T) {
	worlds, taken := worldOf(t)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	run := func() (runs [2]lifecycle.Run, ids [2][]lifecycle.CommID) {
		var wg sync.WaitGroup
		for r := range worlds {
			wg.Go(func() {
				w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j"})
				if err != nil {
					t.Error(err)
					return
				}
				rt := newRuntime(t, ccl.Config{World: worlds[r], Tape: w})
				for range 2 {
					world, err := rt.World(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					defer world.Close() //nolint:errcheck // the runtime says what is left
					child, err := world.Split(t.Context(), 0, 0)
					if err != nil {
						t.Error(err)
						return
					}
					ids[r] = append(ids[r], world.ID(), child.ID())
					if err := errors.Join(child.Destroy(t.Context()), world.Destroy(t.Context())); err != nil {
						t.Error(err)
					}
				}
				tapes, err := tape.Open(w.Path())
				if err != nil {
					t.Error(err)
					return
				}
				runs[r] = tapes.Header().Run
				if err := errors.Join(tapes.Close(), rt.Close(t.Context()), w.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return runs, ids
	}
	all, seen := []lifecycle.CommID{}, map[lifecycle.Run]bool{}
	for range 2 {
		runs, ids := run()
		if runs[0] == 0 || runs[0] != runs[1] || seen[runs[0]] {
			t.Errorf("the ranks are of the runs %v", runs)
		}
		if !slices.Equal(ids[0], ids[1]) {
			t.Errorf("the ranks have communicators %v", ids)
		}
		seen[runs[0]], all = true, append(all, ids[0]...)
	}
	if slices.SortFunc(all, func(a, b lifecycle.CommID) int {
		return bytes.Compare(a[:], b[:])
	}); len(slices.Compact(all)) != 8 {
		t.Errorf("not eight communicators: %v", all)
	}
}
