// Package futex puts threads to sleep until another process, or another thread, wakes them: through a word of memory
// that they share.
package futex

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations, from linux/futex.h. Not the private ones: the waiters are in other processes.
const (
	opWait = 0
	opWake = 1
)

// All has Wake wake every waiter.
const All = 1<<31 - 1

// Wait sleeps while *word is value, at most for limit, or less for any reason: the caller looks again. The kernel alone
// touches the word, so that a file cut short under its mapping is an error (EFAULT) and not a SIGBUS.
func Wait(word *uint32, value uint32, limit time.Duration) error {
	timeout := unix.NsecToTimespec(int64(limit))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno == 0 || errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ETIMEDOUT {
		return nil
	}
	return errno
}

// Wake wakes up to n of those that sleep on word. It keeps the scheduler's processor, as it takes a microsecond. The
// error is EFAULT if the word isn't there any more.
func Wake(word *uint32, n int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
