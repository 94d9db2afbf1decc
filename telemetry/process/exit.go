package process

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended, as far as the kernel shows it to processes other than its parent.
type Exit struct {
	Known  bool           `json:"known"`
	Code   int            `json:"code,omitempty"`   // the exit code; 0 if a signal ended it
	Signal syscall.Signal `json:"signal,omitempty"` // that ended it; 0 if it exited
	Core   bool           `json:"core,omitempty"`   // the kernel wrote a core file
}

// String is "exit status 3", "killed", or "not known how".
func (e Exit) String() string {
	switch {
	case !e.Known:
		return "not known how"
	case e.Signal != 0:
		return e.Signal.String()
	default:
		return fmt.Sprintf("exit status %d", e.Code)
	}
}

// How is a sentence: "it exited with 1", "it was ended by SIGKILL".
func (e Exit) How() string {
	switch {
	case !e.Known:
		return "it is not known how"
	case e.Signal != 0:
		return "it was ended by " + unix.SignalName(e.Signal)
	default:
		return fmt.Sprintf("it exited with %d", e.Code)
	}
}

// Failed tells whether a signal ended it, or an exit code other than 0.
func (e Exit) Failed() bool { return e.Signal != 0 || e.Code != 0 }

// Told tells whether it was ended by a signal with which people, launchers and schedulers ask a program to end.
func (e Exit) Told() bool {
	return e.Signal == unix.SIGTERM || e.Signal == unix.SIGINT || e.Signal == unix.SIGHUP || e.Signal == unix.SIGQUIT
}

// Killed tells whether it was ended by the signal that no program can handle.
func (e Exit) Killed() bool { return e.Signal == unix.SIGKILL }

// ShellCode is the exit code that a shell reports: the process's code, or 128 plus the signal.
func (e Exit) ShellCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// exitOf asks the kernel how a process ended. Until the process is reaped, its stat shows that to processes that may
// trace it. The doc of pidfdExit says which processes see it by a pidfd, and when.
func (k kernel) exitOf(id ID, pidfd int) Exit {
	s, err := k.stat(id.PID)
	// A process that may not trace it sees a code of 0.
	if err != nil || s.start != id.StartTicks || !s.ended() || s.exit == 0 && os.Geteuid() != 0 {
		return pidfdExit(pidfd) // asked last, as the process may be reaped at any moment
	}
	return ExitOfStatus(syscall.WaitStatus(s.exit))
}

// ExitOfStatus is how a process ended, by its status from wait(2).
func ExitOfStatus(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Known: true, Signal: status.Signal(), Core: status.CoreDump()}
	}
	return Exit{Known: true, Code: status.ExitStatus()}
}
