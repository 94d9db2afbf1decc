package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRuntime(t testing.TB, cfg ccl.Config) *ccl.Runtime {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	rt, err := ccl.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// inProcess makes n ranks in one process and runs fn on each; all errors fail the test.
func inProcess(t testing.TB, n int, fn func(ctx context.Context, c *ccl.Comm) error) {
	t.Helper()
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, fn)
}

// each runs fn on all ranks at once, bounded in time so that a hang is a failure that says where.
func each(t testing.TB, comms []*ccl.Comm, fn func(ctx context.Context, c *ccl.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() { errs[i] = fn(ctx, c) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// want compares two slices.
func want[T comparable](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
	return nil
}

// ramp is n numbers that tell the rank they come from.
func ramp(rank, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(1000*rank + i)
	}
	return v
}

func TestCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		for _, count := range []int{0, 1, 5, 1000, 70_000} {
			t.Run(fmt.Sprintf("ranks=%d/count=%d", n, count), func(t *testing.T) {
				inProcess(t, n, func(ctx context.Context, c *ccl.Comm) error { return allCollectives(ctx, c, count) })
			})
		}
	}
}

// allCollectives makes every collective once, out of place and in place, and checks it.
func allCollectives(ctx context.Context, c *ccl.Comm, count int) error {
	n, rank, root := c.Size(), c.Rank(), c.Size()-1
	mine := ramp(rank, count)
	sum, all := make([]int64, count), make([]int64, 0, n*count)
	for r := range n {
		all = append(all, ramp(r, count)...)
		for i, v := range ramp(r, count) {
			sum[i] += v
		}
	}
	recv := make([]int64, count)
	if err := errors.Join(ccl.AllReduce(ctx, c, mine, recv, ccl.Sum), want("all-reduce", recv, sum), want("its input", mine, ramp(rank, count))); err != nil {
		return err
	}
	recv = ramp(rank, count)
	if err := errors.Join(ccl.AllReduce(ctx, c, recv, recv, ccl.Sum), want("all-reduce in place", recv, sum)); err != nil {
		return err
	}
	recv = make([]int64, count)
	if err := errors.Join(ccl.Broadcast(ctx, c, mine, recv, root), want("broadcast", recv, ramp(root, count))); err != nil {
		return err
	}
	var rootRecv []int64
	if rank == root {
		rootRecv = make([]int64, count)
	}
	if err := ccl.Reduce(ctx, c, mine, rootRecv, ccl.Sum, root); err != nil {
		return err
	}
	if rank == root {
		if err := want("reduce", rootRecv, sum); err != nil {
			return err
		}
	}
	gathered := make([]int64, n*count)
	if err := errors.Join(ccl.AllGather(ctx, c, mine, gathered), want("all-gather", gathered, all)); err != nil {
		return err
	}
	clear(gathered)
	part := gathered[rank*count : (rank+1)*count]
	copy(part, mine)
	if err := errors.Join(ccl.AllGather(ctx, c, part, gathered), want("all-gather in place", gathered, all)); err != nil {
		return err
	}
	sums := make([]int64, n*count)
	for i := range sums {
		for r := range n {
			sums[i] += int64(1000*r + i)
		}
	}
	recv = make([]int64, count)
	if err := errors.Join(ccl.ReduceScatter(ctx, c, ramp(rank, n*count), recv, ccl.Sum),
		want("reduce-scatter", recv, sums[rank*count:(rank+1)*count])); err != nil {
		return err
	}
	exchanged, wantExchanged := make([]int64, n*count), make([]int64, 0, n*count)
	for r := range n {
		wantExchanged = append(wantExchanged, ramp(r, n*count)[rank*count:(rank+1)*count]...)
	}
	if err := errors.Join(ccl.AllToAll(ctx, c, ramp(rank, n*count), exchanged), want("all-to-all", exchanged, wantExchanged)); err != nil {
		return err
	}
	var atRoot []int64
	if rank == root {
		atRoot = make([]int64, n*count)
	}
	if err := ccl.Gather(ctx, c, mine, atRoot, root); err != nil {
		return err
	}
	if rank == root {
		if err := want("gather", atRoot, all); err != nil {
			return err
		}
	}
	recv = make([]int64, count)
	if err := errors.Join(ccl.Scatter(ctx, c, atRoot, recv, root), want("scatter", recv, mine)); err != nil {
		return err
	}
	next, prev := (rank+1)%n, (rank+n-1)%n
	if err := errors.Join(ccl.SendRecv(ctx, c, mine, next, recv, prev), want("send and receive", recv, ramp(prev, count))); err != nil {
		return err
	}
	return ccl.Barrier(ctx, c)
}

