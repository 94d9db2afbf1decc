package transport

import "golang.org/x/sys/unix"

// yieldCPU yields the core to other processes. It keeps the P of Go's scheduler.
func yieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
