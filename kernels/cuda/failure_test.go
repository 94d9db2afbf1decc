package cuda

import (
	"bytes"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
)

// small makes ranks with the given number of int32 for a kernel of any family.
func (h *host) small(k Kernel, ranks, count int) []ExchangeArgs {
	h.reset()
	all := h.communicator(ranks, HalfFor(k, ranks, 4*count))
	for r := range all {
		a := &all[r]
		a.Send, a.Recv = h.alloc(4*count), h.alloc(4*count*ranks)
		a.Bytes, a.RecvStride = uint64(4*count), uint64(4*count)
		a.copyByMessages()
	}
	return all
}

// TestAbsentRank checks that a waiting rank reports which rank it waits for, continues when that rank arrives, and
// leaves when the communicator is aborted.
func TestAbsentRank(t *testing.T) {
	const ranks, count = 3, 8
	h := newHost(t)
	for _, k := range []Kernel{OneShot, OneShotLL128, TwoShot, TwoShotLL128, Reduce, Copy, CopyLL128, Exchange} {
		all := h.small(k, ranks, count)
		function, g := Function(k, kernels.Int32, ranks), grid(k, &all[0].Args, 4*count)
		h.launch(function, g, all[0], all[1])
		for _, p := range all[:2] {
			h.await(func() bool { // at first it may wait for the other one
				_, w := h.words(p.Args)
				return w.Phase == Data && w.Peer == 2 && w.Number == 1 && int(w.Blocks) == g.Blocks
			})
		}
		h.launch(function, g, all[2])
		h.join()
		for _, p := range all {
			if done, waits := h.words(p.Args); done.Number != 1 || waits.Phase != Done {
				t.Fatalf("%s: rank %d's words are %+v and %+v after all came", function, p.Rank, done, waits)
			}
		}
		h.launch(function, g, all[0], all[1])
		for _, p := range all[:2] {
			h.waitsFor(p.Args, Data)
		}
		h.put(all[0].Abort, []byte{1, 0, 0, 0})
		h.join()
		for _, p := range all[:2] {
			if _, waits := h.words(p.Args); waits.Number != 2 || waits.Phase != Aborted {
				t.Fatalf("%s: rank %d's word is %+v after an abort", function, p.Rank, waits)
			}
		}
	}
}

// abortable makes two ranks, in place, that access each other's buffers, each with its own abort word.
func abortable(h *host, k Kernel, bytes int) []ExchangeArgs {
	h.reset()
	all := h.communicator(2, 0)
	for r := range all {
		p := &all[r]
		p.Abort, p.Bytes = h.alloc(4), uint64(bytes)
		if k == Reduce {
			p.Send = h.alloc(bytes)
			p.Recv = p.Send
			p.reach(direct, SendBuffer, RecvBuffer)
			continue
		}
		p.Send, p.Recv, p.RecvStride = h.alloc(bytes), h.alloc(2*bytes), uint64(bytes)
		p.copyByMessages()
		p.reach(direct, SendBuffer)
	}
	return all
}

func (h *host) abort(p ExchangeArgs) { h.put(p.Abort, []byte{1, 0, 0, 0}) }

// TestAbortBeforeMeeting checks that a rank that arrives later, perhaps much later, doesn't meet a rank that has left.
func TestAbortBeforeMeeting(t *testing.T) {
	h := newHost(t)
	for _, k := range []Kernel{Reduce, Exchange} {
		all := abortable(h, k, 200)
		function, g := Function(k, kernels.Int32, 2), grid(k, &all[0].Args, 200)
		h.launch(function, g, all[0])
		h.waitsFor(all[0].Args, Data)
		h.abort(all[0])
		h.join()
		used := bytes.Repeat([]byte{7}, 200) // used for something else
		h.put(all[0].Send, used)
		h.launch(function, g, all[1])
		var waits Word
		h.await(func() bool { _, waits = h.words(all[1].Args); return h.running() == 0 || waits.Number == 1 })
		if waits.Phase != Data || waits.Peer != 0 {
			t.Errorf("%s: a rank has met one that has left, and says %+v", function, waits)
		}
		if got := h.get(all[0].Send, 200); !bytes.Equal(got, used) {
			t.Errorf("%s: the buffer of a rank that has left was written", function)
		}
		h.abort(all[1])
		h.join()
	}
}

// stay is the longest time that a rank that leaves early waits for others, as in direct.h.
const stay = 500 * time.Millisecond

// TestAbortAmongOthers checks that a rank that leaves early waits for another one that may be accessing its buffers,
// but not forever.
func TestAbortAmongOthers(t *testing.T) {
	h := newHost(t)
	for _, k := range []Kernel{Reduce, Exchange} {
		for _, end := range []string{"leaves", "takes back", "dies"} {
			took := h.abortAmongOthers(t, k, end)
			for range 9 { // the machine may be busy
				if end != "dies" && took >= stay {
					took = h.abortAmongOthers(t, k, end)
				}
			}
			if (took >= stay) != (end == "dies") {
				t.Errorf("kernel %d: a rank waited %v for one that %s", k, took, end)
			}
		}
	}
}

