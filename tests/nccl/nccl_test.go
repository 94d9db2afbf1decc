package nccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/nccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func root(r *rank) int { return r.Size() - 1 }

// collective is made on both kinds of memory. Its n elements are multiplied by the number of ranks where a buffer has a
// part for each.
type collective[T kernels.Element] struct {
	name       string
	send, recv bool // the buffer has n elements for each rank
	host       func(ctx context.Context, r *rank, send, recv []T) error
	device     func(ctx context.Context, r *rank, send, recv cuda.Buffer[T]) error
}

func collectives[T kernels.Element]() []collective[T] {
	type (
		ctx = context.Context
		mem = cuda.Buffer[T]
	)
	reduces := func(name string, op ccl.Reduction, factor func(r *rank) []ccl.OpOption) collective[T] {
		return collective[T]{
			name, false, false,
			func(c ctx, r *rank, s, d []T) error { return ccl.AllReduce(c, r.Comm, s, d, op, factor(r)...) },
			func(c ctx, r *rank, s, d mem) error {
				return ccl.AllReduceOn(c, r.Comm, r.stream, s, d, op, factor(r)...)
			},
		}
	}
	plain := func(*rank) []ccl.OpOption { return nil }
	return []collective[T]{
		reduces("sum", ccl.Sum, plain), reduces("prod", ccl.Prod, plain), reduces("max", ccl.Max, plain),
		reduces("min", ccl.Min, plain), reduces("avg", ccl.Avg, plain),
		reduces("premul", ccl.PreMulSum, func(r *rank) []ccl.OpOption {
			return []ccl.OpOption{ccl.Scale(float64(r.Rank() + 2))}
		}),
		{
			"reduce", false, false,
			func(c ctx, r *rank, s, d []T) error { return ccl.Reduce(c, r.Comm, s, d, ccl.Max, root(r)) },
			func(c ctx, r *rank, s, d mem) error { return ccl.ReduceOn(c, r.Comm, r.stream, s, d, ccl.Max, root(r)) },
		},
		{
			"reduce-scatter", true, false,
			func(c ctx, r *rank, s, d []T) error { return ccl.ReduceScatter(c, r.Comm, s, d, ccl.Sum) },
			func(c ctx, r *rank, s, d mem) error { return ccl.ReduceScatterOn(c, r.Comm, r.stream, s, d, ccl.Sum) },
		},
		{
			"all-gather", false, true,
			func(c ctx, r *rank, s, d []T) error { return ccl.AllGather(c, r.Comm, s, d) },
			func(c ctx, r *rank, s, d mem) error { return ccl.AllGatherOn(c, r.Comm, r.stream, s, d) },
		},
		{
			"all-to-all", true, true,
			func(c ctx, r *rank, s, d []T) error { return ccl.AllToAll(c, r.Comm, s, d) },
			func(c ctx, r *rank, s, d mem) error { return ccl.AllToAllOn(c, r.Comm, r.stream, s, d) },
		},
		{
			"broadcast", false, false,
			func(c ctx, r *rank, s, d []T) error { return ccl.Broadcast(c, r.Comm, s, d, root(r)) },
			func(c ctx, r *rank, s, d mem) error { return ccl.BroadcastOn(c, r.Comm, r.stream, s, d, root(r)) },
		},
		{
			"gather", false, true,
			func(c ctx, r *rank, s, d []T) error { return ccl.Gather(c, r.Comm, s, d, root(r)) },
			func(c ctx, r *rank, s, d mem) error { return ccl.GatherOn(c, r.Comm, r.stream, s, d, root(r)) },
		},
		{
			"scatter", true, false,
			func(c ctx, r *rank, s, d []T) error { return ccl.Scatter(c, r.Comm, s, d, root(r)) },
			func(c ctx, r *rank, s, d mem) error { return ccl.ScatterOn(c, r.Comm, r.stream, s, d, root(r)) },
		},
	}
}

