package meet

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deaf is an address at which connections are neither accepted nor refused, as on a host that is cut off.
func deaf(t *testing.T) string {
	t.Helper()
	socket := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err := errors.Join(err, unix.SetNonblock(fd, true)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	listener := socket()
	if err := errors.Join(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(listener, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(listener)
	if err != nil {
		t.Fatal(err)
	}
	at := name.(*unix.SockaddrInet4)
	for range 4 { // these are not accepted, and fill the queue
		if err := unix.Connect(socket(), at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String()
}

// A context that ends before the other process could answer doesn't prove that the process is gone.
func TestNobodyIsLostBecauseTheContextEnds(t *testing.T) {
	t.Parallel() // it waits most of the time
	address := deaf(t)
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		lost, err := refuses(ctx, address)
		cancel()
		if lost || err == nil {
			t.Fatalf("lost is %t, %v; want the context's error", lost, err)
		}
	}
	if lost, err := refuses(t.Context(), address); !lost || err != nil {
		t.Errorf("lost is %t, %v after all the time that an answer is given", lost, err)
	}
}
