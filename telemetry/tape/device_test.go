package tape_test

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// say writes the first half of a word onto a page, as block b of a kernel does: word 0 is done, 1 is waits.
func say(p *tape.DevicePage, b, word int, kernel uint32, phase, peer uint8, blocks uint16) {
	at := unsafe.Add(unsafe.Pointer(p), tape.DeviceWords+32*b+16*word)
	(*atomic.Uint64)(at).Store(uint64(kernel) | uint64(phase)<<32 | uint64(peer)<<40 | uint64(blocks)<<48)
}

// An operation that a device does is in flight, for readers, until all blocks of its last kernel are done. The kernel
// says whom it waits for.
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
	for n := uint64(4); n < 60; n++ { // more than there is room for marks
		launch(n, uint32(n+1))
	}
	shows("a long queue", 57, 3, tape.PhaseQueued, -1)
	say(page, 0, 0, 60, 0, 0, 1)
	shows("all done", 0, 59, tape.PhaseNone, -1)
	c.Close()
	again := w.DeviceComm(tape.CommInfo{Name: "gpu", Rank: 0, Size: 2})
	if other := w.DeviceComm(tape.CommInfo{Name: "other"}); other.DevicePage() == nil || again.DevicePage() == nil {
		t.Error("two communicators on devices have no pages")
	}
	if more := w.DeviceComm(tape.CommInfo{Name: "more"}); more.DevicePage() != nil {
		t.Error("a third one has a page")
	}
}