// compare makes the collective on both kinds of memory; if captured, in three replays of a graph, each with its own
// data.
func (c *collective[T]) compare(ctx context.Context, r *rank, n int, captured bool, element func(i int) T) error {
	length := func(each bool) int {
		if each {
			return n * r.Size()
		}
		return n
	}
	send, recv := make([]T, length(c.send)), make([]T, length(c.recv))
	onSend, err := buffer(r, send...)
	if err != nil {
		return err
	}
	onRecv, err := buffer(r, recv...)
	if err != nil {
		return err
	}
	launch, rounds := func() error { return c.device(ctx, r, onSend, onRecv) }, 1
	if captured {
		x, err := capture(r.stream, launch)
		if err != nil {
			return err
		}
		defer x.Destroy() //nolint:errcheck // all of it is done
		launch, rounds = func() error { return x.Launch(r.stream) }, 3
	}
	for round := range rounds {
		for i := range send {
			send[i] = element(i + round)
		}
		if err := errors.Join(r.context.CopyToDevice(onSend.Pointer(), kernels.Bytes(send)),
			launch(), c.host(ctx, r, send, recv)); err != nil {
			return err
		}
		got, err := read(r, onRecv)
		if !c.same(got, recv) {
			return errors.Join(fmt.Errorf("%s of %d %T is %v, and %v on host memory", c.name, n, send, got, recv), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// same compares bit for bit, except for the average of floats, where NCCL rounds each part.
func (c *collective[T]) same(got, want []T) bool {
	if of, floats := any(got).([]float64); floats && c.name == "avg" {
		return slices.EqualFunc(of, any(want).([]float64), func(a, b float64) bool { //nolint:errcheck // it is one, too
			return math.Abs(a-b) <= 1e-14*math.Abs(b)
		})
	}
	return bytes.Equal(kernels.Bytes(got), kernels.Bytes(want))
}

// capture makes a graph of the work that put enqueues on a stream.
func capture(s *cuda.Stream, put func() error) (*cuda.Executable, error) {
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	failed := put()
	graph, err := s.EndCapture()
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	x, err := graph.Instantiate()
	return x, errors.Join(err, graph.Destroy())
}

// TestCollectives compares each collective with the same one on host memory, in calls and in replays of a graph.
func TestCollectives(t *testing.T) {
	for _, n := range []int{2, 3} {
		each(t, ranks(t, atMost(t, n)), func(r *rank) error {
			for _, count := range []int{1, 7, 300} {
				for _, captured := range []bool{false, true} {
					for _, c := range collectives[int32]() {
						if err := c.compare(t.Context(), r, count, captured, func(i int) int32 {
							return int32(i*i + 5*r.Rank() - 3)
						}); err != nil {
							return err
						}
					}
					for _, c := range collectives[float64]() {
						if err := c.compare(t.Context(), r, count, captured, func(i int) float64 {
							return float64(i%7) + float64(r.Rank())/4
						}); err != nil {
							return err
						}
					}
				}
			}
			ctx := t.Context()
			return errors.Join(ccl.BarrierOn(ctx, r.Comm, r.stream), r.Wait(ctx), r.Destroy(ctx))
		})
	}
}

// TestMessages: sends and receives of a group, including ones to the rank itself, on two streams that wait for each
// other.
func TestMessages(t *testing.T) {
	n := atMost(t, 3)
	each(t, ranks(t, n), func(r *rank) error {
		second, err := r.context.Stream(0)
		if err != nil {
			return err
		}
		var got []cuda.Buffer[int32]
		g := r.runtime.GroupStart(t.Context())
		for p := range n {
			send, err := buffer(r, int32(10*r.Rank()+p), 5)
			if err != nil {
				return err
			}
			recv, err := buffer[int32](r, 0, 0)
			if err != nil {
				return err
			}
			got = append(got, recv)
			if err := errors.Join(ccl.SendOn(g, r.Comm, second, send, p),
				ccl.RecvOn(g, r.Comm, r.stream, recv, p)); err != nil {
				return err
			}
		}
		if err := r.runtime.GroupEnd(g); err != nil {
			return err
		}
		for p := range got {
			if data, err := read(r, got[p]); err != nil || !slices.Equal(data, []int32{int32(10*p + r.Rank()), 5}) {
				return fmt.Errorf("rank %d sent %v: %w", p, data, err)
			}
		}
		return errors.Join(r.Destroy(t.Context()), second.Destroy())
	})
}

// TestMessagesReplayed: a graph of a group of sends and receives sends the buffers' contents at the time of each
// replay.
func TestMessagesReplayed(t *testing.T) {
	n := atMost(t, 3)
	each(t, ranks(t, n), func(r *rank) error {
		right, left := (r.Rank()+1)%n, (r.Rank()+n-1)%n
		send, err := buffer[int32](r, 0, 0)
		if err != nil {
			return err
		}
		recv, err := buffer[int32](r, 0, 0)
		if err != nil {
			return err
		}
		x, err := capture(r.stream, func() error {
			g := r.runtime.GroupStart(t.Context())
			return errors.Join(ccl.SendOn(g, r.Comm, r.stream, send, right),
				ccl.RecvOn(g, r.Comm, r.stream, recv, left), r.runtime.GroupEnd(g))
		})
		if err != nil {
			return err
		}
		for round := range int32(3) {
			data := []int32{int32(r.Rank()), round}
			if err := errors.Join(r.context.CopyToDevice(send.Pointer(), kernels.Bytes(data)),
				x.Launch(r.stream)); err != nil {
				return err
			}
			if got, err := read(r, recv); err != nil || !slices.Equal(got, []int32{int32(left), round}) {
				return fmt.Errorf("in replay %d rank %d sent %v: %w", round, left, got, err)
			}
		}
		return errors.Join(x.Destroy(), r.Destroy(t.Context()))
	})
}

// TestStreams: operations of one communicator are done in the order of their calls, on any streams, and in graphs.
func TestStreams(t *testing.T) {
	all := ranks(t, atMost(t, 2))
	each(t, all, func(r *rank) error {
		ctx := t.Context()
		other, err := r.context.Stream(0)
		if err != nil {
			return err
		}
		b, err := buffer[int32](r, 1)
		if err != nil {
			return err
		}
		call := func(s *cuda.Stream) error { return ccl.AllReduceOn(ctx, r.Comm, s, b, b, ccl.Sum) }
		for i := range 20 { // each operation multiplies the result of the one before by the number of ranks
			s := r.stream
			if i%3 == r.Rank() {
				s = other
			}
			if err := call(s); err != nil {
				return err
			}
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
		x, err := capture(r.stream, func() error { return call(r.stream) })
		if err != nil {
			return err
		}
		if err := errors.Join(x.Launch(r.stream), call(r.stream), r.Wait(ctx)); err != nil {
			return err
		}
		want := int32(math.Pow(float64(len(all)), 22))
		if got, err := read(r, b); err != nil || got[0] != want {
			return fmt.Errorf("%d^22 is %d: %w", len(all), got[0], err)
		}
		return errors.Join(x.Destroy(), r.Destroy(ctx))
	})
}

// TestGraph: each replay of a graph of collectives makes them once more, between calls that are not captured, however
// far a rank is ahead of the others.
func TestGraph(t *testing.T) {
	const replays, calls = 10, 3
	all := ranks(t, atMost(t, 3))
	n := int64(len(all))
	each(t, all, func(r *rank) error {
		ctx := t.Context()
		sum, err := buffer(r, int64(1))
		if err != nil {
			return err
		}
		total, err := buffer[int64](r, 0)
		if err != nil {
			return err
		}
		gathered, err := buffer(r, make([]int64, n)...)
		if err != nil {
			return err
		}
		send, recv := sum.Slice(0, 1), gathered.Slice(r.Rank(), r.Rank()+1)
		reduce := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, sum, total, ccl.Sum) }
		round := func() error { // sum becomes the total, through the rank's own place in the gathered buffer
			return errors.Join(
				reduce(),
				ccl.AllGatherOn(ctx, r.Comm, r.stream, total, gathered),
				r.stream.Copy(send.Pointer(), recv.Pointer(), 8))
		}
		x, err := capture(r.stream, func() (err error) {
			for range calls {
				err = errors.Join(err, round())
			}
			return err
		})
		if err != nil {
			return err
		}
		for range replays {
			if err := errors.Join(x.Launch(r.stream), reduce()); err != nil {
				return err
			}
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
		want := int64(1)
		for range replays*calls + 1 {
			want *= n
		}
		if got, err := read(r, total); err != nil || got[0] != want {
			return fmt.Errorf("after %d replays of %d sums the total is %d, want %d: %w",
				replays, calls, got[0], want, err)
		}
		return errors.Join(x.Destroy(), r.Destroy(ctx))
	})
}

// TestAbort: a rank that waits in NCCL for a rank that aborts returns, and its error says why. A new communicator
// works.
func TestAbort(t *testing.T) {
	each(t, ranks(t, 3), func(r *rank) error {
		ctx := t.Context()
		if r.Rank() == 2 {
			return r.Abort(errors.New("had enough"))
		}
		b, err := buffer[int32](r, 1)
		if err != nil {
			return err
		}
		err = ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum)
		if err == nil {
			err = r.Wait(ctx)
		}
		if peer, ok := errors.AsType[*ccl.PeerError](err); !ok || peer.Rank != 2 ||
			!strings.Contains(err.Error(), "had enough") {
			return fmt.Errorf("rank %d got %w", r.Rank(), err)
		}
		return errors.Join(r.stream.Synchronize(), r.Abort(nil))
	})
	each(t, ranks(t, 3), func(r *rank) error { return r.Destroy(t.Context()) })
}

// TestFailure: an error of NCCL while it runs an operation is returned by Wait, and ends the communicator.
func TestFailure(t *testing.T) {
	each(t, ranks(t, 2), func(r *rank) error {
		b, err := buffer[kernels.E4M3](r, 1)
		if err != nil {
			return err
		}
		err = ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum) // the fake only moves float8
		if err == nil {
			err = r.Wait(t.Context())
		}
		_, told := errors.AsType[*ccl.PeerError](err) // the other rank noticed first, and told this one
		if !told && !strings.Contains(fmt.Sprint(err), "ncclCommGetAsyncError: ") {
			return fmt.Errorf("rank %d got %w", r.Rank(), err)
		}
		if err := ccl.BarrierOn(t.Context(), r.Comm, r.stream); !errors.Is(err, ccl.ErrFailed) {
			return fmt.Errorf("afterwards rank %d got %w", r.Rank(), err)
		}
		return errors.Join(r.stream.Synchronize(), r.Abort(nil))
	})
}

// TestUnfinished: a waiting operation is in flight on the tape until it is done, and a Destroy names it.
func TestUnfinished(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Devices: 2})
	must(t, err)
	defer w.Close()
	reader, err := tape.Open(w.Path())
	must(t, err)
	defer reader.Close()
	inFlight := func() (n uint64) {
		for _, s := range reader.Slots() {
			n += s.Launched - s.Completed
		}
		return n
	}
	path := library(t)
	all := ranksOn(t, 2, newRuntime(t, w), func(c *cuda.Context) engine.DeviceKind { return nccl.New(c, path) })
	call := func(r *rank) {
		t.Helper()
		b, err := buffer[int32](r, 1)
		must(t, err)
		must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	}
	call(&all[0])
	if n := inFlight(); n != 1 {
		t.Errorf("while one waits, %d are in flight", n)
	}
	call(&all[1])
	for r := range all {
		must(t, all[r].Wait(t.Context()))
	}
	if n := inFlight(); n != 0 {
		t.Errorf("when all is done, %d are in flight", n)
	}
	call(&all[0])
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = all[0].Destroy(ctx)
	if !errors.Is(err, ccl.ErrUnfinished) || !strings.Contains(err.Error(), "all_reduce number 2") {
		t.Errorf("a Destroy while an operation waits is answered by %v", err)
	}
	must(t, all[0].stream.Synchronize())
}

