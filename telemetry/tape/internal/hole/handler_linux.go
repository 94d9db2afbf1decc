//go:build linux && (amd64 || arm64)

package hole

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is what rt_sigaction(2) takes: as in the kernel, not as in C libraries.
type sigaction struct {
	handler        uintptr
	flags          uint64
	restorer, mask uint64
}

// previous is the handler of all other faults: Go's.
var previous uintptr //nolint:unused // the handler reads it

// handlerPC is the handler's entry point. The handler's name in Go would refer to a wrapper, which needs a goroutine.
func handlerPC() uintptr

// installHandler puts the handler before Go's, with the same settings: on the signal stack, with all signals blocked.
// Go installs its handler once, when the program starts, and os/signal leaves SIGBUS alone.
func installHandler() {
	var act sigaction
	if setAction(nil, &act) != 0 || act.handler <= 1 { // SIG_DFL, SIG_IGN: Go's is not there
		return
	}
	previous = act.handler
	act.handler = handlerPC()
	setAction(&act, nil)
}

func setAction(act, old *sigaction) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(act)),
		uintptr(unsafe.Pointer(old)), unsafe.Sizeof(act.mask), 0, 0)
	return errno
}
