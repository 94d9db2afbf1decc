package tcp

import (
	"testing"
)

// flood sends until the kernel accepts no more, and returns how much it accepted. The peer must not receive.
func flood(t *testing.T, c *Conn) (sent int) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for {
		n, err := c.TrySend([][]byte{buf}, false)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return sent
		}
		sent += n
	}
}

// stop makes a user receive nothing until resume is called.
func stop(u *recorder) (resume func()) {
	stopped := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = stopped
	return func() {
		u.mu.Lock()
		u.stopped = nil
		u.mu.Unlock()
		close(stopped)
	}
}

// The kernels still deliver data that a process sent before it ended. Its loss is reported after all that data.
func TestLostAfterTheLastByte(t *testing.T) {
	conns, users := connect(t, listen(t))
	resume := stop(users[1])
	sent := flood(t, conns[0])
	if sent <= 2*readSize {
		t.Fatalf("only %d bytes were taken", sent)
	}
	conns[0].shut()
	resume()
	if err := awaitLoss(t, users[1]); err == nil {
		t.Error("a process that ended counts as closed in order")
	}
	if got := len(users[1].received()); got != sent {
		t.Errorf("%d bytes came of %d", got, sent)
	}
}
