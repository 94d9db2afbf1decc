package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// newTape makes a tape, and a function that closes it and returns its records.
func newTape(t *testing.T) (*tape.Writer, func() []tape.LifeRecord) {
	t.Helper()
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, func() []tape.LifeRecord {
		t.Helper()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var records []tape.LifeRecord
		for ev := range eventsOf(t, w) {
			if ev.IsLife {
				records = append(records, ev.Life)
			}
		}
		return records
	}
}

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it took too long until %s", what)
		}
	}
}

func TestAbortOvertakesDestroy(t *testing.T) {
	w, records := newTape(t)
	rt := newRuntime(t, ccl.Config{Tape: w})
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	c, buf := comms[0], []float32{1}
	work := ccl.IAllReduce(t.Context(), c, buf, buf, ccl.Sum)
	destroyed := make(chan error, 1)
	go func() { destroyed <- c.Destroy(t.Context()) }()
	until(t, "Destroy waits", func() bool { return c.State() == lifecycle.StateDestroying })
	if err := c.Abort(errors.New("it takes too long")); err != nil {
		t.Error(err)
	}
	if err := <-destroyed; !errors.Is(err, ccl.ErrAborted) {
		t.Errorf("Destroy = %v, want that it was aborted", err)
	}
	if err := work.Wait(t.Context()); !errors.Is(err, ccl.ErrAborted) {
		t.Errorf("the operation: %v, want that it was aborted", err)
	}
	if state, n := c.State(), rt.Live(); state != lifecycle.StateAborted || n != 1 {
		t.Errorf("it is %s, and %d communicators are left; want aborted, and the other rank's", state, n)
	}
	if err := comms[1].Close(); err != nil {
		t.Error(err)
	}
	ends := map[tape.Act]int{}
	for _, r := range records() {
		if r.Stage == tape.StageEnd {
			ends[r.Act]++
		}
	}
	if ends[tape.ActDestroy] != 2 || ends[tape.ActAbort] != 1 {
		t.Errorf("the tape has %d ends of destroys and %d of aborts, want 2 and 1", ends[tape.ActDestroy],
			ends[tape.ActAbort])
	}
}

// Operations, splits and every way to end a communicator, all at once.
func TestRacedEnds(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	for round := range 150 {
		comms, err := rt.InitAll(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		ends := []func(*ccl.Comm) error{
			func(c *ccl.Comm) error { return c.Destroy(t.Context()) },
			func(c *ccl.Comm) error { return c.Destroy(t.Context()) },
		}
		if round%2 == 0 {
			ends[1] = func(c *ccl.Comm) error { return c.Abort(nil) }
		}
		each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { _ = ccl.IAllReduce(ctx, c, []int32{1}, make([]int32, 1), ccl.Sum).Wait(ctx) })
			}
			wg.Go(func() {
				if child, err := c.Split(ctx, 0, 0); err == nil {
					_ = child.Close()
				}
			})
			wg.Go(func() { _ = c.AsyncError() })
			errs := make([]error, len(ends))
			for i, end := range ends {
				wg.Go(func() { errs[i] = end(c) })
			}
			closed := make([]error, 2)
			for i := range closed {
				wg.Go(func() { closed[i] = c.Close() })
			}
			wg.Wait()
			for _, err := range errs {
				if err != nil && !errors.Is(err, ccl.ErrDestroyed) && !errors.Is(err, ccl.ErrAborted) {
					return fmt.Errorf("an end: %w", err)
				}
			}
			if err := errors.Join(closed...); err != nil {
				return fmt.Errorf("Close: %w", err)
			}
			if !c.State().Gone() {
				return fmt.Errorf("it is %s", c.State())
			}
			return nil
		})
	}
	if n := rt.Live(); n != 0 {
		t.Errorf("%d communicators are left", n)
	}
}

func TestCloseIsNoMistake(t *testing.T) {
	w, records := newTape(t)
	comms, err := newRuntime(t, ccl.Config{Tape: w}).InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	each(t, []*ccl.Comm{comms[0], comms[0], comms[0]}, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
	for _, r := range records() {
		if r.Stage == tape.StageMisuse {
			t.Errorf("the tape has a mistake: %s", r.Text)
		}
	}
}

func TestCloseOfNonBlocking(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	comms, err := rt.InitAll(t.Context(), 2, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return c.Wait(ctx) })
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Finalize(ctx); !errors.Is(err, ccl.ErrInProgress) {
			return err
		}
		return c.Close() // nothing has asked whether Finalize is done
	})
	if n := rt.Live(); n != 0 {
		t.Errorf("%d communicators are left", n)
	}
}

func TestCloseDuringInit(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	for range 20 {
		id, err := rt.NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		c, err := rt.InitRank(t.Context(), id, 2, 0, ccl.NonBlocking())
		if !errors.Is(err, ccl.ErrInProgress) {
			t.Fatal(err)
		}
		each(t, []*ccl.Comm{c, c, c, c}, func(_ context.Context, c *ccl.Comm) error { return c.Close() })
		if !c.State().Gone() {
			t.Fatalf("it is %s", c.State())
		}
	}
}

