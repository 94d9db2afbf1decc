//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// opener is a GPU that keeps the device of the communicator that is made with it.
type opener struct {
	*gpu.GPU
	device engine.Device
}

func (o *opener) Open(ctx context.Context, c *engine.Comm, gather func([]byte) ([][]byte, error), failed func(error)) (
	d engine.Device, err error,
) {
	o.device, err = o.GPU.Open(ctx, c, gather, failed)
	return o.device, err
}

// reached tells whether all ranks reached what the last large call needed, and fails if it is unlike wanted.
func (o *opener) reached(wanted bool) error {
	r := gpu.Reached(o.device)
	all := r.Needs != 0
	for b := range kernel.NumBuffers {
		all = all && (r.Needs>>b&1 == 0 || r.At[b][0] != 0 && r.At[b][1] != 0)
	}
	if all != wanted {
		return fmt.Errorf("%+v, want all reached: %t", r, wanted)
	}
	return nil
}

// captured makes a call in a graph, and launches that once.
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

// TestReach: buffers that are captured are reached by the other ranks, with the results that they have when data is
// staged; what is called with once, or was freed, is not; and buffers of one rank alone are no help.
func TestReach(t *testing.T) {
	const n = 6000
	all := make([]rank, 2)
	openers, kinds := make([]*opener, 2), make([]engine.DeviceKind, 2)
	d := driver(t, 2)
	for r := range all {
		all[r] = on(t, at(t, d, r))
		openers[r] = &opener{GPU: all[r].gpu}
		kinds[r] = openers[r]
	}
	rt := runtime(t)
	comms, err := rt.InitAll(t.Context(), 2, ccl.WithDevice(kinds...))
	must(t, err)
	for r := range all {
		all[r].Comm, all[r].runtime = comms[r], rt
	}
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
	sends[0] = fresh(0, n) // maybe at the same address
	each(t, all, func(r *rank) error {
		ctx, o, me := t.Context(), openers[r.Rank()], r.Rank()
		reduce := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, sends[me], recvs[me], ccl.Sum) }
		return errors.Join(reduce(), o.reached(me != 0), expect("one has another", r, recvs[me], sum),
			captured(r, reduce), o.reached(true), expect("it is reached, too", r, recvs[me], sum),
			r.Destroy(ctx), r.gpu.Close())
	})
}