// TestNoLibrary: if one rank finds no NCCL, all ranks are told which rank it is, and what to do.
func TestNoLibrary(t *testing.T) {
	path, calls := library(t), 0
	_, _, err := tryRanks(t, 2, newRuntime(t, nil), func(c *cuda.Context) engine.DeviceKind {
		if calls++; calls == 2 {
			return nccl.New(c, filepath.Join(t.TempDir(), "libnccl.so.2"))
		}
		return nccl.New(c, path)
	})
	for _, want := range []string{"rank 1: no NCCL", "libnccl.so.2", "CARILLON_NCCL_LIB"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without a library the error is %v, want %q", err, want)
		}
	}
	if lifecycle.CodeOf(err) != lifecycle.CodeSystem {
		t.Errorf("its code is %v", lifecycle.CodeOf(err))
	}
}

// TestFallback: more ranks than engine/cuda supports run on its Fallback, and one line of the log says so.
func TestFallback(t *testing.T) {
	var log bytes.Buffer
	path := library(t)
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Devices: devices})
	must(t, err)
	defer w.Close()
	all := ranksOn(t, devices, newRuntime(t, w), func(c *cuda.Context) engine.DeviceKind {
		g, err := gpu.New(c, gpu.Options{Fallback: nccl.New(c, path), Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
		return g
	})
	reader, err := tape.Open(w.Path())
	must(t, err)
	defer reader.Close()
	slots := reader.Slots()
	if slices.ContainsFunc(slots, func(s tape.Slot) bool { return s.Engine != "host+nccl" }) || len(slots) != devices {
		t.Errorf("NCCL is not on the tape: %+v", slots)
	}
	each(t, all, func(r *rank) error {
		b, err := buffer(r, int32(r.Rank()))
		if err != nil {
			return err
		}
		if err := ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum); err != nil {
			return err
		}
		if got, err := read(r, b); err != nil || got[0] != devices*(devices-1)/2 {
			return fmt.Errorf("the sum is %v: %w", got, err)
		}
		return r.Destroy(t.Context())
	})
	if n := strings.Count(log.String(), "engine=nccl"); n != 1 {
		t.Errorf("%d lines say that NCCL is used:\n%s", n, &log)
	}
}