// abortAmongOthers aborts rank 0 in its first round, in which rank 1 accesses its buffers until it does something, and
// returns how long rank 0 took to leave.
func (h *host) abortAmongOthers(t *testing.T, k Kernel, end string) time.Duration {
	t.Helper()
	all := abortable(h, k, 200)
	a := &all[0]
	g := grid(k, &a.Args, 200)
	enter := func(b Buffer, at uint64, flag uint32) { h.enter(*a, g, b, at, flag) }
	enter(SendBuffer, all[1].Send, 1<<8|a.Signature)
	enter(RecvBuffer, all[1].Recv, 1<<8|a.Signature)
	h.launch(Function(k, kernels.Int32, 2), g, *a)
	h.await(func() bool { _, w := h.words(a.Args); return h.running() == 0 || w.Phase == Results })
	if h.running() == 0 {
		t.Fatalf("kernel %d: a rank doesn't wait for another one to leave", k)
	}
	began := h.abortStays(t, *a)
	switch end {
	case "leaves":
		for block := range g.Blocks {
			h.put(leaveAt(a.Args, block, 1), encode(uint32(1)))
		}
	case "takes back":
		enter(RecvBuffer, 0, 0)
	}
	h.join()
	return time.Since(began)
}

// abortStays aborts a rank, and checks that it stays while another one accesses its buffers. It returns when that
// began.
func (h *host) abortStays(t *testing.T, a ExchangeArgs) (began time.Time) {
	t.Helper()
	began = time.Now()
	h.abort(a)
	h.waitsFor(a.Args, Aborted)
	for h.running() > 0 && time.Since(began) < stay/5 {
	}
	if took := time.Since(began); h.running() == 0 && took < stay {
		t.Errorf("a rank left after %v, with another one at its buffers", took)
	}
	return began
}

// enter writes what rank 1 would write when it enters round 1 of a meeting: an entry for each block of a rank.
func (h *host) enter(a ExchangeArgs, g Grid, b Buffer, at uint64, flag uint32) {
	for block := range g.Blocks {
		i := ((MaxBlocks+block)*MaxRanks+1)*NumBuffers + int(b)
		h.put(controlAt(a.Args)+uint64(entries+i*vector), encode([]uint32{uint32(at), flag, uint32(at >> 32), flag}))
	}
}

// TestAbortWhilePushing checks that a rank that has met another one, and gets no data from it, leaves when it is
// aborted and the other one can't write to its buffer any more.
func TestAbortWhilePushing(t *testing.T) {
	h := newHost(t)
	all := abortable(h, Reduce, 200)
	a, other := all[0], all[1]
	a.reach(pushed, SendBuffer, RecvBuffer)
	g := grid(Reduce, &a.Args, 200)
	h.enter(a, g, SendBuffer, other.Send, 1<<8|a.Signature)
	h.enter(a, g, RecvBuffer, other.Recv, 1<<8|a.Signature)
	h.launch(Function(Reduce, kernels.Int32, 2), g, a)
	h.waitsFor(a.Args, Data)
	h.await(func() bool { // its data is in the other rank's window
		got := h.get(controlAt(other.Args)+flags, lanes*slots*4)
		return !bytes.Equal(got, make([]byte, len(got)))
	})
	h.abortStays(t, a)
	h.enter(a, g, RecvBuffer, 0, 0) // rank 1 takes its entry back
	h.join()
	if _, w := h.words(a.Args); w.Phase != Aborted {
		t.Errorf("it left with the word %+v", w)
	}
}

// TestMismatch checks that ranks whose calls differ detect that by the flags, and leave. Later kernels leave, too, and
// hide nothing.
func TestMismatch(t *testing.T) {
	const ranks, count = 2, 8
	h := newHost(t)
	for _, k := range []Kernel{OneShot, OneShotLL128, TwoShot, TwoShotLL128, Reduce, Copy, CopyLL128, Exchange} {
		h.reset()
		all := h.communicator(ranks, HalfFor(k, ranks, 4*count))
		for r := range all {
			all[r].Send, all[r].Recv, all[r].Bytes = h.alloc(4*count), h.alloc(4*count*ranks), 4*count
			all[r].Signature = uint32(r + 1)
			all[r].copyByMessages()
		}
		function, g := Function(k, kernels.Int32, ranks), grid(k, &all[0].Args, 4*count)
		h.launch(function, g, all...)
		h.join()
		for _, p := range all {
			if _, w := h.words(p.Args); w.Phase != Mismatch || int(w.Peer) != 1-int(p.Rank) {
				t.Fatalf("%s: rank %d says %+v", function, p.Rank, w)
			}
			h.put(p.Words-16, make([]byte, 16+32*MaxBlocks))
		}
		h.launch(function, g, all...)
		h.join()
		for _, p := range all {
			if _, w := h.words(p.Args); w != (Word{}) {
				t.Fatalf("%s: behind that, rank %d says %+v", function, p.Rank, w)
			}
		}
	}
}

