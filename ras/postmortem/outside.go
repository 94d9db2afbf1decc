package postmortem

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// turnTime is the longest time from one end to the next when somebody ends processes in turn.
const turnTime = 3 * time.Second

// sameSweep reports whether ends[i] belongs to one sweep with ends[i-1]: it came at most verdict.SweepTime later, or at
// most turnTime later and after a pause at most twice as long as the one before or behind it, as when somebody ends the
// processes one by one. A job that went on in between was not being ended.
func (r *Report) sameSweep(ends []time.Time, i int) bool {
	pause := ends[i].Sub(ends[i-1])
	turn := func(k int) time.Duration {
		if k < 1 || k >= len(ends) || ends[k].Sub(ends[k-1]) > turnTime || r.wentOn(ends[k-1]) {
			return 0
		}
		return ends[k].Sub(ends[k-1])
	}
	return pause <= verdict.SweepTime || turn(i) > 0 && pause <= 2*max(turn(i-1), turn(i+1))
}

// wentOn reports whether a process has completed operations in a communicator that it made after a time.
func (r *Report) wentOn(after time.Time) bool {
	return slices.ContainsFunc(r.procs, func(p *process) bool {
		return slices.ContainsFunc(p.members, func(m *member) bool {
			return m.Created > p.mono(after) && (m.Done > 0 || m.count > 0)
		})
	})
}

// sweep finds out whether a launcher that keeps no ledger, such as torchrun's, ended the job because a process had
// failed: the first process that failed was not told to end, and others were then ended by signals.
func (r *Report) sweep() {
	var first *process
	for _, p := range r.procs {
		e := &p.end
		if e.failed > 0 || e.signaled > 0 {
			return
		}
		if p.failed() && (first == nil || byEnd(p, first) < 0) {
			first = p
		}
	}
	if first == nil || first.end.exit.Signal != 0 || first.header.Terminated > 0 {
		return
	}
	for _, p := range r.procs {
		if asked(p.end.exit.Signal) && !p.end.launched {
			p.end.failed = p.mono(first.at(first.end.at))
		}
	}
}

// asked reports whether a signal is one by which people, launchers and schedulers end processes.
func asked(signal unix.Signal) bool {
	return signal == unix.SIGKILL || signal == unix.SIGTERM || signal == unix.SIGINT || signal == unix.SIGHUP
}

// terminated finds out whether the job got SIGTERM without its launcher, as from a scheduler: most of the processes
// that were left got it in one sweep. A signal to a few processes is the end of these alone.
func (r *Report) terminated() {
	var rest []*process
	var got []time.Time
	for _, p := range r.procs {
		launcher := p.end.failed > 0 && p.header.Terminated >= p.end.failed // it was the launcher's SIGTERM
		if p.header.Terminated > 0 && p.end.signaled == 0 && !launcher {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b *process) int {
		return a.at(a.header.Terminated).Compare(b.at(b.header.Terminated))
	})
	for _, p := range rest {
		got = append(got, p.at(p.header.Terminated))
	}
	for left := len(r.procs); len(rest) > 0; {
		n := 1
		for n < len(rest) && r.sameSweep(got, n) {
			n++
		}
		if 2*n > left {
			for _, p := range rest {
				p.end.signaled, p.end.signal = p.header.Terminated, "SIGTERM"
			}
			return
		}
		rest, got, left = rest[n:], got[n:], left-n
	}
}

// leastKilled is how many killed processes mean that the whole job was killed, although most others exited with the
// errors that they got before it was their turn: of many processes, two may be killed together for another reason.
const leastKilled = 3

// killed finds out whether the job was killed from outside without its launcher. Then all processes that were left
// ended in one sweep. The first and most others (or leastKilled in all) ended by the same signal, one that a person or
// a scheduler sends, none ended by another signal, and no launcher ended them because of a failure. All then count as
// told to end when the first one ended. A process that had left in order by then, or whose end the launcher noted and
// let the job go on, is none of them.
func (r *Report) killed() {
	var ended []*process
	for _, p := range r.procs {
		e := &p.end
		if e.at == 0 || !e.exit.Known || e.failed > 0 || e.signaled > 0 {
			return
		}
		ended = append(ended, p)
	}
	slices.SortStableFunc(ended, byEnd)
	var ends []time.Time
	for _, p := range ended {
		ends = append(ends, p.at(p.end.at))
	}
	for i := len(ended) - 1; i > 0; i-- {
		if !r.sameSweep(ends, i) {
			if !survived(ended[:i]) {
				return
			}
			ended = ended[i:]
			break
		}
	}
	first := slices.IndexFunc(ended, func(p *process) bool { return p.end.exit.Signal != 0 })
	if first < 0 || !survived(ended[:first]) {
		return
	}
	ended = ended[first:]
	by, killed := ended[0].end.exit.Signal, 0
	for _, p := range ended {
		switch p.end.exit.Signal {
		case 0:
		case by:
			killed++
		default:
			return
		}
	}
	if !asked(by) || killed < 2 || killed < leastKilled && 2*killed <= len(ended) {
		return
	}
	at := ended[0].at(ended[0].end.at)
	for _, p := range ended {
		p.end.signaled, p.end.signal = p.mono(at), unix.SignalName(by)
	}
}

// survived reports whether the job went on after the ends of some processes, as far as is known: they had left in
// order, or their launcher noted their ends, and not that it ended the job.
func survived(ended []*process) bool {
	return !slices.ContainsFunc(ended, func(p *process) bool {
		return !p.end.launched && (p.state() != StateClosed || p.end.exit.Failed())
	})
}

// singled tells whether a signal that people send ended the process, and not with its job, nor by its launcher because
// another rank had failed, as the launcher's ledger shows.
func (p *process) singled() bool {
	return asked(p.end.exit.Signal) && p.end.launched && p.end.signaled == 0 && !p.swept()
}
