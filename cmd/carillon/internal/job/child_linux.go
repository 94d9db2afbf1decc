package job

import (
	"errors"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// attributes of the rank to be: the kernel kills it when its launcher ends, and gives a pidfd.
func (r *rank) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &r.pidfd}
}

// follow makes what tells that a rank that was started has ended: the kernel made it.
func (r *rank) follow() error {
	if r.pidfd < 0 {
		return errors.New("the kernel gives no descriptor of a process, as Linux does from 5.4 on")
	}
	r.exit = func() process.Exit { return process.ChildExit(r.pidfd) }
	return nil
}

// openGroup has a pidfd of each process of a group that runs, but for the first.
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
		case err != nil: // there are no pidfds here: poll waits its whole time for it
			fds = append(fds, -1)
		default:
			fds = append(fds, fd)
		}
	}
	return fds
}
