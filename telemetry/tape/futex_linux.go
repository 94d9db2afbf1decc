package tape

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The futex operations, from linux/futex.h. Not the private ones: the waiters are in other processes.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWait sleeps while *word is value, at most for limit, or less for any reason: the caller looks again. The kernel
// alone touches the word, so that a file cut short under the mapping is an error (EFAULT) and not a SIGBUS.
func futexWait(word *uint32, value uint32, limit time.Duration) error {
	at, timeout := uintptr(unsafe.Pointer(word)), unix.NsecToTimespec(int64(limit))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, at, futexOpWait, uintptr(value), uintptr(unsafe.Pointer(&timeout)), 0,
		0)
	if errno == 0 || errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ETIMEDOUT {
		return nil
	}
	return errno
}

// futexWake wakes all that sleep on word. The error is EFAULT if the word isn't there any more.
func futexWake(word *uint32) error {
	const all = 1<<31 - 1
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, all, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
