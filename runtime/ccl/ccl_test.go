package ccl_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRuntime(t testing.TB, cfg ccl.Config) *ccl.Runtime {
	t.Helper()
	cfg.Engine, cfg.Log = host.Kind(), cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
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

// each runs fn on all ranks at once, with a time limit, so that a hang becomes a failure that says where.
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

// ramp returns n numbers that identify the rank they come from.
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
	if err := errors.Join(ccl.AllReduce(ctx, c, mine, recv, ccl.Sum), want("all-reduce", recv, sum),
		want("its input", mine, ramp(rank, count))); err != nil {
		return err
	}
	recv = ramp(rank, count)
	if err := errors.Join(ccl.AllReduce(ctx, c, recv, recv, ccl.Sum),
		want("all-reduce in place", recv, sum)); err != nil {
		return err
	}
	recv = make([]int64, count)
	if err := errors.Join(ccl.Broadcast(ctx, c, mine, recv, root),
		want("broadcast", recv, ramp(root, count))); err != nil {
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
	if err := errors.Join(ccl.AllGather(ctx, c, part, gathered),
		want("all-gather in place", gathered, all)); err != nil {
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
	if err := errors.Join(ccl.AllToAll(ctx, c, ramp(rank, n*count), exchanged),
		want("all-to-all", exchanged, wantExchanged)); err != nil {
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
	if err := errors.Join(ccl.SendRecv(ctx, c, mine, next, recv, prev),
		want("send and receive", recv, ramp(prev, count))); err != nil {
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
			{ccl.PreMulSum, []ccl.OpOption{ccl.Scale(float64(c.Rank()))}, []float32{20, -14}}, // factors differ by rank
		} {
			if err := errors.Join(ccl.AllReduce(ctx, c, in, out, tc.op, tc.opts...),
				want(tc.op.String(), out, tc.want)); err != nil {
				return err
			}
		}
		return nil
	})
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
		if err := errors.Join(ccl.AllReduce(ctx, rail, got, got, ccl.Sum),
			want("sum over the rail", got, sums[c.Rank()%2:][:1])); err != nil {
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
		if err := errors.Join(ccl.AllReduce(ctx, c, last, last, ccl.Sum),
			want("the last", last, []int64{300})); err != nil {
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

func TestAllDataTypes(t *testing.T) {
	inProcess(t, 2, func(ctx context.Context, c *ccl.Comm) error {
		return errors.Join(
			sumOf[int8](ctx, c, 3, 6), sumOf[uint8](ctx, c, 3, 6), sumOf[int32](ctx, c, 3, 6),
			sumOf[uint32](ctx, c, 3, 6),
			sumOf[int64](ctx, c, 3, 6), sumOf[uint64](ctx, c, 3, 6), sumOf[float32](ctx, c, 3, 6),
			sumOf[float64](ctx, c, 3, 6),
			sumOf(ctx, c, kernels.F16(0x4200), kernels.F16(0x4600)),
			sumOf(ctx, c, kernels.BF16(0x4040), kernels.BF16(0x40c0)),
			sumOf(ctx, c, kernels.E4M3(0x44), kernels.E4M3(0x4c)),
			sumOf(ctx, c, kernels.E5M2(0x42), kernels.E5M2(0x46)),
			sumOf(ctx, c, 3, 6), sumOf[uint](ctx, c, 3, 6), sumOf(ctx, c, 3*time.Second, 6*time.Second),
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
