package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// repetitions is the number of runs of each race.
const repetitions = 1000

// race makes a communicator of two ranks, runs fns at the same moment, passes the communicator and their errors to
// judge, and closes what is left; it does that `repetitions` times. A race that hangs ends with its context, and fails.
func race(
	t *testing.T, fns func(ctx context.Context, comms []*ccl.Comm) []func() error,
	judge func(comms []*ccl.Comm, errs []error) error,
) {
	t.Helper()
	rt := newRuntime(t, ccl.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range repetitions {
		comms, err := rt.InitAll(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		runners := fns(ctx, comms)
		errs := make([]error, len(runners))
		start := make(chan struct{})
		var wg sync.WaitGroup
		for k := range runners {
			j := (i + k) % len(runners) // each one is started first in turn
			wg.Go(func() {
				<-start
				errs[j] = runners[j]()
			})
		}
		close(start)
		wg.Wait()
		err = judge(comms, errs)
		for _, c := range comms {
			err = errors.Join(err, c.Close())
		}
		if rt.Live() != 0 {
			err = errors.Join(err, fmt.Errorf("%d communicators are left", rt.Live()))
		}
		if err != nil || ctx.Err() != nil {
			t.Fatalf("repetition %d: %v", i, errors.Join(err, ctx.Err()))
		}
	}
}

// oneOf fails unless exactly one of errs is nil and the others have one of the codes.
func oneOf(errs []error, codes ...lifecycle.Code) error {
	winners := 0
	for i, err := range errs {
		if err == nil {
			winners++
			continue
		}
		if problem := coded(err, codes...); problem != nil {
			return fmt.Errorf("call %d: %w", i, problem)
		}
	}
	if winners != 1 {
		return fmt.Errorf("%d of %d calls won: %w", winners, len(errs), errors.Join(errs...))
	}
	return nil
}

// coded fails unless err is nil or has one of the codes.
func coded(err error, codes ...lifecycle.Code) error {
	if err == nil {
		return nil
	}
	for _, code := range codes {
		if lifecycle.CodeOf(err) == code {
			return nil
		}
	}
	return fmt.Errorf("%v (%w), want one of %v", lifecycle.CodeOf(err), err, codes)
}

// gone are the errors that a rank may get about a peer that ended its side.
var gone = []lifecycle.Code{lifecycle.CodePeerAborted, lifecycle.CodeAbandoned, lifecycle.CodeMismatch}

func TestRaceDestroyAgainstOperation(t *testing.T) {
	race(t, func(ctx context.Context, c []*ccl.Comm) []func() error {
		return []func() error{
			func() error { return c[0].Destroy(ctx) },
			func() error { return ccl.Barrier(ctx, c[0]) },
			func() error { return ccl.Barrier(ctx, c[1]) },
		}
	}, func(c []*ccl.Comm, errs []error) error {
		if c[0].State() != lifecycle.StateDestroyed || errs[0] != nil {
			return fmt.Errorf("Destroy: %w; the state is %s", errs[0], c[0].State())
		}
		if (errs[1] == nil) != (errs[2] == nil) {
			return fmt.Errorf("the operation took effect on one rank only: %w", errors.Join(errs[1:]...))
		}
		return errors.Join(coded(errs[1], lifecycle.CodeDestroyed), coded(errs[2], gone...))
	})
}

func TestRaceDestroyAgainstWork(t *testing.T) {
	race(t, func(ctx context.Context, c []*ccl.Comm) []func() error {
		work := func(c *ccl.Comm) func() error {
			return func() error { return ccl.IAllReduce(ctx, c, []int64{1}, make([]int64, 1), ccl.Sum).Wait(ctx) }
		}
		return []func() error{func() error { return c[0].Destroy(ctx) }, work(c[0]), work(c[1])}
	}, func(_ []*ccl.Comm, errs []error) error {
		if (errs[1] == nil) != (errs[2] == nil) {
			return fmt.Errorf("the operation took effect on one rank only: %w", errors.Join(errs[1:]...))
		}
		return errors.Join(errs[0], coded(errs[1], lifecycle.CodeDestroyed), coded(errs[2], gone...))
	})
}

func TestRaceDestroyAgainstDestroy(t *testing.T) {
	race(t, func(ctx context.Context, c []*ccl.Comm) []func() error {
		destroy := func() error { return c[0].Destroy(ctx) }
		return []func() error{destroy, destroy, destroy, destroy}
	}, func(_ []*ccl.Comm, errs []error) error {
		for _, err := range errs {
			var usage *ccl.UsageError
			if errors.As(err, &usage) && usage.First.Func == "" {
				return fmt.Errorf("the error does not say where the first was: %w", err)
			}
		}
		return oneOf(errs, lifecycle.CodeDestroyed)
	})
}

func TestRaceAbortAgainstSplit(t *testing.T) {
	var children [2]*ccl.Comm
	race(t, func(ctx context.Context, c []*ccl.Comm) []func() error {
		children = [2]*ccl.Comm{}
		split := func(r int) func() error {
			return func() (err error) {
				children[r], err = c[r].Split(ctx, 0, 0)
				return err
			}
		}
		abort := func() error { return c[0].Abort(nil) }
		return []func() error{abort, abort, split(0), split(1)}
	}, func(c []*ccl.Comm, errs []error) error {
		problem := errors.Join(
			oneOf(errs[:2], lifecycle.CodeAborted), coded(errs[2], lifecycle.CodeAborted), coded(errs[3], gone...))
		if c[0].State() != lifecycle.StateAborted {
			problem = errors.Join(problem, fmt.Errorf("the state is %s", c[0].State()))
		}
		for r, child := range children {
			if (child == nil) != (errs[2+r] != nil) {
				problem = errors.Join(problem, fmt.Errorf("rank %d: a child %v and an error %w", r, child, errs[2+r]))
			}
			problem = errors.Join(problem, child.Close())
		}
		return problem
	})
}

func TestRaceCloseAgainstCloseAndOperation(t *testing.T) {
	race(t, func(ctx context.Context, c []*ccl.Comm) []func() error {
		closing := func() error { return c[0].Close() }
		return []func() error{
			closing, closing,
			func() error { return ccl.Barrier(ctx, c[0]) },
			func() error { return ccl.Barrier(ctx, c[1]) },
		}
	}, func(_ []*ccl.Comm, errs []error) error {
		return errors.Join(errs[0], errs[1], coded(errs[2], lifecycle.CodeDestroyed), coded(errs[3], gone...))
	})
}
