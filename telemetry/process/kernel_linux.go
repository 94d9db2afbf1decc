package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clockMonotonic is the clock by which Go measures time.
const clockMonotonic = unix.CLOCK_MONOTONIC

// this is this machine's kernel.
var this = kernel{"/proc", "/sys/fs/cgroup", unix.PidfdOpen}

const pidfdNonblock = unix.PIDFD_NONBLOCK

// bootID is the boot id as the kernel writes it; empty if it is unknown.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(text)
}

// statWithoutProc is the stat of an existing process that /proc doesn't show.
func statWithoutProc(int) (stat, error) { return stat{state: '?'}, nil }

// ChildExit is how the child of a pidfd ended. It does not reap the child. The Exit is not Known if the child runs, was
// reaped, or is no child of this process.
func ChildExit(pidfd int) Exit {
	var info siginfo
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || info.signo != int32(unix.SIGCHLD):
			return Exit{}
		case info.code == cldKilled || info.code == cldDumped:
			return Exit{Known: true, Signal: syscall.Signal(info.status), Core: info.code == cldDumped}
		default:
			return Exit{Known: true, Code: int(info.status)}
		}
	}
}

// siginfo is what waitid(2) fills in on 64-bit machines; unix.Siginfo lacks the fields of a child's end.
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status      int32
	_                     [100]byte
}

// Values of siginfo.code.
const (
	cldKilled = 2
	cldDumped = 3
)

// pidfdExit is how the process of a pidfd ended, if the kernel tells: it tells the parent and, from Linux 6.15 on,
// everybody once the process is reaped.
func pidfdExit(pidfd int) Exit {
	if pidfd < 0 {
		return Exit{}
	}
	if exit := ChildExit(pidfd); exit.Known {
		return exit
	}
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		return ExitOfStatus(syscall.WaitStatus(info.Exit_code))
	}
	return Exit{}
}

// RunDelay is how long the threads of this process, all together, have waited for a processor, not counting threads
// that have ended; 0 if the kernel doesn't tell.
func RunDelay() (total time.Duration) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		text, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/schedstat")
		if f := bytes.Fields(text); len(f) == 3 {
			ns, _ := strconv.ParseInt(string(f[1]), 10, 64)
			total += time.Duration(ns)
		}
	}
	return total
}
