package job

import (
	"errors"
	"os"
	"strconv"
	"syscall"

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
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var fds []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == pgid {
			continue
		}
		if group, err := unix.Getpgid(pid); err != nil || group != pgid || !process.Running(pid) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
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
