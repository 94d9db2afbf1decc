package e2e

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// FreeAddr is the loopback address with a FreePort.
func FreeAddr(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + FreePort(t)
}

// FreePort is a free TCP port for a program whose port must be set. Until the test ends, no program that asks for any
// port gets it: a socket is bound to it, but doesn't listen. A program that asks for this port gets it, if it sets
// SO_REUSEADDR, as Go programs do, or SO_REUSEPORT.
func FreePort(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fd)
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, reuse := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, reuse, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(at.(*unix.SockaddrInet4).Port)
}
