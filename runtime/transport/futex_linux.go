package transport

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The futex operations, in the variant that works between processes.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWait sleeps until word is woken, if it still has the given value, or until the time is up. It may wake for no
// reason.
func futexWait(word *atomic.Uint32, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	// The result does not matter: the caller looks at the word in any case.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func futexWake(word *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1, 0, 0, 0)
}

// yieldCPU offers the core to other processes. It keeps the scheduler's processor.
func yieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
