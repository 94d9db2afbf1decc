package door

import (
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel end a connection on which something that was sent stays unanswered for that long, in
// whole seconds.
func setUserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(d.Seconds()))
}
