package job

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/process"
)

type phase int

const (
	running   phase = iota
	lingering       // a rank failed; the others may end by themselves
	ending          // all were asked to end, or were killed
)

// supervisor starts, watches and ends the ranks of one job. Its fields are for the goroutine of Run.
type supervisor struct {
	cfg *Config
	*screen
	ledger     ledger
	secret     *os.File // while ranks run; nil: the secret is in their environment
	outputLost error

	ranks  []*rank
	living int
	first  *death   // the failure that ended the job
	gone   []*death // failures after which the job went on
	began  time.Time

	phase   phase
	stopped bool // stop was called: a signal, ctx or lost output ended the job, not a failure of a rank
	timer   *time.Timer
	typed   *os.File // passes terminal input on to rank 0; nil: none
}

func newSupervisor(cfg *Config, out *screen) *supervisor {
	s := &supervisor{cfg: cfg, screen: out, timer: time.NewTimer(0)}
	s.timer.Stop()
	if cfg.TapesAt != "" {
		s.ledger.dir = filepath.Join(cfg.TapesAt, cfg.Name)
	}
	return s
}

func (s *supervisor) startAll(path, hostname string) error {
	stdin := s.cfg.Stdin
	if term.IsTerminal(stdin) {
		// A rank leads a process group of its own, and the kernel stops a background process that reads a terminal.
		read, typed, err := os.Pipe()
		if err != nil {
			return err
		}
		defer read.Close()
		stdin, s.typed = read, typed
		go func() { // runs until the process or the terminal's input ends
			_, _ = io.Copy(typed, s.cfg.Stdin)
			typed.Close()
		}()
	}
	s.writeSecret()
	s.began, s.ledger.began = time.Now(), process.Monotonic()
	s.ledger.note(process.Entry{Rank: -1}) // tells this run from earlier ones in the same folder
	for i := range s.cfg.Ranks {
		if err := s.start(i, path, hostname, stdin); err != nil {
			return err
		}
		stdin = nil // only rank 0 reads it
	}
	return nil
}

func (s *supervisor) loop(ctx context.Context) {
	deaths := watch(s.ranks)
	done := ctx.Done()
	for s.living > 0 {
		select {
		case <-s.ledger.again():
			s.ledger.write()
		case batch := <-deaths:
			s.died(batch)
		case sig := <-s.cfg.Signals:
			s.signalled(sig)
		case s.outputLost = <-s.lost:
			s.stop(process.EndedByOutput, unix.SIGTERM)
		case <-s.timer.C:
			if s.phase == lingering {
				s.end(process.EndedByFailure, unix.SIGTERM)
			} else {
				s.kill()
			}
		case <-done:
			done = nil
			s.stop("SIGTERM", unix.SIGTERM)
		}
	}
	s.settle(done)
	s.removeSecret()
	s.timer.Stop()
	s.typed.Close() // nil has nothing to close
}

// settle waits until the processes that the ranks left behind have ended and their output is taken, and still passes
// signals on to them. done is the end of the job's context.
func (s *supervisor) settle(done <-chan struct{}) {
	for _, r := range s.ranks {
		for waiting := true; waiting; {
			select {
			case <-r.settled:
				waiting = false
			case sig := <-s.cfg.Signals:
				s.signalled(sig)
			case <-done:
				done = nil
				s.hurry()
			}
		}
	}
}

func (s *supervisor) died(batch []death) {
	for i := range batch {
		d := &batch[i]
		d.rank.ended = d
		s.ledger.note(process.Entry{Rank: d.rank.number, PID: d.rank.pid, Exit: d.exit})
		s.living--
		go d.rank.settle(s.cfg.Grace)
	}
	if s.first == nil && !s.goOn(batch) {
		s.first = cause(batch)
	}
	if s.first != nil && s.phase == running && s.living > 0 {
		s.phase = lingering
		s.timer.Reset(s.cfg.Linger)
	}
}

// goOn tells whether the job goes on after a batch of deaths: enough ranks are running or have ended without failure,
// and the job is not ending. If so, it records the failures.
func (s *supervisor) goOn(batch []death) bool {
	if s.cfg.MinRanks == 0 || s.phase != running {
		return false
	}
	left := s.remaining()
	if len(left) < s.cfg.MinRanks {
		return false
	}
	for i := range batch {
		d := &batch[i]
		if !d.exit.Failed() {
			continue
		}
		s.gone = append(s.gone, d)
		o := s.outcome(d.rank)
		s.stderr.say("rank %d (pid %d)%s%s after %s; the job goes on with %s", o.Rank, o.PID, o.verb(false), o.how(),
			words.Round(o.After), words.Ranks(left))
	}
	return true
}

