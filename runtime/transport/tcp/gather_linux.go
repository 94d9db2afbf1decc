package tcp

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gather is a message of several parts, reused so that sending does not allocate.
type gather struct {
	iov [MaxParts]unix.Iovec
	msg unix.Msghdr
}

// send sends the parts without waiting, and returns how many bytes it sent. more says that more data follows at once:
// the kernel may wait for it, to send both together.
func (g *gather) send(fd int, parts [][]byte, more bool) (int, error) {
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
	flags := unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	if more {
		flags |= unix.MSG_MORE
	}
	sent, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&g.msg)), uintptr(flags))
	clear(g.iov[:n])
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

const canSplice = true

// splice sends n bytes from a pipe without waiting, and returns how many bytes it sent.
func splice(fd int, pipe *os.File, n int) (sent int, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	closed := raw.Control(func(from uintptr) {
		var n64 int64
		n64, err = unix.Splice(int(from), nil, fd, nil, n, unix.SPLICE_F_NONBLOCK)
		sent = int(n64)
	})
	if closed != nil {
		return 0, closed
	}
	return sent, err
}
