//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// opener is a GPU that records the device of the communicator made with it.
type opener struct {
	*gpu.GPU
	engine.Device
}

func (o *opener) Name() string { return o.GPU.Name() }

func (o *opener) Open(ctx context.Context, c *engine.Comm, gather func([]byte) ([][]byte, error), failed func(error)) (
	d engine.Device, err error,
) {
	o.Device, err = o.GPU.Open(ctx, c, gather, failed)
	return o.Device, err
}

// reached checks that all ranks accessed the buffers that the last large call needed, or, if not wanted, that they did
// not.
func (o *opener) reached(wanted bool) error {
	r := gpu.Reached(o.Device)
	all := r.Needs != 0
	for b := range kernel.NumBuffers {
		all = all && (r.Needs>>b&1 == 0 || r.At[b][0] != 0 && r.At[b][1] != 0)
	}
	if all != wanted {
		return fmt.Errorf("%+v, want all reached: %t", r, wanted)
	}
	return nil
}

// captured makes a call in a graph, and launches the graph once.
func captured(r *rank, call func() error) error {
	if err := errors.Join(r.stream.BeginCapture(), call()); err != nil {
		return err
	}
	graph, err := r.stream.EndCapture()
	if err != nil {
		return err
	}
	x, err := graph.Instantiate()
	if err != nil {
		return err
	}
	return errors.Join(x.Launch(r.stream), r.stream.Synchronize(), x.Destroy(), graph.Destroy())
}

// opened makes a communicator of n ranks, and returns their devices.
func opened(t *testing.T, n int, o gpu.Options, variables ...string) ([]rank, []*opener) {
	all := make([]rank, n)
	openers, kinds := make([]*opener, n), make([]engine.DeviceKind, n)
	d := driver(t, n, variables...)
	for r := range all {
		var err error
		all[r], err = open(at(t, d, r), o)
		must(t, err)
		openers[r] = &opener{GPU: all[r].gpu}
		kinds[r] = openers[r]
	}
	rt := runtime(t)
	comms, err := rt.InitAll(t.Context(), n, ccl.WithDevice(kinds...))
	must(t, err)
	for r := range all {
		all[r].Comm, all[r].runtime = comms[r], rt
	}
	return all, openers
}

// TestReduceScatterPushes checks that a large reduce-scatter needs no other rank's buffers, and a smaller one does.
func TestReduceScatterPushes(t *testing.T) {
	all, openers := opened(t, 2, options)
	for part, pushes := range map[int]bool{4000: false, 6000: true} { // elements of 4 bytes
		each(t, all, func(r *rank) error {
			send, recv := memory(t, r, 2*part), memory(t, r, part)
			err := ccl.ReduceScatterOn(t.Context(), r.Comm, r.stream, send, recv, ccl.Sum)
			err = errors.Join(err, r.Wait(t.Context()))
			if reach := gpu.Reached(openers[r.Rank()].Device); (reach.Needs == 0) != pushes {
				err = errors.Join(err, fmt.Errorf("parts of %d elements: %+v, want pushing: %t", part, reach, pushes))
			}
			return err
		})
	}
}

