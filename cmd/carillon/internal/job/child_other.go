//go:build !linux

package job

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// On systems other than Linux, a rank is reaped when it ends. If the launcher is killed, the ranks and the processes
// that they started live on.

func (r *rank) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// follow makes a pipe that reads as closed once the rank has ended.
func (r *rank) follow() error {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return err
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	exited := make(chan process.Exit, 1)
	r.pidfd, r.exit = ends[0], func() process.Exit { return <-exited }
	go func() {
		defer unix.Close(ends[1]) //nolint:errcheck // nothing is lost if it fails
		var exit process.Exit
		if state, err := r.cmd.Process.Wait(); err == nil {
			exit = process.ExitOfStatus(state.Sys().(syscall.WaitStatus))
		}
		exited <- exit
	}()
	return nil
}

func openGroup(int) []int { return nil }
