package postmortem

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// turnTime is the longest time from one end to the next when somebody ends processes in turn.
const turnTime = 3 * time.Second

// sweeps sorts processes by the times at which they were ended, and divides them into sweeps. A process belongs to the
// sweep of the one before it if it was ended at most verdict.SweepTime later, or at most turnTime later and after a
// pause at most twice as long as the one before or behind it, as when somebody ends the processes one by one. A job
// that went on in between was not being ended.
func (r *Report) sweeps(procs []*process, end func(*process) time.Time) (all [][]*process) {
	slices.SortStableFunc(procs, func(a, b *process) int { return end(a).Compare(end(b)) })
	pause := func(i int) time.Duration { return end(procs[i]).Sub(end(procs[i-1])) }
	turn := func(i int) time.Duration {
		if i < 1 || i >= len(procs) || pause(i) > turnTime || r.wentOn(end(procs[i-1])) {
			return 0
		}
		return pause(i)
	}
	for i, p := range procs {
		if i > 0 && (pause(i) <= verdict.SweepTime || turn(i) > 0 && turn(i) <= 2*max(turn(i-1), turn(i+1))) {
			all[len(all)-1] = append(all[len(all)-1], p)
		} else {
			all = append(all, []*process{p})
		}
	}
	return all
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
	failures := r.failures()
	if len(failures) == 0 || failures[0].end.exit.Signal != 0 || failures[0].header.Terminated > 0 ||
		slices.ContainsFunc(r.procs, func(p *process) bool { return p.end.failed > 0 || p.end.signaled > 0 }) {
		return
	}
	first := failures[0].at(failures[0].end.at)
	for _, p := range r.procs {
		if asked(p.end.exit.Signal) && !p.end.launched {
			p.end.failed = p.mono(first)
		}
	}
}

// asked reports whether a signal is one by which others end a process, such as people, launchers and schedulers: any
// but those that a program gets for what it does itself.
func asked(signal unix.Signal) bool {
	own := []unix.Signal{
		unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, unix.SIGPIPE,
		unix.SIGALRM, unix.SIGXCPU, unix.SIGXFSZ,
	}
	return signal != 0 && !slices.Contains(own, signal)
}

// terminated finds out whether the job got SIGTERM without its launcher, as from a scheduler: most of the processes
// that were left got it in one sweep. A signal to a few processes is the end of these alone.
func (r *Report) terminated() {
	var told []*process
	for _, p := range r.procs {
		launcher := p.end.failed > 0 && p.header.Terminated >= p.end.failed // it was the launcher's SIGTERM
		if p.header.Terminated > 0 && p.end.signaled == 0 && !launcher {
			told = append(told, p)
		}
	}
	left, most := len(r.procs), false
	for _, sweep := range r.sweeps(told, func(p *process) time.Time { return p.at(p.header.Terminated) }) {
		most = most || 2*len(sweep) > left
		left -= len(sweep)
		for _, p := range sweep {
			if most {
				p.end.signaled, p.end.signal = p.header.Terminated, "SIGTERM"
			}
		}
	}
}

// leastKilled is how many killed processes mean that the whole job was killed, although most others exited with the
// errors that they got before it was their turn: of many processes, two may be killed together for another reason.
const leastKilled = 3

// killed finds out whether the job was killed from outside without its launcher. Then all processes that were left
// ended in one sweep. The first and most others (or leastKilled in all) ended by the same signal, one that a person or
// a scheduler sends, or that the launcher passed on; none ended by another signal, and no launcher ended them because
// of a failure. All then count as told to end when the first one ended, or when the launcher got the signal. A process
// that had left in order by then, or whose end the launcher noted and let the job go on, is none of them.
//
// A launcher that is killed with the job doesn't note all ends. It must have noted one of those by the signal.
func (r *Report) killed() {
	for _, p := range r.procs {
		e := &p.end
		told := e.exit.Known || p.orphaned() || e.kept && p.state() == StateClosed
		if !told || e.failed > 0 || e.signaled > 0 {
			return
		}
	}
	ended := slices.Clone(r.procs)
	sweeps := r.sweeps(ended, r.endedAt)
	for ; len(sweeps) > 1; sweeps = sweeps[1:] {
		if !survived(sweeps[0]) {
			return
		}
	}
	ended = slices.Concat(sweeps...)
	first := slices.IndexFunc(ended, func(p *process) bool { return p.endedBy() != 0 })
	if first < 0 || !survived(ended[:first]) {
		return
	}
	ended = ended[first:]
	by, killed := ended[0].endedBy(), 0
	for _, p := range ended {
		switch p.endedBy() {
		case 0:
		case by:
			killed++
		default:
			return
		}
	}
	noted := slices.ContainsFunc(ended, func(p *process) bool { return p.end.exit.Known && p.endedBy() == by })
	if !asked(by) || !noted || killed < 2 || killed < leastKilled && 2*killed <= len(ended) {
		return
	}
	at := r.endedAt(ended[0])
	if e := &ended[0].end; e.forward == by {
		at = ended[0].at(e.forwarded)
	}
	for _, p := range ended {
		p.end.signaled, p.end.signal = p.mono(at), unix.SignalName(by)
	}
}

// endedAt is when a process ended, as far as is known. One that is orphaned ended after its last sign of life, and
// after the ends that its launcher noted.
func (r *Report) endedAt(p *process) time.Time {
	if p.end.at > 0 && (!p.end.found || !p.orphaned()) {
		return p.at(p.end.at)
	}
	at := p.at(p.lastSeen())
	for _, o := range r.procs {
		if o.end.launched && o.header.KernelBoot == p.header.KernelBoot {
			at = later(at, o.at(o.end.at))
		}
	}
	return at
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
