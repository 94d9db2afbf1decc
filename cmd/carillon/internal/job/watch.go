package job

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// death is a rank's end as the kernel reports it. The process is not reaped yet, so its pid can't be reused.
type death struct {
	rank *rank
	exit process.Exit
	at   time.Time
}

// exitTime bounds the wait for a rank that is already exiting. Closing files and freeing memory takes milliseconds.
const exitTime = time.Second

// watch reports the deaths of ranks in batches until all are dead. A death that caused another is in the same batch or
// in an earlier one, however busy the machine is: a batch has all ranks that were dead when watch looked and, if one of
// them failed, those that were exiting.
func watch(ranks []*rank) <-chan []death {
	deaths := make(chan []death)
	go func() {
		living := slices.Clone(ranks)
		for len(living) > 0 {
			var batch, more []death
			batch, living = collect(living, -1)
			if slices.ContainsFunc(batch, func(d death) bool { return d.exit.Failed() }) {
				more, living = collectExiting(living)
			}
			deaths <- append(batch, more...)
		}
	}()
	return deaths
}

// collectExiting waits for the ranks that are exiting. A rank's connections close before it counts as dead, so a rank
// that fails because of that may be dead first.
func collectExiting(ranks []*rank) (dead []death, living []*rank) {
	var ending []*rank
	for _, r := range ranks {
		if process.Exiting(r.pid) {
			ending = append(ending, r)
		} else {
			living = append(living, r)
		}
	}
	deadline := time.Now().Add(exitTime)
	for len(ending) > 0 && time.Now().Before(deadline) {
		var some []death
		some, ending = collect(ending, time.Until(deadline))
		dead = append(dead, some...)
	}
	return dead, append(living, ending...)
}

// collect waits until a rank is dead, or for timeout if that isn't negative, and separates the dead from the living.
func collect(ranks []*rank, timeout time.Duration) (dead []death, living []*rank) {
	fds := make([]int, len(ranks))
	for i, r := range ranks {
		fds[i] = r.pidfd
	}
	ready := poll(fds, timeout)
	at := time.Now()
	for i, r := range ranks {
		if ready[i] {
			dead = append(dead, death{rank: r, exit: r.exit(), at: at})
		} else {
			living = append(living, r)
		}
	}
	return dead, living
}

// poll waits until one of fds is readable, and returns which are. A pidfd is readable once its process has ended. A
// negative timeout means no timeout.
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
