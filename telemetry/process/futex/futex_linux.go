// Package futex puts threads to sleep until another process, or another thread, wakes them through a shared word of
// memory.
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

// All makes Wake wake every waiter.
const All = 1<<31 - 1

// Wait sleeps while *word is value, at most for limit. It may wake up early for any reason: the caller checks again.
// Only the kernel touches the word, so that a file cut short under its mapping is an error (EFAULT) and not a SIGBUS.
func Wait(word *uint32, value uint32, limit time.Duration) error {
	timeout := unix.NsecToTimespec(int64(limit))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno == 0 || errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ETIMEDOUT {
		return nil
	}
	return errno
}

// Wake wakes up to n of the threads that sleep on word. It doesn't give up its P, as it takes only a microsecond. The
// error is EFAULT if the word is no longer mapped.
func Wake(word *uint32, n int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
