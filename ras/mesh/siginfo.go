package mesh

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid(2) fills in: the kernel's siginfo_t, of which a child's end needs the first fields.
type siginfo struct {
	signo, errno, code int32
	_                  int32
	child, uid, status int32
	_                  [100]byte
}

const (
	childExited = 1 // CLD_EXITED
	childDumped = 3 // CLD_DUMPED; CLD_KILLED is 2
)

func (s *siginfo) raw() *unix.Siginfo { return (*unix.Siginfo)(unsafe.Pointer(s)) }

func (s *siginfo) pid() int {
	if s.signo != int32(unix.SIGCHLD) {
		return 0
	}
	return int(s.child)
}

func (s *siginfo) exit() Exit {
	if s.code >= childExited+1 && s.code <= childDumped {
		return Exit{Known: true, Signal: syscall.Signal(s.status)}
	}
	return Exit{Known: true, Code: int(s.status)}
}
