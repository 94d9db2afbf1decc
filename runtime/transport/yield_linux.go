package transport

import "golang.org/x/sys/unix"

// yieldCPU offers the core to other processes. It keeps the scheduler's processor.
func yieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
