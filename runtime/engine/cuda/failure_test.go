//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// memory allocates n zeros on a rank's device.
func memory(tb testing.TB, r *rank, n int) cuda.Buffer[int32] {
	tb.Helper()
	b, err := buffer(r, make([]int32, n))
	must(tb, err)
	return b
}

// TestMismatch checks that ranks that make different calls all get an error, and the communicator can be ended.
func TestMismatch(t *testing.T) {
	for _, other := range []func(ctx context.Context, r *rank, b cuda.Buffer[int32]) error{
		func(ctx context.Context, r *rank, b cuda.Buffer[int32]) error {
			return ccl.BroadcastOn(ctx, r.Comm, r.stream, b, b, 0)
		},
		func(ctx context.Context, r *rank, b cuda.Buffer[int32]) error {
			return ccl.AllReduceOn(ctx, r.Comm, r.stream, b.Slice(0, 7), b.Slice(0, 7), ccl.Sum)
		},
		func(ctx context.Context, r *rank, b cuda.Buffer[int32]) error {
			return ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Max)
		},
	} {
		all := ranks(t, 2)
		each(t, all, func(r *rank) error {
			b, ctx := memory(t, r, 8), t.Context()
			call := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum) }
			if r.Rank() == 1 {
				call = func() error { return other(ctx, r, b) }
			}
			if err := call(); err != nil {
				return err
			}
			err := r.Wait(ctx)
			if peer, ok := errors.AsType[*ccl.PeerError](err); !ok || peer.Code != lifecycle.CodeMismatch {
				return fmt.Errorf("rank %d got %w", r.Rank(), err)
			}
			if again := call(); again == nil {
				return fmt.Errorf("rank %d goes on", r.Rank())
			}
			return errors.Join(r.stream.Synchronize(), r.Destroy(ctx))
		})
	}
}

// TestMismatchBehind checks that calls behind one in which ranks differ don't hide the difference.
func TestMismatchBehind(t *testing.T) {
	all := ranks(t, 2)
	each(t, all, func(r *rank) error {
		ctx, b := t.Context(), memory(t, r, 7001)
		op := []ccl.Reduction{ccl.Sum, ccl.Max}[r.Rank()]
		if err := ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, op); err != nil {
			return err
		}
		for range 3 {
			err := ccl.AllReduceOn(ctx, r.Comm, r.stream, b.Slice(0, 1), b.Slice(0, 1), ccl.Sum)
			if _, peer := errors.AsType[*ccl.PeerError](err); err != nil && !peer {
				return err
			}
		}
		err := errors.Join(r.stream.Synchronize(), r.Wait(ctx))
		if peer, ok := errors.AsType[*ccl.PeerError](err); !ok || peer.Code != lifecycle.CodeMismatch || peer.Seq != 1 {
			return fmt.Errorf("rank %d got %w", r.Rank(), err)
		}
		return nil
	})
}

// TestAbortOfSeveral checks that of several queued calls, readers see the one that was waiting when they were aborted.
func TestAbortOfSeveral(t *testing.T) {
	all := ranks(t, 2)
	r := &all[0]
	b := memory(t, r, 1)
	const before, behind = 3, 4
	for range before {
		each(t, all, func(r *rank) error {
			b := memory(t, r, 1)
			return errors.Join(ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum), r.Wait(t.Context()))
		})
	}
	for range 1 + behind {
		must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	}
	f, err := tape.Open(r.tape.Path())
	must(t, err)
	defer f.Close()
	waits := func(s tape.Slot) bool { return s.Seq == before+1 && s.Wait == 1 }
	awaitSlot(t, f, 0, waits)
	if err := all[1].Abort(nil); err != nil {
		t.Error(err)
	}
	must(t, r.stream.Synchronize())
	awaitSlot(t, f, 0, waits)
}

// awaitSlot waits until a rank's slot on the tape has the expected state.
func awaitSlot(t *testing.T, f *tape.Reader, rank int, as func(s tape.Slot) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; goruntime.Gosched() {
		slots := f.Slots()
		if slices.ContainsFunc(slots, func(s tape.Slot) bool { return s.Rank == rank && as(s) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the tape shows %+v", slots)
		}
	}
}

// TestUnmappedTape checks that readers see what the GPU does even if it can't write onto the tape.
func TestUnmappedTape(t *testing.T) {
	r := &ranks(t, 1, "FAKECUDA_FAIL", "cuMemHostRegister_v2:1:1")[0]
	b := memory(t, r, 1)
	for range 3 {
		must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	}
	f, err := tape.Open(r.tape.Path())
	must(t, err)
	defer f.Close()
	awaitSlot(t, f, 0, func(s tape.Slot) bool {
		return s.Launched == 3 && s.Completed == 3 && s.Phase == tape.PhaseNone
	})
}

// TestAbort checks that a rank that waits on the GPU for one that aborts leaves, and is told why. A new communicator
// works.
func TestAbort(t *testing.T) {
	all := ranks(t, 3)
	each(t, all, func(r *rank) error {
		ctx := t.Context()
		if r.Rank() == 2 {
			return r.Abort(errors.New("had enough"))
		}
		for _, n := range []int{8, 4000} { // in packets, and staged: after the first
			b := memory(t, r, n)
			err := ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum)
			if _, peer := errors.AsType[*ccl.PeerError](err); err != nil && !peer {
				return err
			}
		}
		err := r.Wait(ctx)
		if peer, ok := errors.AsType[*ccl.PeerError](err); !ok || peer.Rank != 2 ||
			!strings.Contains(err.Error(), "had enough") {
			return fmt.Errorf("rank %d got %w", r.Rank(), err)
		}
		return errors.Join(r.stream.Synchronize(), r.Abort(nil))
	})
	var kinds []engine.DeviceKind
	for _, r := range all {
		kinds = append(kinds, r.gpu)
	}
	comms, err := runtime(t).InitAll(t.Context(), 3, ccl.WithDevice(kinds...))
	must(t, err)
	for i := range all {
		all[i].Comm = comms[i]
	}
	compare(t, all, []int{100})
}

