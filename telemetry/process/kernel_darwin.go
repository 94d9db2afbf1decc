package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// macOS has no /proc, no pidfds and no pid namespaces: processes are looked up by sysctl, and watched by polling.

// clockMonotonic is the clock by which Go measures time.
const clockMonotonic = unix.CLOCK_UPTIME_RAW

// this is this machine's kernel.
var this = kernel{"/proc", "/sys/fs/cgroup", func(int, int) (int, error) { return -1, unix.ENOSYS }}

const pidfdNonblock = 0

// bootID is the boot id as the kernel writes it; empty if it is unknown.
func bootID() string {
	text, _ := unix.Sysctl("kern.bootsessionuuid")
	return text
}

// statWithoutProc is the stat of an existing process, by sysctl. Its start is in microseconds since 1970.
func statWithoutProc(pid int) (stat, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return stat{state: '?'}, nil
	}
	s := stat{state: 'R', start: uint64(info.Proc.P_starttime.Nano()) / 1000}
	const stopped, zombie = 4, 5 // SSTOP and SZOMB of sys/proc.h
	switch info.Proc.P_stat {
	case stopped:
		s.state = 'T'
	case zombie:
		s.state = 'Z'
	}
	return s, nil
}

// pidfdExit knows nothing: there are no pidfds.
func pidfdExit(int) Exit { return Exit{} }

// RunDelay is how long the threads of this process have waited for a processor; macOS doesn't tell.
func RunDelay() time.Duration { return 0 }