func (s *supervisor) remaining() (numbers []int) {
	for _, r := range s.ranks {
		if r.ended == nil || !r.ended.exit.Failed() {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}

// cause is the first failure of a batch, or nil if none failed. Ranks killed by a signal come before ranks that exited.
func cause(batch []death) (first *death) {
	for i := range batch {
		d := &batch[i]
		if d.exit.Failed() && (first == nil || first.exit.Signal == 0 && d.exit.Signal != 0) {
			first = d
		}
	}
	return first
}

func (s *supervisor) signalled(sig os.Signal) {
	switch num := sig.(unix.Signal); num {
	case unix.SIGINT, unix.SIGTERM:
		name, again := unix.SignalName(num), s.phase >= ending
		if !again {
			s.remark("%s: forwarded to the ranks, which have %s to end; another one kills them", name,
				words.Round(s.cfg.Grace))
		}
		s.stop(name, num)
		if again {
			s.kill()
		}
	case unix.SIGPIPE:
		// The console receives the error of the write.
	default:
		s.ledger.note(process.Entry{Rank: -1, Forwarded: unix.SignalName(num)})
		for _, r := range s.ranks {
			if r.ended == nil {
				r.signal(num)
			}
		}
	}
}

// stop ends the job from outside. From now on, its output waits only a short time for somebody to read it: a rank that
// waits for that could not end.
func (s *supervisor) stop(why string, sig unix.Signal) {
	s.stopped = true
	s.hurry()
	s.end(why, sig)
}

// end sends all living ranks a signal to end, and kill follows after the grace period. why is for the ledger.
func (s *supervisor) end(why string, sig unix.Signal) {
	if s.phase >= ending {
		return
	}
	s.phase = ending
	s.ledger.note(process.Entry{Ended: why})
	for _, r := range s.ranks {
		if r.ended == nil {
			r.end(sig)
		}
	}
	s.timer.Reset(s.cfg.Grace)
}

func (s *supervisor) kill() {
	s.phase = ending
	for _, r := range s.ranks {
		if r.ended == nil {
			r.sent = append(r.sent, unix.SIGKILL)
		}
		r.signal(unix.SIGKILL)
	}
}

func (s *supervisor) result() *Result {
	res := &Result{Took: time.Since(s.began), OutputLost: s.outputLost}
	for _, r := range s.ranks {
		res.Outcomes = append(res.Outcomes, s.outcome(r))
	}
	for _, d := range s.gone {
		res.Lost = append(res.Lost, &res.Outcomes[d.rank.index])
	}
	if s.first != nil {
		res.First = &res.Outcomes[s.first.rank.index]
	}
	return res
}

func (s *supervisor) outcome(r *rank) Outcome {
	return Outcome{Rank: r.number, PID: r.pid, Exit: r.ended.exit, Asked: r.asked(), After: r.ended.at.Sub(r.started)}
}

func (s *supervisor) sayUp() {
	took, c := time.Since(s.began), s.cfg
	var ranks, pids []int
	for _, r := range s.ranks {
		ranks, pids = append(ranks, r.number), append(pids, r.pid)
	}
	where := ""
	switch {
	case c.Hosts > 1:
		where = fmt.Sprintf(" of %d", c.worldSize())
	case c.Nodes > 1:
		where = fmt.Sprintf(" on %d simulated nodes", c.Nodes)
	}
	meet := fmt.Sprintf("%s:%d", c.MasterAddr, c.MasterPort)
	if c.Rendezvous != "" {
		meet = userInfo.ReplaceAllString(c.Rendezvous, "//")
	}
	s.remark("job %s: %s%s up in %s (pid %s), meeting at %s",
		c.Name, words.Ranks(ranks), where, words.Round(took), words.Numbers(pids), meet)
	if !c.Verbose {
		return
	}
	for i, r := range s.ranks {
		p := c.placeOf(i)
		line := fmt.Sprintf("rank %d: pid %d, node %d, local rank %d of %d", r.number, r.pid, p.node, p.local, p.size)
		if path := c.logPath(i); path != "" {
			line += ", log " + path
		}
		s.remark("%s", line)
	}
}

// userInfo is the part of a URL that may have a password.
var userInfo = regexp.MustCompile(`//[^/]*@`)

// sayDown says how the job ended: failures always, success with Verbose.
func (s *supervisor) sayDown(r *Result) {
	if r.OutputLost != nil {
		s.stderr.say("the job was ended, as its output can't be shown: %v", r.OutputLost)
	}
	switch {
	case r.First != nil, len(r.Lost) > 0:
		s.stderr.say("%s", r)
	case s.cfg.Verbose:
		s.remark("%s", r)
	}
}

func (s *supervisor) remark(format string, args ...any) {
	if !s.cfg.Quiet {
		s.stderr.say(format, args...)
	}
}
