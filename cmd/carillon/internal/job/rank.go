package job

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rank is one rank of the job on this host: a process, the group that it leads, and what reads their output.
type rank struct {
	number  int // in the world
	index   int // on this host
	cmd     *exec.Cmd
	pid     int
	pidfd   int
	started time.Time
	log     *logFile
	readers []*reader
	settled chan struct{} // closed when nothing of the rank is left

	mu     sync.Mutex
	reaped bool // its number, and its group's, may be anybody's

	// What follows belongs to the supervisor.
	ended *death
	sent  []unix.Signal // what the supervisor sent it to make it end
}

type streams struct {
	stdout, stderr *console
	log            *logFile
}

// start starts a rank. It must be called on the goroutine of Run, which is bound to its thread: the kernel kills the
// rank when the thread that started it ends.
func start(cfg *Config, index int, path, hostname string, stdin *os.File, to streams) (_ *rank, err error) {
	r := &rank{number: cfg.firstRank() + index, index: index, log: to.log, pidfd: -1, settled: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start rank %d: %w", r.number, err)
		}
	}()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outWrite.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		outRead.Close()
		return nil, err
	}
	defer errWrite.Close()

	r.cmd = &exec.Cmd{
		Path:   path,
		Args:   cfg.Program,
		Env:    cfg.environment(index, hostname),
		Stdout: outWrite,
		Stderr: errWrite,
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
			PidFD:     &r.pidfd,
		},
	}
	if stdin != nil {
		r.cmd.Stdin = stdin
	}
	r.started = time.Now()
	if err := r.cmd.Start(); err != nil {
		outRead.Close()
		errRead.Close()
		return nil, err
	}
	r.pid = r.cmd.Process.Pid
	if r.pidfd < 0 { // a kernel that can't give one at birth
		if r.pidfd, err = unix.PidfdOpen(r.pid, 0); err != nil {
			r.signal(unix.SIGKILL)
			r.reap()
			outRead.Close()
			errRead.Close()
			return nil, err
		}
	}
	r.readers = []*reader{startReader(outRead, index, to.stdout, to.log), startReader(errRead, index, to.stderr, to.log)}
	return r, nil
}

// signal sends a signal to the rank and to what it started. When nobody of them is left, nothing happens.
func (r *rank) signal(sig unix.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = unix.Kill(-r.pid, sig)
	}
}

// reap ends the kernel's memory of the dead rank.
func (r *rank) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.cmd.Wait() // how it ended is known from its pidfd
	r.reaped = true
}

// end asks the rank, and what it started, to end. A stopped process is woken, or it would not hear it.
func (r *rank) end(sig unix.Signal) {
	r.sent = append(r.sent, sig)
	r.signal(sig)
	r.signal(unix.SIGCONT)
}

// asked returns the supervisor's signal that ended the rank, or the last one before it ended otherwise; 0 is none.
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

// settle, called once the rank is dead, ends what it started and left behind, shows the last of its output, and
// reaps it. Its children get grace between SIGTERM and SIGKILL, or less when the supervisor kills the group.
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
	for _, reader := range r.readers {
		reader.finish()
	}
	r.log.close()
	r.reap()
	unix.Close(r.pidfd)
}
