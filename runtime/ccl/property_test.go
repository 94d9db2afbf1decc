package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// TestLifeAgainstTheTable lets several goroutines of several ranks make random calls on one communicator, legal and
// illegal ones, and holds every answer against lifecycle's table: see judge. Afterwards nothing may be left: no
// communicator, no goroutine, and the state is that of the call that won.
//
// A failure prints the seed; go test -run TestLifeAgainstTheTable -rapid.seed=N makes the same calls again. How they
// interleave is the scheduler's choice, so it may take some runs: add -count.
func TestLifeAgainstTheTable(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rapid.Check(t, func(t *rapid.T) { drawLife(t).run(t) })
}

// life is a plan for one communicator: what its goroutines do.
type life struct {
	ranks       int
	nonBlocking bool
	schedule    []lifecycle.Call         // operations and splits that all ranks make in this order
	meddlers    map[int][]meddler        // by rank
	tallies     []map[lifecycle.Call]int // by rank: how often each lifecycle call won
}

// meddler is a goroutine that makes calls at any time. Before each it lets others run for a while.
type meddler []struct {
	call lifecycle.Call
	wait int
}

// deadline bounds a life. It is reached only by one that hangs.
const deadline = 30 * time.Second

func drawLife(t *rapid.T) *life {
	l := &life{
		ranks:       rapid.IntRange(2, 4).Draw(t, "ranks"),
		nonBlocking: rapid.Bool().Draw(t, "nonblocking"),
		schedule: rapid.SliceOfN(rapid.SampledFrom([]lifecycle.Call{
			lifecycle.CallAllReduce, lifecycle.CallBarrier, lifecycle.CallBroadcast, lifecycle.CallAllGather, lifecycle.CallSplit,
		}), 1, 8).Draw(t, "schedule"),
		meddlers: map[int][]meddler{},
	}
	harmless := []lifecycle.Call{lifecycle.CallAsyncError, lifecycle.CallWait, lifecycle.CallGroupEnd, lifecycle.CallSplit}
	grave := append(harmless, lifecycle.CallFinalize, lifecycle.CallDestroy, lifecycle.CallAbort, lifecycle.CallRevoke)
	for r := range l.ranks {
		l.tallies = append(l.tallies, map[lifecycle.Call]int{})
		calls := harmless
		if rapid.Bool().Draw(t, "grave") {
			calls = grave
		}
		for range rapid.IntRange(1, 3).Draw(t, "meddlers") {
			var m meddler
			for range rapid.IntRange(1, 4).Draw(t, "calls") {
				m = append(m, struct {
					call lifecycle.Call
					wait int
				}{rapid.SampledFrom(calls).Draw(t, "call"), rapid.IntRange(0, 200).Draw(t, "wait")})
			}
			l.meddlers[r] = append(l.meddlers[r], m)
		}
	}
	return l
}

