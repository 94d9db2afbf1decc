package job

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

type rank struct {
	number  int // in the world
	index   int // on this host
	cmd     *exec.Cmd
	pid     int
	pidfd   int                 // readable when the process has ended
	exit    func() process.Exit // returns how the process ended
	started time.Time
	log     *logFile
	outputs []*output     // of its standard output and its standard error
	pipes   []*rankPipe   // to outputs
	settled chan struct{} // closed when the rank and all processes that it started have ended

	mu     sync.Mutex
	reaped bool // pid may be reused

	// Used by the supervisor only.
	ended *death
	sent  []unix.Signal // the supervisor's signals that asked it to end
}

// start starts a rank, which reads stdin if that isn't nil. It is called on the goroutine of Run, which is bound to its
// thread, as Linux kills the rank when the thread that started it ends.
func (s *supervisor) start(index int, path, hostname string, stdin *os.File) (err error) {
	r := &rank{number: s.cfg.firstRank() + index, index: index, pidfd: -1, settled: make(chan struct{})}
	defer func() {
		if err != nil {
			r.log.close()
			err = fmt.Errorf("start rank %d: %w", r.number, err)
		}
	}()
	logFailed := func(err error) { s.stderr.say("%v; its log ends here", err) }
	if r.log, err = openLog(s.cfg.logPath(index), s.cfg.restarts > 0, logFailed); err != nil {
		return err
	}
	r.outputs = []*output{newOutput(index, s.stdout, r.log), newOutput(index, s.stderr, r.log)}
	r.cmd = &exec.Cmd{
		Path:        path,
		Args:        s.cfg.Program,
		Env:         s.cfg.environment(index, hostname),
		SysProcAttr: r.attributes(),
	}
	var ends []*os.File
	closeEnds := func() {
		for _, w := range ends {
			_ = w.Close()
		}
		ends = nil
	}
	defer closeEnds()
	for i, to := range []*io.Writer{&r.cmd.Stdout, &r.cmd.Stderr} {
		p, w, err := newPipe(r.outputs[i])
		if err != nil {
			return err
		}
		r.pipes, ends = append(r.pipes, p), append(ends, w)
		*to = w
	}
	if stdin != nil {
		r.cmd.Stdin = stdin
	}
	r.started = time.Now()
	if err := r.cmd.Start(); err != nil {
		return err
	}
	closeEnds() // the rank has them
	r.pid = r.cmd.Process.Pid
	if err := r.follow(); err != nil {
		r.signal(unix.SIGKILL)
		r.reap()
		return err
	}
	s.ranks = append(s.ranks, r)
	s.living++
	return nil
}

// signal sends a signal to the rank and to the processes that it started.
func (r *rank) signal(sig unix.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = unix.Kill(-r.pid, sig)
	}
}

// reap waits for the dead rank, shows the rest of its output and closes its log.
func (r *rank) reap() {
	r.mu.Lock()
	r.reaped = true
	r.mu.Unlock()
	_ = r.cmd.Wait() // exit has the status
	for _, p := range r.pipes {
		p.end(time.Now().Add(drain))
	}
	for i, o := range r.outputs {
		<-r.pipes[i].over
		o.finish()
	}
	r.log.close()
}

// end asks the rank, and the processes that it started, to end. SIGCONT makes stopped ones handle the signal.
func (r *rank) end(sig unix.Signal) {
	r.sent = append(r.sent, sig)
	r.signal(sig)
	r.signal(unix.SIGCONT)
}

// asked is the supervisor's signal that ended the rank, or else the last one that was sent; 0: none was sent.
func (r *rank) asked() unix.Signal {
	switch {
	case len(r.sent) == 0:
		return 0
	case slices.Contains(r.sent, r.ended.exit.Signal):
		return r.ended.exit.Signal
	default:
		return r.sent[len(r.sent)-1]
	}
}

// settle ends the processes that a dead rank has left behind, and reaps the rank. The processes get grace between
// SIGTERM and SIGKILL, or less if the supervisor kills the group.
func (r *rank) settle(grace time.Duration) {
	defer close(r.settled)
	if left := openGroup(r.pid); len(left) > 0 {
		r.signal(unix.SIGTERM)
		r.signal(unix.SIGCONT)
		deadline := time.Now().Add(grace)
		for _, fd := range left {
			poll([]int{fd}, max(time.Until(deadline), 0))
			unix.Close(fd)
		}
		r.signal(unix.SIGKILL)
	}
	r.reap()
	unix.Close(r.pidfd)
}
