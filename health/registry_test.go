package health_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func well(context.Context) error { return nil }

func TestRegisterRefuses(t *testing.T) {
	var r health.Registry
	if err := r.Register("tape", health.Live, 0, well); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"already":    r.Register("tape", health.Ready, 0, well),
		"lower-case": r.Register("Tape", health.Live, 0, well),
		"from 1":     r.Register("", health.Live, 0, well),
		"to 63":      r.Register(strings.Repeat("x", 64), health.Live, 0, well),
		"digits":     r.Register("a/b", health.Live, 0, well),
		"kind":       r.Register("b", 0, 0, well),
		"not 9":      r.Register("b", 9, 0, well),
		"nil":        r.Register("b", health.Live, 0, nil),
		"negative":   r.Register("b", health.Live, -1, well),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
	if got := r.Run(t.Context(), health.Live|health.Ready, nil); len(got) != 1 {
		t.Errorf("one check is registered, and %v answer", got)
	}
}

func TestRunChoosesAndOrders(t *testing.T) {
	var r health.Registry
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		kind  health.Kind
		check health.Check
	}{
		{"c", health.Live, well},
		{"a", health.Live | health.Ready, func(context.Context) error { return broken }},
		{"b", health.Ready, func(context.Context) error { panic("oh") }},
	} {
		if err := r.Register(c.name, c.kind, 0, c.check); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(r.Run(t.Context(), health.Live, nil)); got != "a c" {
		t.Errorf("live checks are %q", got)
	}
	got := r.Run(t.Context(), health.Ready, nil)
	if names(got) != "a b" || !errors.Is(got[0].Err, broken) || got[1].Err == nil ||
		!strings.Contains(got[1].Err.Error(),
			"panicked: oh") {
		t.Errorf("ready checks answer %v", got)
	}
	if got := names(r.Run(t.Context(), health.Live|health.Ready,
		func(name string) bool { return name == "a" })); got != "b c" {
		t.Errorf("without a: %q", got)
	}
}

// The text of a passed check is in its result; joined with a failure, it is part of the error.
func TestWell(t *testing.T) {
	var r health.Registry
	for name, err := range map[string]error{
		"gpu": health.Well("no GPU"), "joined": errors.Join(errors.New("lost"),
			health.Well("no GPU")), "long": health.Well(strings.Repeat("x", 1<<20)),
	} {
		if err := r.Register(name, health.Ready, 0, func(context.Context) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
	got := r.Run(t.Context(), health.Ready, nil)
	if gpu := got[0]; gpu.Err != nil || gpu.Text != "no GPU" {
		t.Errorf("%+v, want that it is well, and says so", gpu)
	}
	if joined := got[1]; joined.Err == nil || joined.Text != "" {
		t.Errorf("%+v, want that it failed", joined)
	}
	if long := got[2]; long.Err != nil || len(long.Text) > 4<<10 {
		t.Errorf("%d bytes were kept", len(long.Text))
	}
}

func names(results []health.Result) string {
	var list []string
	for _, r := range results {
		list = append(list, r.Name)
	}
	return strings.Join(list, " ")
}

// TestStuckCheckRunsOnce repeatedly runs a check that ignores its context.
func TestStuckCheckRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r health.Registry
		var runs atomic.Int32
		release := make(chan struct{})
		stuck := func(context.Context) error { runs.Add(1); <-release; return nil }
		if err := r.Register("stuck", health.Live, 2*time.Second, stuck); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 5 {
			got := r.Run(t.Context(), health.Live, nil)
			if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "no answer for 2s") {
				t.Errorf("got %v", got[0].Err)
			}
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("the check ran %d times", n)
		}
		if d := time.Since(start); d != 2*time.Second { // later callers don't wait again
			t.Errorf("five questions took %s", d)
		}
		close(release)
		synctest.Wait()
		if got := r.Run(t.Context(), health.Live, nil); got[0].Err != nil || runs.Load() != 2 {
			t.Errorf("after it answered: %v, %d runs", got[0].Err, runs.Load())
		}
	})
}

func TestCheckThatHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r health.Registry
		slow := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := r.Register("slow", health.Live, 0, slow); err != nil {
			t.Fatal(err)
		}
		got := r.Run(t.Context(), health.Live, nil)
		if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "1s") {
			t.Errorf("got %v", got[0].Err)
		}
		synctest.Wait() // the check has seen its time run out, too
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client is gone")
		cancel(gone)
		if got := r.Run(ctx, health.Live, nil); !errors.Is(got[0].Err, gone) {
			t.Errorf("got %v", got[0].Err)
		}
		r.Run(t.Context(), health.Live, nil) // joins the run whose caller has gone
		synctest.Wait()
	})
}
