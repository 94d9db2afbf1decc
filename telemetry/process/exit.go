package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

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

// ChildExit is how the child behind a pidfd ended, and leaves it to be reaped. It is not Known while the child runs,
// and of a process that is no child of this one, or was reaped.
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

// exitOf asks the kernel how a process ended: it tells the parent, and until that has asked, those who may trace it.
func (k kernel) exitOf(id ID, pidfd int) Exit {
	if pidfd >= 0 {
		if exit := ChildExit(pidfd); exit.Known {
			return exit
		}
		// From Linux 6.15 on, the pidfd of a process whose parent has asked tells everybody.
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return exitOfStatus(syscall.WaitStatus(info.Exit_code))
		}
	}
	s, err := k.stat(id.PID)
	// To those who may not trace it the kernel shows a code of 0.
	if err != nil || s.start != id.StartTicks || !s.ended() || s.exit == 0 && os.Geteuid() != 0 {
		return Exit{}
	}
	return exitOfStatus(syscall.WaitStatus(s.exit))
}

func exitOfStatus(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Known: true, Signal: status.Signal(), Core: status.CoreDump()}
	}
	return Exit{Known: true, Code: status.ExitStatus()}
}
