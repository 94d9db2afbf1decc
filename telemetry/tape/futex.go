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

// futexWait sleeps while *word is value, at most for limit. It returns early for any reason: who calls it looks again. It is told
// the word's address only and never touches it, so a file that was cut short under the mapping is an error (EFAULT) and not a SIGBUS.
func futexWait(word *uint32, value uint32, limit time.Duration) error {
	timeout := unix.NsecToTimespec(int64(limit))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno == 0 || errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ETIMEDOUT {
		return nil
	}
	return errno
}

// futexWake wakes all who sleep on word. The error is EFAULT if the word isn't there any more.
func futexWake(word *uint32) error {
	const all = 1<<31 - 1
	if _, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, all, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
