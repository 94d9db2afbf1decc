package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// TestLifeAgainstTheTable lets several goroutines of several ranks make random calls on one communicator, legal and
// illegal ones, and checks every result against lifecycle's table: see judge. Afterwards nothing may be left: no
// communicator, no goroutine, and the state is that of the call that won.
//
// A failure prints the seed; go test -run TestLifeAgainstTheTable -rapid.seed=N makes the same calls again. The
// scheduler decides how they interleave, so it may take several runs: add -count.
func TestLifeAgainstTheTable(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rapid.Check(t, func(t *rapid.T) { drawLife(t).run(t) })
}

// life is a plan for one communicator: what its goroutines do.
type life struct {
	ranks       int
	apart       bool // each rank has its own runtime
	nonBlocking bool
	patient     bool // a rank waits for calls in progress before it makes the next call
	// Operations, groups of operations, and calls that make children, which all ranks make in this order.
	schedule   []lifecycle.Call
	afterwards lifecycle.Call           // the call that they make after the communicator has failed or was revoked
	meddlers   map[int][]meddler        // by rank
	tallies    []map[lifecycle.Call]int // by rank: how often each lifecycle call won
	rts        []*ccl.Runtime
	joiners    sync.WaitGroup // the processes that join in a Grow
}

// meddler is a goroutine that makes calls at any time. Before each it lets others run for a while.
type meddler []meddle

type meddle struct {
	meddling
	wait int
}

// meddling is a call that other ranks do not expect. A bad one has arguments, or a context, with which it is refused in
// every state.
type meddling struct {
	call lifecycle.Call
	bad  bool
}

// deadline bounds a life. Only a life that hangs reaches it.
const deadline = 30 * time.Second

func drawLife(t *rapid.T) *life {
	l := &life{
		ranks:       rapid.IntRange(2, 4).Draw(t, "ranks"),
		apart:       rapid.Bool().Draw(t, "apart"),
		nonBlocking: rapid.Bool().Draw(t, "nonblocking"),
		patient:     rapid.Bool().Draw(t, "patient"),
		schedule: rapid.SliceOfN(rapid.SampledFrom([]lifecycle.Call{
			lifecycle.CallAllReduce, lifecycle.CallBarrier, lifecycle.CallBroadcast, lifecycle.CallAllGather,
			lifecycle.CallReduce,
			lifecycle.CallSendRecv, lifecycle.CallGroupEnd, lifecycle.CallSplit, lifecycle.CallShrink,
			lifecycle.CallGrow,
		}), 1, 8).Draw(t, "schedule"),
		afterwards: rapid.SampledFrom([]lifecycle.Call{
			lifecycle.CallBarrier, lifecycle.CallShrink, lifecycle.CallSplit, lifecycle.CallRevoke,
		}).Draw(t, "afterwards"),
		meddlers: map[int][]meddler{},
	}
	harmless := []meddling{
		{lifecycle.CallAsyncError, false},
		{lifecycle.CallWait, false},
		{lifecycle.CallGroupEnd, true},
		{lifecycle.CallSplit, true},
		{lifecycle.CallShrink, true},
		{lifecycle.CallGrow, true},
		{lifecycle.CallSend, true},
		{lifecycle.CallAllReduce, true},
	}
	grave := append(harmless, meddling{lifecycle.CallFinalize, false}, meddling{lifecycle.CallDestroy, false},
		meddling{lifecycle.CallAbort, false},
		meddling{lifecycle.CallRevoke, false}, meddling{lifecycle.CallShrink, false},
		meddling{lifecycle.CallGrow, false}, meddling{lifecycle.CallGroupEnd, false})
	for r := range l.ranks {
		l.tallies = append(l.tallies, map[lifecycle.Call]int{})
		calls := harmless
		if rapid.Bool().Draw(t, "grave") {
			calls = grave
		}
		for range rapid.IntRange(1, 3).Draw(t, "meddlers") {
			var m meddler
			for range rapid.IntRange(1, 4).Draw(t, "calls") {
				m = append(m, meddle{rapid.SampledFrom(calls).Draw(t, "call"), rapid.IntRange(0, 200).Draw(t, "wait")})
			}
			l.meddlers[r] = append(l.meddlers[r], m)
		}
	}
	return l
}

func (l *life) run(t *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	comms, err := l.begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, l.ranks)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { errs[r] = l.rank(ctx, r, c) })
	}
	wg.Wait()
	l.joiners.Wait()
	err = errors.Join(errs...)
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("it hung"))
	}
	for _, rt := range l.rts {
		if n := rt.Live(); n != 0 {
			err = errors.Join(err, fmt.Errorf("%d communicators are left", n))
		}
		err = errors.Join(err, rt.Close(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin makes the communicator; if non-blocking, it is still in progress.
func (l *life) begin(ctx context.Context) ([]*ccl.Comm, error) {
	runtimes := 1
	if l.apart {
		runtimes = l.ranks
	}
	for range runtimes {
		rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			return nil, err
		}
		l.rts = append(l.rts, rt)
	}
	var opts []ccl.Option
	if l.nonBlocking {
		opts = append(opts, ccl.NonBlocking())
	}
	if !l.apart {
		comms, err := l.rts[0].InitAll(ctx, l.ranks, opts...)
		return comms, inProgressIsFine(err)
	}
	id, err := l.rts[0].NewUniqueID()
	if err != nil {
		return nil, err
	}
	comms, errs := make([]*ccl.Comm, l.ranks), make([]error, l.ranks)
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() { comms[r], errs[r] = l.rts[r].InitRank(ctx, id, l.ranks, r, opts...) })
	}
	wg.Wait()
	for r := range errs {
		errs[r] = inProgressIsFine(errs[r])
	}
	return comms, errors.Join(errs...)
}

func inProgressIsFine(err error) error {
	if errors.Is(err, ccl.ErrInProgress) {
		return nil
	}
	return err
}

// runtime makes a rank's runtime.
func (l *life) runtime(rank int) *ccl.Runtime { return l.rts[rank%len(l.rts)] }

// rank runs one rank: a goroutine for the schedule, and the meddlers. It ends the communicator, so that others that
// wait for it are told.
func (l *life) rank(ctx context.Context, r int, c *ccl.Comm) error {
	n := len(l.meddlers[r]) + 1
	errs := make([]error, n)
	children := make([][]*ccl.Comm, n)
	watched := make([]*watch, n)
	var wg sync.WaitGroup
	for i := range n {
		w := &watch{life: l, rt: l.runtime(r), rank: r, c: c, won: map[lifecycle.Call]int{}}
		watched[i] = w
		wg.Go(func() {
			if i == 0 {
				errs[i] = w.work(ctx)
			} else {
				errs[i] = w.meddle(ctx, l.meddlers[r][i-1])
			}
			children[i] = w.children
		})
	}
	wg.Wait()
	if l.nonBlocking && c.State() != lifecycle.StateInitializing {
		// Calls in the background may wait for ranks that don't arrive. Close would give them ten seconds.
		errs = append(errs, watched[0].call(ctx, lifecycle.CallWait))
		if c.AsyncError() != nil { // in progress, or there may be a call in progress behind one that failed
			errs = append(errs, watched[0].call(ctx, lifecycle.CallAbort))
		}
	}
	before := c.State()
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

// end compares the final state with the call that won. before is the state when all goroutines had returned.
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
	if after != want && before != lifecycle.StateInitializing { // Close may have met an init that had just finished
		return fmt.Errorf("the state at the end is %s, want %s after %v", after, want, won)
	}
	return nil
}
