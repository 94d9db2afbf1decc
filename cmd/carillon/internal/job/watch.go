package job

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// death is a rank's end as the kernel tells it. The process is not reaped yet: its id, and that of its group, still
// mean it and nobody else.
type death struct {
	rank   *rank
	status status
	at     time.Time
}

// status is how a process ended: by a signal, or else with a code.
type status struct {
	signal unix.Signal
	core   bool // the kernel wrote a core file
	code   int
}

func (s status) failed() bool { return s.signal != 0 || s.code != 0 }

// exitCode is what a shell would make of it.
func (s status) exitCode() int {
	if s.signal != 0 {
		return 128 + int(s.signal)
	}
	return s.code
}

// watch reports the deaths of ranks in batches until all are dead, and then closes the channel. All who were dead when
// it looked come in one batch: when a rank's death was caused by another's, the other is in the same batch or in an
// earlier one, however busy the machine is.
func watch(ranks []*rank) <-chan []death {
	deaths := make(chan []death)
	go func() {
		defer close(deaths)
		alive := append([]*rank(nil), ranks...)
		for len(alive) > 0 {
			fds := make([]int, len(alive))
			for i, r := range alive {
				fds[i] = r.pidfd
			}
			ready := poll(fds, -1)
			at := time.Now()
			var batch []death
			var rest []*rank
			for i, r := range alive {
				if !ready[i] {
					rest = append(rest, r)
					continue
				}
				batch = append(batch, death{rank: r, status: statusOf(r.pidfd), at: at})
			}
			alive = rest
			if len(batch) > 0 {
				deaths <- batch
			}
		}
	}()
	return deaths
}

// poll waits until one of fds is readable, which for a pidfd means that its process ended, and says which are. A
// negative timeout waits for ever.
func poll(fds []int, timeout time.Duration) []bool {
	set := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		set[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	for {
		ms := -1
		if timeout >= 0 {
			ms = int((max(time.Until(deadline), 0) + time.Millisecond - 1) / time.Millisecond)
		}
		if _, err := unix.Poll(set, ms); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ready := make([]bool, len(fds))
	for i := range set {
		ready[i] = set[i].Revents != 0
	}
	return ready
}

// statusOf reads how the child behind a pidfd ended, and leaves it to be reaped.
func statusOf(pidfd int) status {
	var info childInfo
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, info.raw(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch info.code {
	case cldKilled, cldDumped:
		return status{signal: unix.Signal(info.status), core: info.code == cldDumped}
	default:
		return status{code: int(info.status)}
	}
}

// Values of childInfo.code, from the kernel's siginfo.h.
const (
	cldKilled = 2
	cldDumped = 3
)

// childInfo is the kernel's siginfo_t as SIGCHLD and waitid fill it on 64-bit machines. unix.Siginfo has the size, but
// not the fields of the union.
type childInfo struct {
	signo, errno, code, _ int32

	pid    int32
	uid    uint32
	status int32
	_      [100]byte
}

func (i *childInfo) raw() *unix.Siginfo { return (*unix.Siginfo)(unsafe.Pointer(i)) }

// openPidfd returns a pidfd of any process.
func openPidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("watch process %d: %w", pid, os.NewSyscallError("pidfd_open", err))
	}
	return fd, nil
}
