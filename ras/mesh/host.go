package mesh

import "errors"

// ErrGone means that a process ended.
var ErrGone = errors.New("mesh: the process has ended")

// Look is what a glance at a process shows.
type Look struct {
	// Stopped says that it exists and does not run, and Cause how: CauseSignal, CauseTraced or CauseFrozen.
	Stopped bool
	Cause   Cause
	// Turns counts how often its main thread was given a CPU: a process that two glances find stopped, with the same
	// count, did not run in between. A debugger that looks at every system call stops a process all the time.
	Turns uint64
}

// Host is the machine that a member runs on, as the kernel shows its processes.
type Host interface {
	// Watch has ended called once when the process ends, from another goroutine, unless stop was called before. It
	// returns ErrGone if the process has ended already. stop waits until ended is not running any more.
	Watch(pid int, startTicks uint64, ended func(Exit)) (stop func(), err error)
	// Look glances at a process. It returns ErrGone if it ended.
	Look(pid int, startTicks uint64) (Look, error)
	// Now is a clock, in nanoseconds, that all processes of the host share.
	Now() int64
}
