package process

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pollTime is the interval at which a process without a pidfd is looked up.
const pollTime = 100 * time.Millisecond

// goneError is ErrGone with how the process ended.
type goneError struct{ exit Exit }

func (e *goneError) Error() string        { return ErrGone.Error() + ": " + e.exit.String() }
func (e *goneError) Is(target error) bool { return target == ErrGone }

// ExitOf is how the process of an ErrGone ended; not Known if err doesn't say.
func ExitOf(err error) Exit {
	if gone := (*goneError)(nil); errors.As(err, &gone) {
		return gone.exit
	}
	return Exit{}
}

// Watch calls ended once when the process ends, from another goroutine. The error is ErrGone, for ExitOf, if the
// process has already ended. stop ends the watch: if the process has ended by then, stop waits until ended has
// returned; else ended won't be called. stop may be called twice.
//
// The process must be of this pid namespace. Go's runtime poller waits for its pidfd, which costs nothing until the
// process ends. Without pidfds, /proc is read ten times a second.
func (id ID) Watch(ended func(Exit)) (stop func(), err error) { return this.watch(id, ended) }

func (k kernel) watch(id ID, ended func(Exit)) (stop func(), err error) {
	fd, err := k.pidfd(id.PID, pidfdNonblock)
	if errors.Is(err, unix.ESRCH) {
		return nil, &goneError{}
	}
	if err != nil {
		fd = -1
	}
	file := os.NewFile(uintptr(fd), "pidfd") // nil without a pidfd, which its methods allow
	// Another process may have got the pid before the pidfd was opened; from now on none can.
	if k.ended(id) {
		exit := k.exitOf(id, fd)
		_ = file.Close()
		return nil, &goneError{exit}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer file.Close() //nolint:errcheck // nothing is lost if it fails
		if exit, over := k.await(id, file, quit); over {
			ended(exit)
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() { close(quit) })
		_ = file.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine; fails if the goroutine has ended
		<-done
	}, nil
}

// await waits until the process has ended or quit was closed; over tells whether it has ended. To end the wait, close
// quit and then set the pidfd's read deadline to the past.
func (k kernel) await(id ID, pidfd *os.File, quit <-chan struct{}) (exit Exit, over bool) {
	if conn, err := pidfd.SyscallConn(); err == nil {
		look := func(fd uintptr) bool {
			if over = readable(int(fd)); over {
				exit = k.exitOf(id, int(fd))
			}
			return over
		}
		if conn.Read(look) != nil {
			_ = conn.Control(func(fd uintptr) { look(fd) }) // fails only if the file is closed
		}
		return exit, over
	}
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for quitting := false; !k.ended(id); {
		if quitting {
			return Exit{}, false
		}
		select {
		case <-tick.C:
		case <-quit:
			quitting = true
		}
	}
	return k.exitOf(id, -1), true
}

// readable tells whether a pidfd's process has ended.
func readable(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
