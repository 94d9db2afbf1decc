package tcp

import (
	"testing"
	"time"
)

// flood sends until neither the peer's ring nor a kernel takes any more, and returns how much that was.
func flood(t *testing.T, c *Conn) (sent int) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for {
		n, err := c.TrySend(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return sent
		}
		sent += n
	}
}

// A process that has ended leaves behind what kernels have taken of it: more than the ring shows. When all of it is
// read, that is known.
func TestInFlightUntilTheLastByte(t *testing.T) {
	conns, waiters := connect(t, listen(t))
	sent := flood(t, conns[0])
	if sent <= ringSize {
		t.Fatalf("only %d bytes were taken", sent)
	}
	if conns[1].InFlight() {
		t.Error("a peer that lives counts as gone")
	}
	conns[0].shut()
	_ = awaitLoss(t, waiters[1])
	got, ctx := 0, within(t, 20*time.Second)
	for {
		more := conns[1].InFlight()
		window, err := conns[1].Peek()
		switch {
		case err != nil:
			if more && conns[1].InFlight() {
				t.Errorf("there is an end (%v), and more in flight", err)
			}
			if got != sent {
				t.Errorf("%d bytes came of %d", got, sent)
			}
			return
		case !more && len(window) == 0:
			t.Fatalf("nothing is in flight after %d bytes, of %d, and there is no end", got, sent)
		}
		got += len(window)
		conns[1].Release(len(window))
		if len(window) > 0 {
			waiters[1].Active()
		} else if err := waiters[1].Idle(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
