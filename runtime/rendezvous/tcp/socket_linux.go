package tcp

import (
	"net"

	"golang.org/x/sys/unix"
)

// unackedTime is how long sent bytes may go unacknowledged, in milliseconds. Keep-alive probes are not sent while there are any,
// and the kernel's own patience with a host that vanished is a quarter of an hour.
const unackedTime = 20_000

// tune makes a connection notice that its other host has vanished.
func tune(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // the connection is closed already
	}
	_ = raw.Control(func(fd uintptr) {
		// Without it the loss is noticed later, no more: not worth failing for.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unackedTime)
	})
}
