package process

import "golang.org/x/sys/unix"

// macOS has no /proc, no pidfds and no pid namespaces: processes are looked up by sysctl, and watched by looking again.

// clockMonotonic is the clock by which Go measures time.
const clockMonotonic = unix.CLOCK_UPTIME_RAW

// this is the kernel that runs.
var this = kernel{"/proc", "/sys/fs/cgroup", func(int, int) (int, error) { return -1, unix.ENOSYS }}

const pidfdNonblock = 0

// bootID is the kernel's boot id as it writes it; empty if it doesn't tell.
func bootID() string {
	text, _ := unix.Sysctl("kern.bootsessionuuid")
	return text
}

// statWithoutProc is what sysctl says of a process that there is. Its start is in microseconds since 1970.
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

// pidfdExit is how the process of a pidfd ended; there are none.
func pidfdExit(int) Exit { return Exit{} }