// TestAbortedBuffers checks that an aborted rank has its buffers to itself when its stream is done. A kernel of another
// rank, which was behind other work on its stream, doesn't access them.
func TestAbortedBuffers(t *testing.T) {
	const n = 6000
	all, openers := opened(t, 2, options)
	var buffers []cuda.Buffer[int32]
	for r := range all {
		buffers = append(buffers, memory(t, &all[r], n))
	}
	reduce := func(r *rank) error {
		b := buffers[r.Rank()]
		return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Min) // it writes into the other rank's buffer
	}
	first, second := &all[0], &all[1]
	each(t, all, func(r *rank) error { return captured(r, func() error { return reduce(r) }) })
	work, err := cuda.Alloc[uint32](second.context, 1)
	must(t, err)
	must(t, second.context.CopyToDevice(work.Pointer(), make([]byte, 4)))
	must(t, second.stream.WaitValue(work.Pointer(), 1))
	each(t, all, func(r *rank) error { return errors.Join(reduce(r), openers[r.Rank()].reached(true)) })
	for waits := false; !waits; goruntime.Gosched() {
		_, _, peer, running := openers[0].Current()
		waits = running && peer == 1
	}
	must(t, errors.Join(first.Abort(nil), first.stream.Synchronize()))
	used := slices.Repeat([]int32{7}, n) // used for something else
	must(t, first.context.CopyToDevice(buffers[0].Pointer(), kernels.Bytes(used)))
	must(t, second.context.CopyToDevice(work.Pointer(), []byte{1, 0, 0, 0}))
	must(t, second.stream.Synchronize())
	if got, err := read(first, buffers[0]); err != nil || !slices.Equal(got, used) {
		t.Errorf("the buffer was written after the stream was done: %v", err)
	}
	_ = second.Abort(nil) // it has failed
	for r := range all {
		must(t, all[r].gpu.Close())
	}
}

// interpose makes rank 0 send its requests to each other rank to a substitute. answer must return when over is closed.
func interpose(t *testing.T, openers []*opener, answer func(base uint64, over <-chan struct{}) uint64) {
	t.Helper()
	over := make(chan struct{})
	for r := 1; r < len(openers); r++ {
		end, err := gpu.Interpose(openers[0].Device, r, func(base uint64) uint64 { return answer(base, over) })
		must(t, err)
		t.Cleanup(end)
	}
	t.Cleanup(func() { close(over) })
}

// capturing makes an all-reduce in place on a captured stream, and drops the graph.
func capturing(t *testing.T, r *rank, b cuda.Buffer[int32]) error {
	t.Helper()
	must(t, r.stream.BeginCapture())
	err := ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum)
	graph, ended := r.stream.EndCapture()
	must(t, ended)
	must(t, graph.Destroy())
	return err
}

// TestAskAtOnce checks that all other ranks are asked concurrently to map a buffer.
func TestAskAtOnce(t *testing.T) {
	all, openers := opened(t, 4, options)
	b := memory(t, &all[0], 6000)
	asked, allAsked := atomic.Int32{}, make(chan struct{})
	interpose(t, openers, func(base uint64, over <-chan struct{}) uint64 {
		if int(asked.Add(1)) == len(all)-1 {
			close(allAsked)
		}
		select {
		case <-allAsked:
			return base
		case <-over:
			return 0
		}
	})
	must(t, capturing(t, &all[0], b))
	must(t, openers[0].reached(true))
	for r := range all {
		must(t, errors.Join(all[r].Abort(nil), all[r].gpu.Close()))
	}
}

