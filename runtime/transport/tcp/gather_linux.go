package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// gather is a message of several parts, kept so that sending does not allocate.
type gather struct {
	iov [MaxParts]unix.Iovec
	msg unix.Msghdr
}

// send sends the parts without waiting, and returns how many bytes went out.
func (g *gather) send(fd int, parts [][]byte) (int, error) {
	n := 0
	for _, p := range parts[:min(len(parts), MaxParts)] {
		if len(p) > 0 {
			g.iov[n].Base = &p[0]
			g.iov[n].SetLen(len(p))
			n++
		}
	}
	g.msg.Iov = &g.iov[0]
	g.msg.SetIovlen(n)
	sent, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&g.msg)),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	clear(g.iov[:n])
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}