// TestUnleftKernel checks that the kernel of an aborted communicator, which was behind other work on its stream, leaves
// when that is done, whichever communicator then has its place on the tape.
func TestUnleftKernel(t *testing.T) {
	all := ranks(t, 2)
	r := &all[0]
	b, goes := memory(t, r, 8), memory(t, r, 1)
	must(t, r.stream.WaitValue(goes.Pointer(), 1))
	must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	must(t, errors.Join(r.Abort(nil), all[1].Abort(nil)))
	comms, err := r.runtime.InitAll(t.Context(), 2, ccl.WithDevice(all[0].gpu, all[1].gpu))
	must(t, err)
	must(t, r.context.CopyToDevice(goes.Pointer(), kernels.Bytes([]int32{1})))
	must(t, r.stream.Synchronize())
	for i := range all {
		all[i].Comm = comms[i]
	}
	compare(t, all, []int{100})
}

// TestBusyDriver checks that kernels leave even while a thread blocks the driver until they have.
func TestBusyDriver(t *testing.T) {
	all := ranks(t, 2)
	r := &all[0]
	b := memory(t, r, 8)
	must(t, ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum))
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANON)
	must(t, err)
	_, err = r.context.Register(unsafe.Pointer(&page[0]), len(page))
	must(t, err)
	var g errgroup.Group
	g.Go(func() error { return r.context.Unregister(unsafe.Pointer(&page[0])) })
	for busy := false; !busy; { // until a call blocks
		answered := make(chan error)
		go func() { answered <- r.stream.Query() }()
		select {
		case err := <-answered:
			if !errors.Is(err, cuda.ErrNotReady) {
				t.Fatalf("the kernel waits, and its stream says %v", err)
			}
		case <-time.After(time.Second):
			busy = true
			g.Go(func() error { <-answered; return nil })
		}
	}
	must(t, errors.Join(all[1].Abort(nil), g.Wait(), syscall.Munmap(page)))
	if err := r.Wait(t.Context()); !errors.Is(err, ccl.ErrPeerAborted) {
		t.Errorf("the rank that waited got %v", err)
	}
}

// TestUnfinished checks that a Wait or Destroy whose context ends while the GPU waits for a rank reports that, and that
// a Destroy releases the other ranks.
func TestUnfinished(t *testing.T) {
	all := ranks(t, 2)
	devices := []*opener{{GPU: all[0].gpu}, {GPU: all[1].gpu}}
	comms, err := all[0].runtime.InitAll(t.Context(), 2, ccl.WithDevice(devices[0], devices[1]))
	must(t, err)
	all[0].Comm, all[1].Comm = comms[0], comms[1]
	b := memory(t, &all[0], 8)
	must(t, ccl.AllReduceOn(t.Context(), all[0].Comm, all[0].stream, b, b, ccl.Sum))
	for waits := false; !waits; goruntime.Gosched() {
		_, _, peer, running := devices[0].Current()
		waits = running && peer == 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const late = `all_reduce (operation 1) on communicator`
	if err := all[0].Wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, ccl.ErrCanceled) ||
		!strings.HasPrefix(err.Error(), late) {
		t.Errorf("a Wait while an operation waits is answered by %v", err)
	}
	err = all[0].Destroy(ctx)
	const waits = "all_reduce number 1, which waits for rank 1"
	if !errors.Is(err, ccl.ErrUnfinished) || !strings.Contains(err.Error(), waits) {
		t.Errorf("a Destroy while an operation waits is answered by %v", err)
	}
	must(t, all[0].stream.Synchronize())
	if err := all[0].Destroy(t.Context()); !errors.Is(err, ccl.ErrDestroyed) {
		t.Errorf("a second Destroy is answered by %v", err)
	}
	b = memory(t, &all[1], 8)
	err = ccl.AllReduceOn(t.Context(), all[1].Comm, all[1].stream, b, b, ccl.Sum)
	if err == nil {
		err = all[1].Wait(t.Context())
	}
	if _, ok := errors.AsType[*ccl.PeerError](err); !ok {
		t.Errorf("the other rank got %v", err)
	}
}

