package process

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended, as far as the kernel tells those who are not its parent.
type Exit struct {
	Known  bool           `json:"known"`
	Code   int            `json:"code,omitempty"`   // what it exited with; 0 if a signal ended it
	Signal syscall.Signal `json:"signal,omitempty"` // what ended it; 0 if it exited
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
		return "its process ended"
	case e.Signal != 0:
		return "it was ended by " + unix.SignalName(e.Signal)
	default:
		return fmt.Sprintf("it exited with %d", e.Code)
	}
}

// Failed tells whether it ended in any other way than with exit code 0.
func (e Exit) Failed() bool { return e.Signal != 0 || e.Code != 0 }

// ShellCode is what a shell makes of it: the code, or 128 and the signal.
func (e Exit) ShellCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// exitOf asks the kernel how a process ended: it tells the parent, and until that has asked, those who may trace it.
func (k kernel) exitOf(id ID, pidfd int) Exit {
	if exit := pidfdExit(pidfd); exit.Known {
		return exit
	}
	s, err := k.stat(id.PID)
	// To those who may not trace it the kernel shows a code of 0.
	if err != nil || s.start != id.StartTicks || !s.ended() || s.exit == 0 && os.Geteuid() != 0 {
		return Exit{}
	}
	return ExitOfStatus(syscall.WaitStatus(s.exit))
}

// ExitOfStatus is how a process ended of which wait(2) says status.
func ExitOfStatus(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Known: true, Signal: status.Signal(), Core: status.CoreDump()}
	}
	return Exit{Known: true, Code: status.ExitStatus()}
}