// TestAskIsInterrupted checks that a call that waits for ranks which don't answer returns when its communicator stops.
func TestAskIsInterrupted(t *testing.T) {
	for _, aborts := range []int{0, 1} {
		t.Run(fmt.Sprintf("rank %d aborts", aborts), func(t *testing.T) {
			all, openers := opened(t, 2, options)
			b := memory(t, &all[0], 6000)
			asked := make(chan struct{})
			interpose(t, openers, func(_ uint64, over <-chan struct{}) uint64 {
				close(asked)
				<-over
				return 0
			})
			done := make(chan error)
			go func() { done <- capturing(t, &all[0], b) }()
			<-asked
			go func() { _ = all[aborts].Abort(nil) }() // it waits for the call
			select {
			case err := <-done:
				if code := lifecycle.CodeOf(err); code != lifecycle.CodeAborted && code != lifecycle.CodePeerAborted {
					t.Errorf("the call says %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("it waits all the same")
				<-done
			}
			for r := range all {
				_ = all[r].Abort(nil) // unless it already was
				must(t, all[r].gpu.Close())
			}
		})
	}
}

// TestForgetWhileBusy checks that freed memory is unmapped when the GPU is idle, and that requests of ranks, for which
// its kernels may wait, are answered meanwhile.
func TestForgetWhileBusy(t *testing.T) {
	r := on(t, at(t, driver(t, 1), 0))
	flag, err := cuda.Alloc[uint32](r.context, 1)
	must(t, err)
	must(t, r.context.CopyToDevice(flag.Pointer(), make([]byte, 4)))
	must(t, r.stream.WaitValue(flag.Pointer(), 1))
	answered := make(chan (<-chan struct{}))
	go func() {
		blocked := func() { untilIn("(*Context).CloseIPC", "(*reached).forget") }
		answered <- gpu.ForgetBeside(r.context, flag.Pointer(), blocked)
	}()
	select {
	case forgotten := <-answered:
		select {
		case <-forgotten:
			t.Error("it was forgotten while the GPU was busy")
		default:
		}
		defer func() { <-forgotten }()
	case <-time.After(10 * time.Second):
		t.Error("a rank isn't answered while another one's allocation is forgotten")
	}
	must(t, r.context.CopyToDevice(flag.Pointer(), []byte{1, 0, 0, 0}))
	must(t, r.stream.Synchronize())
}

// TestReach checks that the other ranks access captured buffers, with the same results as when data is staged; that
// buffers that were passed only once, or were freed, are not accessed; and that buffers of only one rank don't help.
func TestReach(t *testing.T) {
	const n = 6000
	all, openers := opened(t, 2, options)
	fresh := func(rank, n int) cuda.Buffer[int32] {
		data := make([]int32, n)
		for i := range data {
			data[i] = int32((rank + 1) * (i + 1))
		}
		b, err := buffer(&all[rank], data)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	expect := func(what string, r *rank, b cuda.Buffer[int32], of func(i int) int) error {
		got, err := read(r, b)
		for i, v := range got {
			if err == nil && int(v) != of(i) {
				return fmt.Errorf("%s: element %d of rank %d is %d, want %d", what, i, r.Rank(), v, of(i))
			}
		}
		return err
	}
	sum := func(i int) int { return 3 * (i + 1) }
	var sends, recvs, gathers []cuda.Buffer[int32] // before anything runs that might wait for another rank
	for r := range all {
		sends, recvs, gathers = append(sends, fresh(r, n)), append(recvs, fresh(r, n)), append(gathers, fresh(r, 2*n))
	}
	each(t, all, func(r *rank) error {
		ctx, o, me := t.Context(), openers[r.Rank()], r.Rank()
		send, recv, gathered := sends[me], recvs[me], gathers[me]
		reduce := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, send, recv, ccl.Sum) }
		if err := errors.Join(reduce(), o.reached(false), expect("staged", r, recv, sum),
			captured(r, reduce), o.reached(true), expect("all-reduce", r, recv, sum),
			reduce(), o.reached(true), expect("all-reduce again", r, recv, sum)); err != nil {
			return err
		}
		half := recv.Slice(0, n/2)
		return errors.Join(
			captured(r, func() error { return ccl.ReduceScatterOn(ctx, r.Comm, r.stream, send, half, ccl.Max) }),
			o.reached(true), expect("reduce-scatter", r, half, func(i int) int { return 2 * (me*n/2 + i + 1) }),
			captured(r, func() error { return ccl.AllGatherOn(ctx, r.Comm, r.stream, send, gathered) }),
			o.reached(true), expect("all-gather", r, gathered, func(i int) int { return (i/n + 1) * (i%n + 1) }),
		)
	})
	must(t, all[0].context.Free(sends[0].Pointer()))
	sends[0] = fresh(0, n) // possibly at the same address
	each(t, all, func(r *rank) error {
		ctx, o, me := t.Context(), openers[r.Rank()], r.Rank()
		reduce := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, sends[me], recvs[me], ccl.Sum) }
		return errors.Join(reduce(), o.reached(me != 0), expect("one has another", r, recvs[me], sum),
			captured(r, reduce), o.reached(true), expect("it is reached, too", r, recvs[me], sum),
			r.Destroy(ctx), r.gpu.Close())
	})
}