// While a rank waits for others to arrive, its communicator's slot says so; status reads it there.
func TestSlotDuringInit(t *testing.T) {
	w, _ := newTape(t)
	rt := newRuntime(t, ccl.Config{Tape: w})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := rt.InitRank(t.Context(), id, 2, 0, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	slots := r.Slots()
	if len(slots) != 1 || slots[0].State != lifecycle.StateInitializing {
		t.Errorf("the slots are %+v, want one of a communicator that is initializing", slots)
	}
}

// Communicators that are being made, split and used while the runtime closes.
func TestRuntimeCloseRaced(t *testing.T) {
	for range 40 {
		rt := newRuntime(t, ccl.Config{})
		comms, err := rt.InitAll(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, c := range comms {
			wg.Go(func() {
				for {
					child, err := c.Split(t.Context(), 0, 0)
					if err != nil {
						return
					}
					_ = child.String()
				}
			})
		}
		wg.Go(func() {
			for {
				if _, err := rt.InitAll(t.Context(), 2, ccl.NonBlocking()); errors.Is(err, ccl.ErrRuntimeClosed) {
					return
				}
			}
		})
		until(t, "something is made", func() bool { return rt.Live() > 8 })
		closed := make([]error, 2)
		for i := range closed {
			wg.Go(func() { closed[i] = rt.Close(t.Context()) })
		}
		wg.Wait()
		if err := errors.Join(closed...); err != nil {
			t.Error(err)
		}
		until(t, "nothing is left", func() bool { return rt.Live() == 0 })
	}
}

// The call sites on the tape are the user's, however deep in the package a call was refused.
func TestSitesAreTheUsers(t *testing.T) {
	w, records := newTape(t)
	rt := newRuntime(t, ccl.Config{Tape: w})
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := comms[0], t.Context()
	_ = ccl.Broadcast(ctx, c, []int8{1}, []int8{1}, 7)
	if err := rt.Group(ctx, func(g *ccl.Group) error { return ccl.Barrier(g, c) }); err != nil {
		t.Error(err)
	}
	if err := c.Destroy(ctx); err != nil {
		t.Error(err)
	}
	_ = c.Destroy(ctx)
	_ = ccl.Barrier(ctx, c)
	_ = ccl.IAllReduce(ctx, c, []int8{1}, []int8{1}, ccl.Sum).Err()
	_ = rt.Group(ctx, func(g *ccl.Group) error { return ccl.Barrier(g, c) })
	n := 0
	for _, r := range records() {
		if r.Site.Func != "" && r.Site.Func != "ccl_test.TestSitesAreTheUsers" &&
			r.Site.Func != "ccl_test.TestSitesAreTheUsers.func2" {
			t.Errorf("%v of %v, %v: made by %s", r.Act, r.Call, r.Stage, r.Site)
		}
		if r.Stage == tape.StageMisuse {
			n++
		}
	}
	if n != 5 {
		t.Errorf("the tape has %d mistakes, want 5", n)
	}
}

// With ends its communicator even if calls of fn are in progress.
func TestWithEndsWhatIsInProgress(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for r := range errs {
		wg.Go(func() {
			errs[r] = ccl.With(t.Context(), rt, id, 2, r, func(c *ccl.Comm) error {
				err := rt.Group(t.Context(), func(g *ccl.Group) error { return ccl.Barrier(g, c) })
				if !errors.Is(err, ccl.ErrInProgress) {
					return fmt.Errorf("GroupEnd = %w, want ErrInProgress", err)
				}
				return nil
			}, ccl.NonBlocking())
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil || rt.Live() != 0 {
		t.Errorf("%v, and %d communicators are left", err, rt.Live())
	}
}

// A Destroy that gives up names each call that did not end, even if none of them is an operation.
func TestDestroyListsWhatIsInFlight(t *testing.T) {
	for want, begin := range map[string]func(ctx context.Context, c *ccl.Comm){
		"all_reduce number 1": func(ctx context.Context, c *ccl.Comm) {
			for range 12 {
				ccl.IAllReduce(ctx, c, []int64{1}, make([]int64, 1), ccl.Sum)
			}
			ccl.IBroadcast(ctx, c, []int64{1}, []int64{1}, 0)
		},
		"the call's context ended during shrink; behind it: broadcast": func(ctx context.Context, c *ccl.Comm) {
			child, err := c.Shrink(ctx, []int{2}, ccl.ShrinkDefault, ccl.NonBlocking())
			if !errors.Is(err, ccl.ErrInProgress) {
				t.Errorf("Shrink: %v", err)
			}
			t.Cleanup(func() { _ = child.Close() })
			ccl.IBroadcast(ctx, c, []int64{1}, []int64{1}, 0)
		},
	} {
		comms := together(t, 3)
		begin(t.Context(), comms[0])
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := comms[0].Destroy(soon)
		cancel()
		if !errors.Is(err, ccl.ErrUnfinished) || !strings.Contains(err.Error(), want) {
			t.Errorf("Destroy = %v, want that it lists %q", err, want)
		}
		if n := strings.Count(fmt.Sprint(err), "all_reduce"); n > 0 &&
			(n != 9 || !strings.Contains(err.Error(), "and 4 more")) {
			t.Errorf("Destroy = %v, want 9 of the calls, and 4 more", err)
		}
		for _, c := range comms[1:] {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