func TestReductions(t *testing.T) {
	inProcess(t, 4, func(ctx context.Context, c *ccl.Comm) error {
		in := []float32{float32(c.Rank() + 1), float32(-c.Rank())}
		out := make([]float32, 2)
		for _, tc := range []struct {
			op   ccl.Reduction
			opts []ccl.OpOption
			want []float32
		}{
			{ccl.Sum, nil, []float32{10, -6}},
			{ccl.Prod, nil, []float32{24, 0}},
			{ccl.Max, nil, []float32{4, 0}},
			{ccl.Min, nil, []float32{1, -3}},
			{ccl.Avg, nil, []float32{2.5, -1.5}},
			{ccl.PreMulSum, []ccl.OpOption{ccl.Scale(0.5)}, []float32{5, -3}},
		} {
			if err := errors.Join(ccl.AllReduce(ctx, c, in, out, tc.op, tc.opts...), want(tc.op.String(), out, tc.want)); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestInitRankOverTCPRendezvous(t *testing.T) {
	for name, cfg := range map[string]fabric.Config{
		"shm": {},
		"tcp": {DisableSHM: true},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 3
			first := newRuntime(t, ccl.Config{Fabric: cfg})
			id, err := first.NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			comms := make([]*ccl.Comm, n)
			var wg sync.WaitGroup
			for r := range n {
				rt := first
				if r > 0 {
					rt = newRuntime(t, ccl.Config{Fabric: cfg}) // like another process
				}
				wg.Go(func() {
					c, err := rt.InitRank(t.Context(), id, n, r, ccl.WithName("dp"))
					if err != nil {
						t.Error(err)
						return
					}
					comms[r] = c
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
				if got := c.Topology().Transport[(c.Rank()+1)%n]; got != name {
					return fmt.Errorf("the transport is %s, want %s", got, name)
				}
				return errors.Join(allCollectives(ctx, c, 100_000), c.Destroy(ctx))
			})
		})
	}
}

func TestSplit(t *testing.T) {
	inProcess(t, 6, func(ctx context.Context, c *ccl.Comm) error {
		// Two rails of three, in reverse order of rank.
		rail, err := c.Split(ctx, c.Rank()%2, -c.Rank(), ccl.WithName("rail"))
		if err != nil {
			return err
		}
		if wantRank := (5 - c.Rank()) / 2; rail.Rank() != wantRank || rail.Size() != 3 || rail.Name() != "rail" {
			return fmt.Errorf("rail is %s, want rank %d of 3", rail, wantRank)
		}
		if rail.ID() == c.ID() || rail.ID() != lifecycle.ChildCommID(c.ID(), 1, c.Rank()%2) {
			return fmt.Errorf("the rail's id is %s", rail.ID())
		}
		got := []int64{int64(c.Rank())}
		sums := []int64{0 + 2 + 4, 1 + 3 + 5}
		if err := errors.Join(ccl.AllReduce(ctx, rail, got, got, ccl.Sum), want("sum over the rail", got, sums[c.Rank()%2:][:1])); err != nil {
			return err
		}
		color := 7
		if c.Rank() == 2 {
			color = ccl.NoColor
		}
		rest, err := c.Split(ctx, color, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			if rest != nil {
				return errors.New("a rank with NoColor got a communicator")
			}
			return rail.Destroy(ctx)
		}
		if rest.Size() != 5 {
			return fmt.Errorf("the rest has %d ranks", rest.Size())
		}
		return errors.Join(ccl.Barrier(ctx, rest), rest.Destroy(ctx), rail.Destroy(ctx))
	})
}

func TestWorkIsOrdered(t *testing.T) {
	inProcess(t, 3, func(ctx context.Context, c *ccl.Comm) error {
		bufs := make([][]int64, 20)
		works := make([]*ccl.Work, len(bufs))
		for i := range bufs {
			bufs[i] = []int64{int64(i)}
			works[i] = ccl.IAllReduce(ctx, c, bufs[i], bufs[i], ccl.Sum)
		}
		last := []int64{100} // a blocking call behind them
		if err := errors.Join(ccl.AllReduce(ctx, c, last, last, ccl.Sum), want("the last", last, []int64{300})); err != nil {
			return err
		}
		for i, w := range works {
			if err := w.Err(); err != nil {
				return fmt.Errorf("operation %d, made before one that is done: %w", i, err)
			}
			if err := errors.Join(w.Wait(ctx), want("sum", bufs[i], []int64{int64(3 * i)})); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestGroup(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	// One goroutine works for all ranks, which only a group makes possible.
	a, err := rt.InitAll(t.Context(), 3, ccl.WithName("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := rt.InitAll(t.Context(), 2, ccl.WithName("b"))
	if err != nil {
		t.Fatal(err)
	}
	sums, swapped := make([][]int64, 3), make([][]int64, 2)
	err = rt.Group(t.Context(), func(g *ccl.Group) error {
		for r, c := range a {
			sums[r] = []int64{int64(r)}
			if err := ccl.AllReduce(g, c, sums[r], sums[r], ccl.Sum); err != nil {
				return err
			}
		}
		return rt.Group(g, func(g *ccl.Group) error {
			for r, c := range b {
				swapped[r] = make([]int64, 100_000)
				if err := errors.Join(ccl.Send(g, c, ramp(r, 100_000), 1-r), ccl.Recv(g, c, swapped[r], 1-r)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range a {
		if err := want("sum", sums[r], []int64{3}); err != nil {
			t.Error(err)
		}
	}
	for r := range b {
		if err := want("what was swapped", swapped[r], ramp(1-r, 100_000)); err != nil {
			t.Error(err)
		}
	}
	for _, c := range append(a, b...) {
		if err := c.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestGroupOfInits(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms := make([]*ccl.Comm, 3)
	err = rt.Group(t.Context(), func(g *ccl.Group) (err error) {
		for r := range comms {
			if comms[r], err = rt.InitRank(g, id, len(comms), r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(ccl.Barrier(ctx, c), c.Destroy(ctx)) })
}

func TestNonBlocking(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	first, err := rt.InitRank(t.Context(), id, 2, 0, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) || first == nil {
		t.Fatalf("InitRank = %v, %v; want a communicator and ErrInProgress", first, err)
	}
	if err := first.AsyncError(); !errors.Is(err, ccl.ErrInProgress) {
		t.Fatalf("AsyncError while the other rank has not come: %v", err)
	}
	if err := ccl.Barrier(t.Context(), first); !errors.Is(err, ccl.ErrInProgress) && lifecycle.CodeOf(err) != lifecycle.CodeInitializing {
		t.Fatalf("Barrier while the other rank has not come: %v", err)
	}
	second, err := rt.InitRank(t.Context(), id, 2, 1, ccl.NonBlocking())
	if !errors.Is(err, ccl.ErrInProgress) {
		t.Fatal(err)
	}
	each(t, []*ccl.Comm{first, second}, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		child, err := c.Split(ctx, 0, 0)
		if !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Split = %w, want ErrInProgress", err)
		}
		if err := errors.Join(child.Wait(ctx), c.Wait(ctx), ccl.Barrier(ctx, child)); err != nil {
			return err
		}
		if err := child.Finalize(ctx); !errors.Is(err, ccl.ErrInProgress) {
			return fmt.Errorf("Finalize = %w, want ErrInProgress", err)
		}
		return errors.Join(child.Wait(ctx), child.Destroy(ctx), c.Destroy(ctx))
	})
}

func TestDestroyedTwice(t *testing.T) {
	inProcess(t, 2, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Destroy(ctx); err != nil {
			return err
		}
		for range 3 {
			err := c.Destroy(ctx)
			var usage *ccl.UsageError
			if !errors.Is(err, ccl.ErrDestroyed) || !errors.As(err, &usage) {
				return fmt.Errorf("second Destroy: %w", err)
			}
			if !strings.Contains(usage.First.File, "ccl_test.go") || !strings.Contains(err.Error(), "ccl_test.go") {
				return fmt.Errorf("the error does not say where the first Destroy was: %w", err)
			}
		}
		buf := []float32{1}
		if err := ccl.AllReduce(ctx, c, buf, buf, ccl.Sum); !errors.Is(err, ccl.ErrDestroyed) {
			return fmt.Errorf("AllReduce after Destroy: %w", err)
		}
		if err := c.Close(); err != nil {
			return fmt.Errorf("Close after Destroy: %w", err)
		}
		return nil
	})
}

func TestMismatchOnEveryRank(t *testing.T) {
	inProcess(t, 4, func(ctx context.Context, c *ccl.Comm) error {
		n := 10
		if c.Rank() == 2 {
			n = 11
		}
		send, recv := make([]float32, n), make([]float32, n)
		for i := range recv {
			recv[i] = 42
		}
		err := ccl.AllReduce(ctx, c, send, recv, ccl.Sum)
		var peer *ccl.PeerError
		if !errors.Is(err, ccl.ErrMismatch) || !errors.As(err, &peer) {
			return fmt.Errorf("%w, want a mismatch", err)
		}
		for _, part := range []string{"count", "10", "11", "2"} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("the error does not say %q: %w", part, err)
			}
		}
		for i := range recv {
			if recv[i] != 42 {
				return fmt.Errorf("recv[%d] was written", i)
			}
		}
		if err := ccl.Barrier(ctx, c); !errors.Is(err, ccl.ErrFailed) {
			return fmt.Errorf("Barrier after it: %w, want ErrFailed", err)
		}
		return c.Destroy(ctx)
	})
}

func TestContextEndsInsideAnOperation(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		switch c.Rank() {
		case 0: // gives up
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := ccl.Barrier(ctx, c)
			if !errors.Is(err, ccl.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 2") {
				return fmt.Errorf("%w, want a timeout that names rank 2", err)
			}
		case 1: // learns it
			err := ccl.Barrier(ctx, c)
			var peer *ccl.PeerError
			if !errors.Is(err, ccl.ErrAbandoned) || !errors.As(err, &peer) || peer.Rank != 0 {
				return fmt.Errorf("%w, want that rank 0 abandoned it", err)
			}
		case 2: // never makes the call, and finds out
			for {
				if err := c.AsyncError(); err != nil {
					if !errors.Is(err, ccl.ErrAbandoned) {
						return err
					}
					return nil
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
		return nil
	})
}

func TestAbortFreesTheOthers(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		if c.Rank() == 1 {
			w := ccl.IAllReduce(ctx, c, []float64{1}, make([]float64, 1), ccl.Sum)
			if err := c.Abort(errors.New("loss is NaN")); err != nil {
				return err
			}
			if err := w.Wait(ctx); !errors.Is(err, ccl.ErrAborted) {
				return fmt.Errorf("the aborted operation: %w", err)
			}
			return nil
		}
		err := ccl.Barrier(ctx, c)
		if !errors.Is(err, ccl.ErrPeerAborted) && !errors.Is(err, ccl.ErrMismatch) {
			return fmt.Errorf("%w, want that rank 1 aborted", err)
		}
		return nil
	})
}

func TestDestroyWithOperationsInFlight(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	buf := []float32{1}
	w := ccl.IAllReduce(t.Context(), comms[0], buf, buf, ccl.Sum)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = comms[0].Destroy(ctx)
	if lifecycle.CodeOf(err) != lifecycle.CodeUnfinished || !strings.Contains(err.Error(), "all_reduce") || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("Destroy = %v, want one that names the all_reduce and rank 1", err)
	}
	if err := w.Wait(t.Context()); err == nil {
		t.Error("the operation succeeded without the other rank")
	}
}

func TestBadArguments(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := comms[0], t.Context()
	f := make([]float32, 10)
	cases := map[string]struct {
		err  error
		says []string
	}{
		"nranks":       {second(rt.InitRank(ctx, id, 0, 0)), []string{"nranks is 0"}},
		"rank":         {second(rt.InitRank(ctx, id, 2, 2)), []string{"rank is 2", "0 to 1"}},
		"unique id":    {second(rt.InitRank(ctx, ccl.UniqueID{}, 2, 1)), []string{"unique id"}},
		"n":            {second(rt.InitAll(ctx, -1)), []string{"n is -1"}},
		"root":         {ccl.Broadcast(ctx, c, f, f, 2), []string{"root 2", "0 to 1"}},
		"peer":         {ccl.Send(ctx, c, f, -3), []string{"peer -3"}},
		"recv":         {ccl.AllReduce(ctx, c, f, f[:9], ccl.Sum), []string{"recv has 9", "must have 10"}},
		"short gather": {ccl.AllGather(ctx, c, f[:5], make([]float32, 9)), []string{"recv has 9", "must have 10"}},
		"overlap":      {ccl.AllReduce(ctx, c, f[:8], f[2:], ccl.Sum), []string{"overlap", "same slice"}},
		"in place":     {ccl.AllGather(ctx, c, f[5:], f), []string{"overlap", "elements 0 to 4"}},
		"all to all":   {ccl.AllToAll(ctx, c, f[:5], make([]float32, 5)), []string{"multiple of 2"}},
		"reduction":    {ccl.AllReduce(ctx, c, f, f, ccl.Reduction(77)), []string{"77"}},
		"no scale":     {ccl.AllReduce(ctx, c, f, f, ccl.PreMulSum), []string{"Scale"}},
		"scale":        {ccl.AllReduce(ctx, c, f, f, ccl.Sum, ccl.Scale(2)), []string{"Scale"}},
		"color":        {second(c.Split(ctx, -5, 0)), []string{"color is -5", "NoColor"}},
		"nil":          {ccl.Barrier(ctx, nil), []string{"nil", "NoColor"}},
		"nil destroy":  {(*ccl.Comm)(nil).Destroy(ctx), []string{"nil"}},
		"nil group":    {rt.GroupEnd(nil), []string{"GroupStart"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var usage *ccl.UsageError
			if !errors.As(tc.err, &usage) {
				t.Fatalf("%v, want a UsageError", tc.err)
			}
			for _, part := range tc.says {
				if !strings.Contains(tc.err.Error(), part) {
					t.Errorf("%q does not say %q", tc.err, part)
				}
			}
		})
	}
	// Nothing happened: the communicator still works.
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(ccl.Barrier(ctx, c), c.Destroy(ctx)) })
}

func second[T any](_ T, err error) error { return err }

func TestMissingRankIsNamed(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = rt.InitRank(ctx, id, 3, 1)
	if !errors.Is(err, ccl.ErrNotJoined) || !strings.Contains(err.Error(), "not arrived: 0, 2") && !strings.Contains(err.Error(), "0 and 2") {
		t.Errorf("%v, want that ranks 0 and 2 have not arrived", err)
	}
	if n := rt.Live(); n != 0 {
		t.Errorf("%d communicators are left", n)
	}
}

func TestAllDataTypes(t *testing.T) {
	inProcess(t, 2, func(ctx context.Context, c *ccl.Comm) error {
		return errors.Join(
			sumOf[int8](ctx, c, 3, 6), sumOf[uint8](ctx, c, 3, 6), sumOf[int32](ctx, c, 3, 6), sumOf[uint32](ctx, c, 3, 6),
			sumOf[int64](ctx, c, 3, 6), sumOf[uint64](ctx, c, 3, 6), sumOf[float32](ctx, c, 3, 6), sumOf[float64](ctx, c, 3, 6),
			sumOf(ctx, c, kernels.F16(0x4200), kernels.F16(0x4600)), sumOf(ctx, c, kernels.BF16(0x4040), kernels.BF16(0x40c0)),
			sumOf(ctx, c, kernels.E4M3(0x44), kernels.E4M3(0x4c)), sumOf(ctx, c, kernels.E5M2(0x42), kernels.E5M2(0x46)),
		)
	})
}

// sumOf all-reduces 13 elements of value v on two ranks.
func sumOf[T kernels.Element](ctx context.Context, c *ccl.Comm, v, sum T) error {
	buf, result := make([]T, 13), make([]T, 13)
	for i := range buf {
		buf[i], result[i] = v, sum
	}
	return errors.Join(ccl.AllReduce(ctx, c, buf, buf, ccl.Sum), want(kernels.TypeOf[T]().String(), buf, result))
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 500
	allocs := make([]float64, 2)
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		buf := make([]float32, 1000)
		var err error
		step := func() { err = errors.Join(err, ccl.AllReduce(context.Background(), c, buf, buf, ccl.Sum)) }
		if c.Rank() == 0 {
			allocs[0] = testing.AllocsPerRun(runs, step)
		} else {
			for range runs + 1 { // AllocsPerRun warms up once
				step()
			}
		}
		return err
	})
	if allocs[0] > 0 {
		t.Errorf("%v allocations per all-reduce", allocs[0])
	}
}
