//go:build linux && cgo

package cuda

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOfferThatIsClosed checks that a slow rank that connects gets nothing once the offer is closed, when the
// descriptor's number may be reused for another file, and that the close doesn't wait for it.
func TestOfferThatIsClosed(t *testing.T) {
	fd, err := unix.Dup(int(os.Stdout.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOffer(fd, nil)
	if err != nil {
		t.Fatal(err)
	}
	address := o.address()
	slow, err := net.Dial("unix", socketName(address[:16]))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()                //nolint:errcheck // a test's
	quick, err := takeWindow(address) // ensures that the slow one was accepted before
	if err != nil {
		t.Fatal(err)
	}
	if err := os.NewFile(uintptr(quick), "taken").Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	o.close()
	if took := time.Since(began); took > offerTime/2 {
		t.Errorf("the close took %s", took)
	}
	_, _ = slow.Write(append(address[16:], askWindow))
	if n, err := io.ReadFull(slow, make([]byte, 1)); err == nil {
		t.Errorf("the slow one got %d byte and the descriptor", n)
	}
	if _, err := takeWindow(address); err == nil {
		t.Error("the offer is taken after its close")
	}
}