func (l *life) run(t *rapid.T) {
	rt, err := ccl.New(ccl.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var opts []ccl.Option
	if l.nonBlocking {
		opts = append(opts, ccl.NonBlocking())
	}
	comms, err := rt.InitAll(ctx, l.ranks, opts...)
	if err != nil && !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	errs := make([]error, l.ranks)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { errs[r] = l.rank(ctx, rt, r, c) })
	}
	wg.Wait()
	err = errors.Join(errs...)
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("it hung"))
	}
	if n := rt.Live(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d communicators are left", n))
	}
	if err := errors.Join(err, rt.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// rank is one rank's part: a goroutine for the schedule, and the meddlers. It ends the communicator, so that others that
// wait for it learn that.
func (l *life) rank(ctx context.Context, rt *ccl.Runtime, r int, c *ccl.Comm) error {
	n := len(l.meddlers[r]) + 1
	errs := make([]error, n)
	children := make([][]*ccl.Comm, n)
	watched := make([]*watch, n)
	var wg sync.WaitGroup
	for i := range n {
		w := &watch{rt: rt, c: c, nonBlocking: l.nonBlocking, won: map[lifecycle.Call]int{}}
		watched[i] = w
		wg.Go(func() {
			if i == 0 {
				errs[i] = w.work(ctx, l.schedule)
			} else {
				errs[i] = w.meddle(ctx, l.meddlers[r][i-1])
			}
			children[i] = w.children
		})
	}
	wg.Wait()
	before := c.State()
	if l.nonBlocking && before == lifecycle.StateRevoked {
		// A split in the background may wait for ranks that don't come. Close would give it ten seconds.
		errs = append(errs, watched[0].call(ctx, lifecycle.CallAbort))
	}
	err := errors.Join(append(errs, c.Close())...)
	for _, all := range children {
		for _, child := range all {
			err = errors.Join(err, child.Close())
			if !child.State().Gone() {
				err = errors.Join(err, fmt.Errorf("a child is %s at the end", child.State()))
			}
		}
	}
	for _, w := range watched {
		for call, n := range w.won {
			l.tallies[r][call] += n
		}
	}
	if problem := l.end(r, before, c.State()); problem != nil {
		err = errors.Join(err, fmt.Errorf("rank %d: %w", r, problem))
	}
	return err
}

// end compares the state at the end with who won. before is what it was when all goroutines had returned.
func (l *life) end(r int, before, after lifecycle.State) error {
	won := l.tallies[r]
	for call, n := range won {
		if n > 1 {
			return fmt.Errorf("%s won %d times", call, n)
		}
	}
	want := lifecycle.StateDestroyed
	switch {
	case won[lifecycle.CallAbort] > 0, before == lifecycle.StateInitializing && won[lifecycle.CallDestroy] == 0:
		want = lifecycle.StateAborted
	case won[lifecycle.CallDestroy] > 0:
		if before != lifecycle.StateDestroyed {
			return fmt.Errorf("Destroy won, and the state is %s", before)
		}
	}
	if after != want && before != lifecycle.StateInitializing { // Close may have met an init that was just done
		return fmt.Errorf("the state at the end is %s, want %s after %v", after, want, won)
	}
	return nil
}

// watch makes calls and judges their answers. It belongs to one goroutine.
type watch struct {
	rt          *ccl.Runtime
	c           *ccl.Comm
	nonBlocking bool
	won         map[lifecycle.Call]int
	children    []*ccl.Comm
}

// work makes the calls that all ranks make, until one of them fails.
func (w *watch) work(ctx context.Context, schedule []lifecycle.Call) error {
	if err := w.call(ctx, lifecycle.CallWait); err != nil {
		return err
	}
	for _, call := range schedule {
		if w.c.State() != lifecycle.StateReady {
			// One more, which is illegal in most states. A split may be legal, and would wait for ranks that don't come.
			return w.call(ctx, lifecycle.CallBarrier)
		}
		if err := w.call(ctx, call); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) meddle(ctx context.Context, m meddler) error {
	for _, step := range m {
		for range step.wait {
			runtime.Gosched()
		}
		var err error
		switch step.call {
		case lifecycle.CallSplit: // with a color that there is not: always an error, and nothing happens
			if child, err := w.c.Split(ctx, -5, 0); err == nil || child != nil {
				return fmt.Errorf("split with color -5: %v, %w", child, err)
			}
		case lifecycle.CallGroupEnd: // in a group no communicator can be ended
			err = w.destroyInGroup(ctx)
		default:
			err = w.call(ctx, step.call)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) destroyInGroup(ctx context.Context) error {
	g := w.rt.GroupStart(ctx)
	if err := w.c.Destroy(g); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		return fmt.Errorf("Destroy in a group: %w", err)
	}
	if err := w.rt.GroupEnd(g); err != nil {
		return fmt.Errorf("GroupEnd of an empty group: %w", err)
	}
	if err := w.rt.GroupEnd(g); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		return fmt.Errorf("GroupEnd twice: %w", err)
	}
	return nil
}

// call makes a call, and judges the answer.
func (w *watch) call(ctx context.Context, call lifecycle.Call) error {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // ends only calls that wait for ranks that don't come
	defer cancel()
	before := w.c.State()
	err := w.make(ctx, call)
	after := w.c.State()
	if err == nil || lifecycle.CodeOf(err) == lifecycle.CodeUnfinished && call == lifecycle.CallDestroy {
		switch call {
		case lifecycle.CallFinalize, lifecycle.CallDestroy, lifecycle.CallAbort, lifecycle.CallRevoke:
			w.won[call]++
		default: // nobody else is kept from making it
		}
	}
	if problem := judge(call, before, after, w.nonBlocking, ctx.Err() != nil, err); problem != nil {
		return fmt.Errorf("%s, from %s to %s: %w", call, before, after, problem)
	}
	return nil
}

func (w *watch) make(ctx context.Context, call lifecycle.Call) error {
	one, all := []int64{1}, make([]int64, w.c.Size())
	switch call {
	case lifecycle.CallAllReduce:
		return ccl.AllReduce(ctx, w.c, one, make([]int64, 1), ccl.Sum)
	case lifecycle.CallBroadcast:
		return ccl.Broadcast(ctx, w.c, one, one, 0)
	case lifecycle.CallAllGather:
		return ccl.AllGather(ctx, w.c, one, all)
	case lifecycle.CallBarrier:
		return ccl.Barrier(ctx, w.c)
	case lifecycle.CallSplit:
		child, err := w.c.Split(ctx, 0, 0)
		if child != nil {
			w.children = append(w.children, child)
		}
		return err
	case lifecycle.CallAsyncError:
		return w.c.AsyncError()
	case lifecycle.CallWait:
		return w.c.Wait(ctx)
	case lifecycle.CallFinalize:
		return w.c.Finalize(ctx)
	case lifecycle.CallDestroy:
		return w.c.Destroy(ctx)
	case lifecycle.CallRevoke:
		return w.c.Revoke(nil)
	default:
		return w.c.Abort(nil)
	}
}