// TestAbortOnNoStream checks that an Abort ends work that waits on a stream that its caller has destroyed.
func TestAbortOnNoStream(t *testing.T) {
	all := ranks(t, 2)
	s, err := all[0].context.Stream(0)
	must(t, err)
	b := memory(t, &all[0], 8)
	must(t, ccl.AllReduceOn(t.Context(), all[0].Comm, s, b, b, ccl.Sum))
	must(t, s.Destroy())
	must(t, all[0].Abort(nil))
	must(t, all[0].context.Synchronize())
}

// TestSplit checks that derived communicators are on the same devices.
func TestSplit(t *testing.T) {
	all := ranks(t, 3)
	var buffers []cuda.Buffer[int32] // allocated first: the driver may wait for a GPU that ranks share
	for r := range all {
		b, err := buffer(&all[r], []int32{int32(r)})
		must(t, err)
		buffers = append(buffers, b)
	}
	each(t, all, func(r *rank) error {
		child, err := r.Split(t.Context(), r.Rank()%2, 0)
		if err != nil {
			return err
		}
		b := buffers[r.Rank()]
		err = errors.Join(ccl.AllReduceOn(t.Context(), child, r.stream, b, b, ccl.Sum), r.Destroy(t.Context()),
			child.Destroy(t.Context()))
		got, failed := read(r, b)
		if want := int32(2 - r.Rank()%2); len(got) != 1 || got[0] != want {
			return fmt.Errorf("rank %d has %v, want %d", r.Rank(), got, want)
		}
		return errors.Join(err, failed)
	})
}

// TestCallAllocatesNothing checks that a call on device memory, with the same operation as before, allocates no Go
// memory.
func TestCallAllocatesNothing(t *testing.T) {
	r := &ranks(t, 1)[0]
	b, ctx := memory(t, r, 8), t.Context()
	got := testing.AllocsPerRun(50, func() {
		if err := ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum); err != nil {
			t.Error(err)
		}
	})
	if got >= 1 { // the watcher may allocate now and then
		t.Errorf("%v allocations a call", got)
	}
	must(t, r.Wait(ctx))
}

// alone implements the links of a communicator of one rank.
type alone struct{ engine.Links }

func (alone) Rank() int                        { return 0 }
func (alone) Size() int                        { return 1 }
func (alone) Topology() transport.Topology     { return transport.Topology{Node: []int{0}} }
func (alone) FirstLost() (peer int, err error) { return -1, nil }
func (alone) Notify(transport.Notice)          {}
func (alone) Close()                           {}

// TestClosed checks that a Wait that is still running when the communicator has been ended reads no freed memory.
func TestClosed(t *testing.T) {
	dev, err := device(driver(t, 1), 0)
	must(t, err)
	r := on(t, dev)
	gather := func(mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }
	comm := engine.NewComm(lifecycle.CommID{}, "alone", alone{}, nil)
	d, err := r.gpu.Open(t.Context(), comm, gather, func(err error) { t.Error(err) })
	must(t, err)
	b := memory(t, &r, 8)
	op := engine.Op{
		Call: lifecycle.CallAllReduce, Send: b.Addresses(), Recv: b.Addresses(), Count: b.Len(),
		DataType: kernels.Int32, Peer: -1, Stream: r.stream,
	}
	if _, err := d.Enqueue(op.Call, 1, []engine.Op{op}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	must(t, d.Wait(t.Context()))
	if call, seq, _, ok := d.Current(); ok {
		t.Errorf("%s number %d is said to run on what is closed", call, seq)
	}
}

// untilIn returns when a goroutine is in a function that was called by another function.
func untilIn(callee, caller string) {
	for stacks := make([]byte, 1<<20); ; goruntime.Gosched() {
		for stack := range strings.SplitSeq(string(stacks[:goruntime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, callee) && strings.Contains(stack, caller) {
				return
			}
		}
	}
}

// TestWaitBesideAnEnd checks that a Wait is told at once that the communicator ends, even while the end waits for a
// busy stream.
func TestWaitBesideAnEnd(t *testing.T) {
	all := ranks(t, 1)
	r, device := &all[0], &opener{GPU: all[0].gpu}
	comms, err := r.runtime.InitAll(t.Context(), 1, ccl.WithDevice(device))
	must(t, err)
	flag, err := cuda.Alloc[uint32](r.context, 1)
	must(t, err)
	must(t, r.context.CopyToDevice(flag.Pointer(), make([]byte, 4)))
	must(t, r.stream.WaitValue(flag.Pointer(), 1))
	b := memory(t, r, 8)
	must(t, ccl.AllReduceOn(t.Context(), comms[0], r.stream, b, b, ccl.Sum))
	ended := make(chan error, 1)
	go func() { ended <- comms[0].Abort(nil) }()
	untilIn("(*Pause).Wait", "(*Queue).Left")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = device.Wait(ctx) // ended by the end or by ctx
	if len(ended) > 0 {
		t.Error("a Wait whose context has ended waited until the communicator had ended")
	}
	must(t, r.context.CopyToDevice(flag.Pointer(), []byte{1, 0, 0, 0}))
	must(t, r.stream.Synchronize())
	must(t, <-ended)
}
