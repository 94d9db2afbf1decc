package door

import (
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel end a connection if sent data stays unacknowledged for that long, in whole seconds.
func setUserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(d.Seconds()))
}
