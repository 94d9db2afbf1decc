package job

import (
	"errors"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// attributes make the kernel kill the rank when its launcher ends, and return a pidfd.
func (r *rank) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &r.pidfd}
}

// follow prepares exit for a rank that was started.
func (r *rank) follow() error {
	if r.pidfd < 0 {
		return errors.New("this kernel has no pidfds, which Linux has since 5.4")
	}
	r.exit = func() process.Exit { return process.ChildExit(r.pidfd) }
	return nil
}

// openGroup opens a pidfd of each running process of a group, except its leader.
func openGroup(pgid int) []int {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	var fds []int
	for _, p := range all {
		group, err := unix.Getpgid(p.PID)
		if err != nil || group != pgid || p.PID == pgid || !process.Running(p.PID) {
			continue
		}
		fd, err := unix.PidfdOpen(p.PID, 0)
		switch {
		case errors.Is(err, unix.ESRCH): // it has just ended
		case err != nil: // without a pidfd, poll waits for its whole timeout
			fds = append(fds, -1)
		default:
			fds = append(fds, fd)
		}
	}
	return fds
}
