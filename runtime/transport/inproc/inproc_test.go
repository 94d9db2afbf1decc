package inproc

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// The conformance suite runs over this transport in package fabric's tests. These tests cover what is particular to it.

// both makes a connected pair and the waiters of its sides.
func both() (a, b *Conn, wa, wb *transport.Waiter) {
	a, b = Pair(0, 1)
	wa, wb = transport.NewWaiter(2, transport.Patience{}), transport.NewWaiter(2, transport.Patience{})
	a.Attach(wa)
	b.Attach(wb)
	return a, b, wa, wb
}

func peek(t *testing.T, c *Conn) []byte {
	t.Helper()
	w, err := c.Peek()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func send(t *testing.T, c *Conn, p []byte) int {
	t.Helper()
	n, err := c.TrySend(p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLargeMessagesAreNotCopied(t *testing.T) {
	a, b, _, _ := both()
	small, large := make([]byte, 64), make([]byte, 1<<20)
	if n := send(t, a, small); n != len(small) {
		t.Fatalf("%d bytes of a small message were taken", n)
	}
	if n := send(t, a, large); n != 0 {
		t.Fatalf("%d bytes of a large message were taken before the peer had read any", n)
	}
	w := peek(t, b)
	if len(w) != len(small) || &w[0] == &small[0] {
		t.Fatalf("the first window has %d bytes; is it a copy: %t", len(w), &w[0] != &small[0])
	}
	b.Release(len(w))
	w = peek(t, b)
	if len(w) != len(large) || &w[0] != &large[0] {
		t.Fatalf("the second window has %d bytes and is not the sender's memory", len(w))
	}
	b.Release(1 << 19)
	if n := send(t, a, large); n != 1<<19 {
		t.Fatalf("%d bytes were reported after half was released", n)
	}
	if w = peek(t, b); &w[0] != &large[1<<19] {
		t.Fatal("the rest begins at the wrong place")
	}
	b.Release(len(w))
	if n := send(t, a, large[1<<19:]); n != 1<<19 {
		t.Fatalf("%d bytes were reported after all was released", n)
	}
	if w = peek(t, b); len(w) != 0 {
		t.Fatalf("%d bytes are left", len(w))
	}
}

// A message may be offered in part first, and then whole, when the sender knows more of it.
func TestALoanMayGrow(t *testing.T) {
	a, b, _, _ := both()
	for _, more := range []int{8, 64 << 10} {
		large := make([]byte, 128<<10)
		large[100<<10] = 1
		send(t, a, large[:64<<10])
		b.Release(len(peek(t, b)))
		done := send(t, a, large[:64<<10+more])
		for got := 64 << 10; got < 64<<10+more; {
			w := peek(t, b)
			got += len(w)
			b.Release(len(w))
			done += send(t, a, large[done:64<<10+more])
		}
		if done != 64<<10+more {
			t.Errorf("%d bytes were taken, want %d", done, 64<<10+more)
		}
	}
}

// The ring of a direction is made on first use, so that the many pairs that never communicate cost little.
func TestRingsAreLazy(t *testing.T) {
	a, b, _, _ := both()
	send(t, a, make([]byte, 8))
	if a.out.ring == nil || b.out.ring != nil {
		t.Error("want a ring in the direction that was used, and none in the other")
	}
}

func TestNoticeBeforeAttach(t *testing.T) {
	a, b := Pair(0, 1)
	notice := transport.Notice{Code: lifecycle.CodeAbandoned, Culprit: 0}
	a.Notify(notice)
	w := transport.NewWaiter(2, transport.Patience{})
	b.Attach(w)
	var got *transport.NoticeError
	if peer, err := w.FirstLost(); peer != 0 || !errors.As(err, &got) || got.Notice != notice {
		t.Errorf("lost %d: %v", peer, err)
	}
}

// A rank that has peeked at a window, taken nothing and gone to sleep does not delay its peer's Close.
func TestIdleEndsReading(t *testing.T) {
	a, b, _, wb := both()
	wb.OnRest(b.Rest)
	send(t, a, make([]byte, 1<<20))
	peek(t, b)
	if !a.out.reading.Load() {
		t.Fatal("a reader is not marked")
	}
	_ = wb.Idle(t.Context())
	wb.Ring()
	_ = wb.Idle(t.Context())
	if a.out.reading.Load() {
		t.Fatal("a sleeper counts as a reader")
	}
}

// A rank that forgot its window delays Close, on both sides, only for a while.
func TestForgottenWindow(t *testing.T) {
	a, b, _, _ := both()
	send(t, a, make([]byte, 1<<20))
	peek(t, b)
	begun := time.Now()
	_ = a.Close()
	if took := time.Since(begun); took < peerPatience {
		t.Errorf("Close waited for %v only, while the peer was reading", took)
	}
	_ = b.Close()
	if a.out.reading.Load() {
		t.Error("the reader's own Close did not end its reading")
	}
	begun = time.Now()
	_ = a.Close()
	if took := time.Since(begun); took > peerPatience/2 {
		t.Errorf("Close waited for %v, while nobody was reading", took)
	}
}

// What the peer has released counts as sent, even after the peer has left.
func TestReleasedBeforeTheCloseCounts(t *testing.T) {
	a, b, _, _ := both()
	large := make([]byte, 64<<10)
	send(t, a, large)
	b.Release(len(peek(t, b)))
	_ = b.Close()
	if n, err := a.TrySend(large); n != len(large) || err != nil {
		t.Errorf("%d bytes of %d were taken; %v", n, len(large), err)
	}
	if n, err := a.TrySend(large); n != 0 || err == nil {
		t.Errorf("%d bytes were sent to a peer that has left", n)
	}
}

func TestRevokedLoanIsNotShown(t *testing.T) {
	a, b, _, _ := both()
	send(t, a, make([]byte, 8))
	send(t, a, make([]byte, 1<<20))
	_ = a.Close()
	b.Release(len(peek(t, b))) // what was copied is still there
	if w, err := b.Peek(); len(w) != 0 || err == nil {
		t.Errorf("the peer sees %d bytes of memory that was taken back; error %v", len(w), err)
	}
}
