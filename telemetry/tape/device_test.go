package tape_test

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// say writes a word onto a page, as block b of a kernel does: word 0 is done, 1 is waits, and -1 of block 0 end.
func say(p *tape.DevicePage, b, word int, kernel uint32, phase, peer uint8, blocks uint16) {
	at := unsafe.Add(unsafe.Pointer(p), tape.DeviceWords+32*b+16*word)
	*(*[2]uint64)(at) = [2]uint64{
		uint64(kernel) | uint64(phase)<<32 | uint64(peer)<<40 | uint64(blocks)<<48, 7 | uint64(kernel+100)<<32,
	}
}

// For readers, an operation on a device is in flight until all blocks of its last kernel are done. The kernel shows
// which rank it waits for.
func TestDevicePage(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	host := w.Comm(tape.CommInfo{Name: "host", Rank: 0, Size: 2})
	c := w.DeviceComm(tape.CommInfo{Name: "gpu", Rank: 0, Size: 2})
	page := c.DevicePage()
	if page == nil || host.DevicePage() != nil {
		t.Fatal("the communicator on a device alone has a page of its own")
	}
	launch := func(seq uint64, kernel uint32) {
		n := c.Start(seq, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
		c.Launched(n, kernel)
		c.End(n, lifecycle.CodeOK)
	}
	shows := func(what string, inFlight, seq uint64, phase tape.Phase, wait int32) {
		t.Helper()
		for _, s := range r.Slots() {
			if s.Name == "gpu" && (s.Launched-s.Completed != inFlight || s.Seq != seq || s.Phase != phase ||
				s.Wait != wait) {
				t.Errorf("%s: %d in flight, number %d in phase %v, waits for %d; want %d, %d, %v and %d", what,
					s.Launched-s.Completed, s.Seq, s.Phase, s.Wait, inFlight, seq, phase, wait)
			}
		}
	}
	launch(1, 1)
	shows("launched", 1, 1, tape.PhaseQueued, -1)
	say(page, 0, 0, 1, 0, 0, 1)
	shows("done", 0, 1, tape.PhaseNone, -1)
	launch(2, 3) // of two kernels
	shows("the stream is busy", 1, 2, tape.PhaseQueued, -1)
	say(page, 0, 0, 2, 0, 0, 1)
	say(page, 1, 1, 3, 1, 1, 2)
	shows("the second kernel waits", 1, 2, tape.PhaseTransfer, 1)
	launch(3, 4)
	shows("another one behind it", 2, 2, tape.PhaseTransfer, 1)
	say(page, 0, 0, 3, 0, 0, 2)
	shows("one of two blocks is done", 2, 2, tape.PhaseTransfer, 1)
	say(page, 1, 1, 3, 0, 1, 2)
	say(page, 1, 0, 3, 0, 0, 2)
	shows("both are", 1, 3, tape.PhaseQueued, -1)
	for n := uint64(4); n < 60; n++ { // more than there are marks
		launch(n, uint32(n+1))
	}
	shows("a long queue", 57, 3, tape.PhaseQueued, -1)
	say(page, 0, 0, 60, 0, 0, 1)
	shows("all done", 0, 59, tape.PhaseNone, -1)
	say(page, 5, 1, 61, 2, 3, 9)
	say(page, 6, 1, 61, 3, 4, 9)
	if w, ok := page.Waits(); !ok || w != (tape.DeviceWord{61, 3, 4, 9, 7, 161}) {
		t.Errorf("block 6 waits: %v, %+v", ok, w)
	}
	say(page, 0, 0, 61, 0, 0, 9)
	if w, done := page.Newest(); done || page.Done() != 60 || w != (tape.DeviceWord{61, 0, 0, 9, 7, 161}) {
		t.Errorf("one of 9 blocks of 61 is done: %v, %+v", done, w)
	}
	say(page, 6, 0, 61, 0, 0, 9)
	for b := 1; b < 8; b++ {
		say(page, b, 0, 62, 0, 0, 8)
	}
	if _, done := page.Newest(); done || page.Done() != 60 {
		t.Errorf("block 8 of 61 isn't done: %v", done)
	}
	say(page, 8, 0, 61, 0, 0, 9)
	if w, done := page.Newest(); !done || page.Done() != 61 || w.Number != 61 {
		t.Errorf("all blocks of 61 are done, and all but the first of 62: %v, %+v", done, w)
	}
	say(page, 3, 1, 64, 2, 3, 9)
	if page.Done() != 63 {
		t.Errorf("64 waits, and %d is done", page.Done())
	}
	var same tape.DevicePage
	same.Set(page)
	if w, waits := same.Waits(); same.Done() != 63 || !waits || w != (tape.DeviceWord{64, 2, 3, 9, 7, 164}) {
		t.Errorf("a copy says that %d is done, and waits %v, %+v", same.Done(), waits, w)
	}
	var other tape.DevicePage
	say(&other, 0, 0, 65, 0, 0, 2)
	say(&other, 1, 0, 64, 0, 0, 2)
	say(&other, 5, 0, 60, 0, 0, 9)
	page.Merge(&other)
	if page.Done() != 64 {
		t.Errorf("one block of 65 is done, as another page has it, and %d is", page.Done())
	}
	say(&other, 1, 0, 65, 0, 0, 2)
	page.Merge(&other)
	say(page, 0, 0, 66, 0, 0, 1)
	page.Merge(&other)
	if page.Done() != 66 {
		t.Errorf("66 is done, which another page doesn't know, and %d is", page.Done())
	}
	c.Close()
	again := w.DeviceComm(tape.CommInfo{Name: "gpu", Rank: 0, Size: 2})
	if other := w.DeviceComm(tape.CommInfo{Name: "other"}); other.DevicePage() == nil || again.DevicePage() == nil {
		t.Error("two communicators on devices have no pages")
	}
	if more := w.DeviceComm(tape.CommInfo{Name: "more"}); more.DevicePage() != nil {
		t.Error("a third one has a page")
	}
}

// TestEnd: the reason why a kernel gave up is recorded once, apart from the waits of blocks.
func TestEnd(t *testing.T) {
	var page, same tape.DevicePage
	say(&page, 0, 1, 3, 2, 0, 1)
	if w, ok := page.End(); ok {
		t.Errorf("none has given up, and %+v", w)
	}
	say(&page, 0, -1, 3, 4, 1, 3)
	for _, p := range []*tape.DevicePage{&page, &same} {
		same.Set(&page)
		if w, ok := p.End(); !ok || w.Number != 3 || w.Phase != 4 || w.Peer != 1 {
			t.Errorf("%v, %+v", ok, w)
		}
	}
	if w, waits := same.Waits(); !waits || w.Phase != 2 {
		t.Errorf("waits: %v, %+v", waits, w)
	}
}

// TestKernelNumbers: old or missing words of blocks don't count, even when numbers wrap around.
func TestKernelNumbers(t *testing.T) {
	for _, kernel := range []uint32{5, 1<<31 - 1, 1<<31 + 4, 1<<32 - 100} {
		var page tape.DevicePage
		say(&page, 3, 1, 2, 0, 0, 4)
		say(&page, 0, 0, kernel, 0, 0, 1)
		if page.Done() != kernel {
			t.Errorf("%d is done, and the page says %d", kernel, page.Done())
		}
		say(&page, 0, 1, kernel+9, 2, 0, 1)
		if page.Done() != kernel+8 {
			t.Errorf("%d waits, and the page says that %d is done", kernel+9, page.Done())
		}
	}
}

// TestGraphs: operations that graphs launch have their own communicator, the same on all ranks, with the same root.
// Readers see its progress, and its waits.
func TestGraphs(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := w.DeviceComm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 2, Engine: "host+cuda"})
	g := c.Graphs()
	sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}
	shows := func(what string, launched, completed, begun, done, seq uint64, wait int32) {
		t.Helper()
		slots := r.Slots()
		at := slices.IndexFunc(slots, func(s tape.Slot) bool { return s.Name == "world (graphs)" })
		if at < 0 {
			t.Fatalf("%s: no slot among %+v", what, slots)
		}
		s := &slots[at]
		if s.Launched != launched || s.Completed != completed || s.Begun != begun || s.Done != done || s.Seq != seq ||
			s.Wait != wait || s.Rank != 1 || s.Parent != (lifecycle.CommID{1}) ||
			s.ID != lifecycle.GraphsCommID(s.Parent) || s.State != lifecycle.StateReady {
			t.Errorf("%s: %+v", what, s)
		}
	}
	shows("new", 0, 0, 0, 0, 0, -1)
	g.Passed(5, &sig)
	shows("passed 5", 5, 5, 5, 5, 5, -1)
	g.Passed(5, &sig)
	shows("again", 5, 5, 5, 5, 5, -1)
	n := g.Start(6, sig, 0)
	g.Phase(tape.PhaseTransfer)
	g.Wait(0)
	shows("6 waits", 6, 5, 6, 5, 6, 0)
	g.End(n, lifecycle.CodeOK)
	shows("6 is done", 6, 6, 6, 6, 6, -1)
	g.Passed(100, &sig)
	shows("passed 100", 100, 100, 100, 100, 100, -1)
	n = g.Start(101, sig, 0)
	shows("101 runs", 101, 100, 101, 100, 101, -1)
	g.End(n, lifecycle.CodeOK)
	shows("101 is done", 101, 101, 101, 101, 101, -1)
	g.Close()
	if slots := r.Slots(); len(slots) != 1 {
		t.Errorf("%d slots after the end", len(slots))
	}
	var kept []uint64
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if !ev.IsLife && ev.Op.Stage == tape.StageEnd {
			kept = append(kept, ev.Op.Seq)
		}
	}
	if !slices.Contains(kept, 100) {
		t.Errorf("operations %v are kept after the end, and not the last one that passed, 100", kept)
	}
	var none *tape.CommWriter
	none.Graphs().Passed(1, &sig) // switched off
}
