//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestStreams checks that operations of one communicator run in the order of their calls, whatever their streams.
func TestStreams(t *testing.T) {
	all := ranks(t, 2)
	each(t, all, func(r *rank) error {
		other, err := r.context.Stream(0)
		if err != nil {
			return err
		}
		b, err := buffer(r, []int32{1})
		if err != nil {
			return err
		}
		for i := range 20 { // each one doubles the result of the one before
			s := r.stream
			if i%3 == r.Rank() {
				s = other
			}
			if err := ccl.AllReduceOn(t.Context(), r.Comm, s, b, b, ccl.Sum); err != nil {
				return err
			}
		}
		if err := r.Wait(t.Context()); err != nil {
			return err
		}
		got := make([]byte, 4)
		if err := r.context.CopyToHost(got, b.Pointer()); err != nil || !slices.Equal(got, []byte{0, 0, 16, 0}) {
			return fmt.Errorf("2^20 is %v: %w", got, err)
		}
		return other.Destroy()
	})
}

// TestGraph checks that captured operations can be launched any number of times, on ranks that launch at their own
// pace, and that operations between them are numbered, too. Readers of the tape see the progress of all.
func TestGraph(t *testing.T) {
	all := ranks(t, 2)
	reader, err := tape.Open(all[0].tape.Path())
	must(t, err)
	defer reader.Close()
	each(t, all, func(r *rank) error {
		ctx := t.Context()
		b, err := buffer(r, []int32{1, 1, 1})
		if err != nil {
			return err
		}
		eager := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum) }
		if err := errors.Join(eager(), r.stream.BeginCapture(), eager(), eager()); err != nil {
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
		for range 4 {
			if err := errors.Join(x.Launch(r.stream), x.Launch(r.stream), eager()); err != nil {
				return err
			}
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if got, err := read(r, b); err != nil || !slices.Equal(got, []int32{1 << 21, 1 << 21, 1 << 21}) {
			return fmt.Errorf("2^21 is %v: %w", got, err)
		}
		return errors.Join(x.Destroy(), graph.Destroy())
	})
	deadline := time.Now().Add(time.Minute)
	for told := 0; told < len(all); { // 2 collectives in each of 8 launches
		told = 0
		for _, s := range reader.Slots() {
			if s.ID == lifecycle.GraphsCommID(all[0].ID()) && s.Begun == 16 && s.Done == 16 && s.Launched == 16 &&
				s.Op.Call == lifecycle.CallAllReduce {
				told++
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("readers are not told of all collectives in graphs")
		}
		goruntime.Gosched()
	}
	each(t, all, func(r *rank) error { return errors.Join(r.Destroy(t.Context()), r.gpu.Close()) })
	if slots := reader.Slots(); len(slots) > 0 {
		t.Errorf("the tape shows what has ended: %+v", slots)
	}
}

// TestDeviceTime checks that the time of an operation on the GPU is on the tape now and then.
func TestDeviceTime(t *testing.T) {
	r := &ranks(t, 1)[0]
	b := memory(t, r, 8)
	for range 3 {
		must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	}
	must(t, r.Wait(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := tape.Follow(ctx, r.tape.Path(), time.Millisecond)
	must(t, err)
	defer f.Close()
	for {
		ev, err := f.Next(ctx)
		must(t, err)
		if o := &ev.Op; !ev.IsLife && o.Stage == tape.StageDevice {
			if took := time.Duration(o.Time - o.Start); o.Seq != 1 || o.Signature.Call != lifecycle.CallAllReduce ||
				o.Signature.Bytes != 32 || took <= 0 || took > time.Minute {
				t.Errorf("the GPU took %v for %+v", took, o)
			}
			return
		}
	}
}

// TestGraphThatWaits checks that aborting a communicator while a graph waits on one rank, and closing its GPU at once,
// frees no memory that the kernel still uses; the kernel leaves. Readers were told which rank it waits for.
func TestGraphThatWaits(t *testing.T) {
	all := ranks(t, 2)
	reader, err := tape.Open(all[0].tape.Path())
	must(t, err)
	defer reader.Close()
	r := &all[0]
	b := memory(t, r, 100)
	must(t, errors.Join(r.stream.BeginCapture(), ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum)))
	graph, err := r.stream.EndCapture()
	must(t, err)
	x, err := graph.Instantiate()
	must(t, err)
	must(t, x.Launch(r.stream))
	for deadline := time.Now().Add(time.Minute); ; goruntime.Gosched() {
		if slices.ContainsFunc(reader.Slots(), func(s tape.Slot) bool {
			return s.ID == lifecycle.GraphsCommID(r.ID()) && s.Rank == 0 && s.Begun == 1 && s.Done == 0 && s.Wait == 1
		}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("readers are not told that the graph waits: %+v", reader.Slots())
		}
	}
	must(t, r.Abort(nil))
	must(t, r.gpu.Close())
	must(t, errors.Join(r.stream.Synchronize(), x.Destroy(), graph.Destroy()))
}