// TestClosed checks that a rank that waits for one which has closed its end gives up, unless that rank had sent
// everything needed.
func TestClosed(t *testing.T) {
	const ranks, count, closed = 3, 8, 2
	h := newHost(t)
	for _, k := range []Kernel{OneShot, OneShotLL128, TwoShot, TwoShotLL128, Reduce, Copy, CopyLL128, Exchange} {
		all := h.small(k, ranks, count)
		function, g := Function(k, kernels.Int32, ranks), grid(k, &all[0].Args, 4*count)
		h.launch(function, g, all[closed])
		h.waitsFor(all[closed].Args, Data)
		end := func() {
			for _, p := range all[:closed] {
				h.put(p.Window[0]+uint64(Closing(int(p.Half), closed)), encode(uint32(1)))
			}
		}
		if k == Copy || k == CopyLL128 || k == OneShot || k == OneShotLL128 { // the rank has sent everything
			end()
		}
		h.launch(function, g, all[:closed]...)
		h.join()
		end()
		for _, p := range all {
			if done, waits := h.words(p.Args); done.Number != 1 || waits.Phase != Done {
				t.Fatalf("%s: rank %d's words are %+v and %+v after all came", function, p.Rank, done, waits)
			}
		}
		h.launch(function, g, all[:closed]...)
		h.join()
		for _, p := range all[:closed] {
			if _, w := h.words(p.Args); w.Number != 2 || w.Phase != Closed || w.Peer != closed {
				t.Fatalf("%s: rank %d says %+v of one that has closed its end", function, p.Rank, w)
			}
		}
	}
}

// TestLateMismatch checks that the reason is recorded when ranks give up, even if other threads of the block were
// waiting for the rank whose call differs, and have reported that.
func TestLateMismatch(t *testing.T) {
	const ranks, bytes, late = 3, 240, 2
	h := newHost(t)
	for range 10 {
		h.reset()
		all := h.communicator(ranks, 0)
		for r := range all {
			a := &all[r]
			a.Send, a.Recv, a.Bytes = h.alloc(bytes), h.alloc(bytes), bytes
			a.reach(direct, SendBuffer, RecvBuffer)
		}
		all[late].Signature++
		g := grid(Reduce, &all[0].Args, bytes)
		g.Threads = 8 // more than one thread per entry
		function := Function(Reduce, kernels.Int32, ranks)
		h.launch(function, g, all[0], all[1])
		for _, a := range all[:late] {
			h.await(func() bool { _, w := h.words(a.Args); return w.Phase == Data && w.Peer == late })
		}
		h.launch(function, g, all[late])
		h.join()
		for r, a := range all {
			if _, w := h.words(a.Args); w.Phase != Mismatch {
				t.Fatalf("rank %d says %+v", r, w)
			}
		}
	}
}

// TestMismatchOfKernels checks that if one of two ranks is in LL and the other is not, the first one detects it. The
// other leaves when the communicator is aborted.
func TestMismatchOfKernels(t *testing.T) {
	const ranks, count = 2, 8
	h := newHost(t)
	for _, large := range []Kernel{OneShotLL128, TwoShotLL128, CopyLL128, Reduce, Exchange} {
		h.reset()
		all := h.communicator(ranks, HalfFor(large, ranks, 4*count))
		for r := range all {
			a := &all[r]
			a.Send, a.Recv, a.Bytes = h.alloc(4*count), h.alloc(4*count*ranks), 4*count
			a.Signature = uint32(r + 1)
			a.copyByMessages()
		}
		h.launch(Function(OneShot, kernels.Int32, ranks), grid(OneShot, &all[0].Args, 4*count), all[0])
		h.launch(Function(large, kernels.Int32, ranks), grid(large, &all[1].Args, 4*count), all[1])
		if w := h.waitsFor(all[0].Args, Mismatch); w.Peer != 1 {
			t.Fatalf("rank 0 says %+v", w)
		}
		h.put(all[0].Abort, []byte{1, 0, 0, 0})
		h.join()
	}
}

// TestTells checks that a launch that doesn't tell the host records in the rank's state that it is done.
func TestTells(t *testing.T) {
	const ranks, count = 2, 8
	h := newHost(t)
	all := h.communicator(ranks, HalfFor(OneShot, ranks, 4*count))
	for r := range all {
		a := &all[r]
		a.Send, a.Recv, a.Bytes, a.Tells = h.alloc(4*count), h.alloc(4*count), 4*count, 0
	}
	h.launch(Function(OneShot, kernels.Int32, ranks), grid(OneShot, &all[0].Args, 4*count), all...)
	h.join()
	for _, p := range all {
		a := p.Args
		if done, _ := h.words(a); done.Number != 0 {
			t.Errorf("rank %d tells %+v", p.Rank, done)
		}
		a.Words = a.State + Ended
		if done, _ := h.words(a); done.Number != 1 || done.Operation != a.Operation {
			t.Errorf("rank %d's state has %+v", p.Rank, done)
		}
	}
}
