package postmortem

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
)

// ending is how a process ended, as far as is known. Times are on its tape's own clock.
type ending struct {
	at   int64 // 0: it runs, or the time is not known
	left int64 // when it closed its tape; 0: it didn't
	seen int64 // when its launcher saw the end; 0: unknown
	// stopped is when the agent first saw that it was stopped, and it was not seen to go on since; 0: never.
	stopped int64
	how     string         // "it was ended by SIGKILL"
	exit    osprocess.Exit // as its launcher saw it
	// found tells that it was found dead at the time at: it had ended some time before.
	found    bool
	followed bool // an agent followed its tape to the end
	// launched tells that its launcher keeps a ledger and noted the end there. Such a launcher notes, too, if it ends
	// the job because a rank has failed.
	launched bool
	// kept tells that such a launcher had begun a run before the process began, also if it noted no end of this one.
	kept bool
	// failed is when the launcher began to end the job because a rank had failed; 0: it didn't.
	failed int64
	// signaled is when somebody told the process or its launcher to end, and signal how; 0: never.
	signaled int64
	signal   string // "SIGTERM", or why if there was no signal
	// forwarded is when the launcher last passed on a signal that the process did not outlive for long, and forward
	// that signal; 0: never.
	forwarded int64
	forward   unix.Signal
}

// lastSeen is the last time at which the process wrote to its tape, or was seen to run.
func (p *process) lastSeen() int64 {
	if p.end.at > 0 {
		return p.last
	}
	return slices.Max(append([]int64{p.last}, p.hung...))
}

// roll has the processes by each of their pids. Processes of different pid namespaces may have the same one.
type roll map[rollKey][]*process

type rollKey struct {
	boot string
	pid  int
}

func (r roll) add(p *process) {
	k := rollKey{p.header.KernelBoot.String(), p.header.PID}
	r[k] = append(r[k], p)
	if k.pid = p.header.KnownPID(); k.pid != p.header.PID {
		r[k] = append(r[k], p)
	}
}

// find returns the last process from before an entry that the entry may mean by pid; nil if there is none.
func (r roll) find(e *osprocess.Entry, pid int) (last *process) {
	for _, p := range r[rollKey{e.Boot, pid}] {
		before := p.first < e.Mono && (last == nil || last.last < p.last) // pids are reused
		if before && p.numberIn(e.PIDSpace) == pid {
			last = p
		}
	}
	return last
}

// numberIn is the process's pid in a pid namespace: its own if it is in that namespace, or one of the two is unknown
// (0); else the pid that the agent which followed it last has for it; 0 if that isn't known.
func (p *process) numberIn(space uint64) int {
	if own := p.header.PIDSpace; space == 0 || own == 0 || space == own {
		return p.header.PID
	}
	return p.header.AgentPID
}

// ledger has what launchers and agents noted in a folder.
type ledger struct {
	dir     string
	entries []osprocess.Entry
}

// readLedgers reads ledgers as far as they can be read.
func (r *Report) readLedgers(paths []string) (list []ledger) {
	for _, path := range paths {
		entries, err := osprocess.ReadLedger(path)
		if err != nil {
			r.problem(path, "can't be read to its end: %v", cause(err))
		}
		list = append(list, ledger{filepath.Dir(path), entries})
	}
	return list
}

// ends finds out when and how each process ended, from its launcher's ledger or its own tape, and what agents noted of
// it before.
func ends(procs []*process, ledgers []ledger) {
	named := make(roll)
	for _, p := range procs {
		named.add(p)
		if p.header.Closed {
			p.end.at, p.end.left = p.last, p.last
		}
	}
	for _, l := range ledgers {
		for i := range l.entries {
			e := &l.entries[i]
			for _, pid := range e.Running {
				if p := named.find(e, pid); p != nil {
					p.seeRunning(e, slices.Contains(e.Stopped, pid))
				}
			}
			switch p := named.find(e, e.PID); {
			case e.PID == 0 || p == nil:
			case e.Stays != nil:
				p.seeDevices(e)
			case e.Mono >= p.last-int64(time.Second):
				p.end.learn(e, p.last)
			}
		}
	}
}

// endings finds out how the run of some processes was ended, from the ledgers.
func (r *Report) endings(procs []*process, ledgers []ledger) {
	for _, l := range ledgers {
		r.findUntaped(&l, procs)
		for _, p := range procs {
			p.end.kept = p.end.kept || filepath.Dir(p.path) == l.dir &&
				osprocess.RunBegan(l.entries, p.header.KernelBoot.String(), p.first) > 0
		}
		var failed *osprocess.Entry // the last process that failed without a tape
		for i := range l.entries {
			e := &l.entries[i]
			taped := func(p *process) bool { return p.header.Rank == e.Rank }
			switch {
			case e.PID == 0 && e.Ended != "":
				r.launcherEnds(e, l.dir, procs, failed)
				failed = nil
			case e.PID == 0 && e.Forwarded != "":
				forwards(e, l.dir, procs)
			case e.PID == 0 || e.Stays != nil:
			case e.Program:
				r.programEnded(e, l.dir, procs)
			case e.Exit.Failed() && !slices.ContainsFunc(procs, taped):
				failed = e
			}
		}
	}
	for _, p := range procs {
		if p.signaledFirst() {
			at := p.end.at
			for _, o := range procs {
				if o.header.KernelBoot == p.header.KernelBoot && o.end.signaled > at {
					o.end.signaled = at
				}
			}
		}
	}
	for _, p := range procs {
		if p.end.at > 0 && p.end.signaled > p.end.at { // that was another run of the job
			p.end.signaled = 0
		}
	}
}

// untaped is a rank's process that left no tape, and whose end its launcher noted.
type untaped struct {
	end *osprocess.Entry
	of  *process // another one of its host
}

// findUntaped finds the processes without a tape in a ledger that belong to the run of some processes: those that the
// launcher of carillon run noted in the run that it had begun last before the first of the processes began.
func (r *Report) findUntaped(l *ledger, procs []*process) {
	var of *process
	for _, p := range procs {
		if filepath.Dir(p.path) == l.dir && p.first > 0 && (of == nil || p.first < of.first) {
			of = p
		}
	}
	if of == nil {
		return
	}
	boot := of.header.KernelBoot.String()
	began := osprocess.RunBegan(l.entries, boot, of.first)
	for i := range l.entries {
		e := &l.entries[i]
		taped := func(p *process) bool { return p.header.Rank == e.Rank }
		ours := began > 0 && e.Began == began && !e.Program && e.Boot == boot
		if ours && e.PID != 0 && e.Exit.Known && !slices.ContainsFunc(procs, taped) {
			r.untaped = append(r.untaped, untaped{e, of})
		}
	}
}

// at is when the process ended.
func (u *untaped) at() time.Time { return u.of.at(u.end.Mono) }

// name names the process in a sentence: "rank 2 (pid 4711)".
func (u *untaped) name() string { return fmt.Sprintf("rank %d (pid %d)", u.end.Rank, u.end.PID) }

// note is the note of the process at a time; false if it ran then, as far as is known.
func (u *untaped) note(at time.Time, size int) (n verdict.Note, over bool) {
	age := at.Sub(u.at())
	host := words.Line(u.of.header.Host)
	n = verdict.Note{
		Member: fmt.Sprintf("%s-%d", host, u.end.PID), Host: host, PID: u.end.PID, Rank: u.end.Rank, JobSize: size,
		Fate: verdict.Departed, FateAge: age, Cause: u.end.Exit.How(), Told: u.end.Exit.Told(),
		Killed: u.end.Exit.Killed(),
	}
	if u.end.Exit.Failed() {
		n.Fate = verdict.Dead
	}
	return n, age >= 0
}

// launcherEnds takes an entry that a launcher ends the job with tapes in dir. failed is the last process that failed
// without a tape; nil if none did.
func (r *Report) launcherEnds(e *osprocess.Entry, dir string, procs []*process, failed *osprocess.Entry) {
	for _, p := range procs {
		switch {
		case p.header.KernelBoot.String() != e.Boot:
		case filepath.Dir(p.path) != dir || e.Mono <= p.first:
		case e.Ended == osprocess.EndedByFailure:
			if p.end.failed == 0 {
				p.end.failed = e.Mono
			}
			if failed != nil {
				r.failedUntaped = &untaped{failed, p}
			}
		case p.end.failed > 0:
		case p.end.signaled == 0 || e.Mono < p.end.signaled:
			p.end.signaled, p.end.signal = e.Mono, e.Ended
		}
	}
}

// forwards takes an entry that a launcher passed a signal on to the processes with tapes in dir.
func forwards(e *osprocess.Entry, dir string, procs []*process) {
	for _, p := range procs {
		after := p.end.at - e.Mono
		if filepath.Dir(p.path) == dir && p.header.KernelBoot.String() == e.Boot &&
			after >= 0 && after <= int64(verdict.SweepTime) {
			p.end.forwarded, p.end.forward = e.Mono, unix.SignalNum(e.Forwarded)
		}
	}
}

// orphaned tells whether the process's launcher did not live to note how it ended. Such a process was killed with its
// launcher, whose ranks don't outlive it, soon after its last sign of life: it gave two or more in each
// verdict.SweepTime.
func (p *process) orphaned() bool {
	state := p.state()
	return p.end.kept && !p.end.exit.Known && (state == StateDied || state == StateUnknown) && p.header.Seen > 0 &&
		p.header.SlowAfter/2 <= verdict.SweepTime
}

// endedBy is the signal that ended the process; 0 if none did. A program may handle a signal and exit with a failure:
// the runtime of Go does at SIGQUIT. It did not if a communicator failed in between.
func (p *process) endedBy() unix.Signal {
	if p.orphaned() {
		return unix.SIGKILL
	}
	failed := func(m *member) bool { return m.Failure != nil && m.Failure.Time >= p.end.forwarded }
	if p.end.exit.Code != 0 && !slices.ContainsFunc(p.members, failed) {
		return p.end.forward
	}
	return p.end.exit.Signal
}

// seeRunning takes an entry that the process runs, or is stopped, in a job that hangs.
func (p *process) seeRunning(e *osprocess.Entry, stopped bool) {
	p.hung = append(trimmed(p.hung, maxStalls), e.Mono)
	if !stopped {
		p.end.stopped = 0
	} else if p.end.stopped == 0 {
		p.end.stopped = e.Mono
	}
}

// endTime is when the process ended, by its tape's own time of day, as far as is known: a process that was found dead
// ended some time before.
func (p *process) endTime() time.Time {
	at := max(p.lastSeen(), p.live)
	if !p.end.found {
		at = max(at, p.end.at)
	}
	return later(p.header.Created, p.wallTime(at))
}

// seeDevices takes an entry with Stays. Stays that can't be read count as none.
func (p *process) seeDevices(e *osprocess.Entry) {
	s := devices{at: e.Mono}
	_ = json.Unmarshal(e.Stays, &s.stays)
	p.devices = append(trimmed(p.devices, maxStalls), s)
}

// learn takes an entry about the process's end; last is when it last gave a sign of life. The first entry says when it
// ended, and the first one that knows it says how.
func (n *ending) learn(e *osprocess.Entry, last int64) {
	if n.seen == 0 || e.Exit.Known && !n.exit.Known {
		n.how, n.exit, n.found = e.Exit.How(), e.Exit, e.Found
	}
	n.followed = n.followed || e.Followed
	n.launched = n.launched || !e.Followed && !e.Found
	if seen := max(e.Mono, last); n.seen == 0 || seen < n.seen {
		n.seen = seen
	}
	n.at = n.seen
}

// programEnded takes the end of a program that carillon attach ran, with tapes in dir. The program is this run's if it
// began before the first sign of life of all processes, and ended after their last. The first such program counts.
func (r *Report) programEnded(e *osprocess.Entry, dir string, procs []*process) {
	within := func(p *process) bool {
		return filepath.Dir(p.path) == dir && p.header.KernelBoot.String() == e.Boot &&
			(e.Began <= p.first || p.first == 0) && p.last <= e.Mono
	}
	if r.program == nil && !slices.ContainsFunc(procs, func(p *process) bool { return !within(p) }) {
		r.program = e
	}
}

// signaledFirst reports whether a signal to all processes of the job at once ended this one before its launcher got it.
func (p *process) signaledFirst() bool {
	late := p.end.signaled - p.end.at
	return p.end.at > 0 && late > 0 && late <= int64(verdict.SweepTime) &&
		unix.SignalName(p.end.exit.Signal) == p.end.signal
}

// byEnd orders processes by when they ended.
func byEnd(a, b *process) int { return a.at(a.end.at).Compare(b.at(b.end.at)) }

// ended says that the process ended, how and when: "rank 2 (host-a, pid 4711) was ended by SIGKILL at 12:00:00.100000".
func (p *process) ended() string {
	how := "ended"
	switch {
	case p.end.exit.Known:
		how = strings.TrimPrefix(p.end.how, "it ")
	case p.end.found:
		how = "was found dead"
	}
	return fmt.Sprintf("%s %s at %s", p.name(), how, clockTime(p.at(p.end.at)))
}

// noticeTime is the longest time by which a launcher sees the death of a process later than other ranks. Its
// connections break at once, but the kernel takes up to seconds to free what the process has on a GPU before it is
// dead.
const noticeTime = 5 * time.Second

// notice moves the end of a process to the time at which other ranks noticed it, if that was before its launcher did:
// when they failed because it was dead or a connection broke. A rank that doesn't know whose connection broke has
// noticed the process that ended first, and those that ended together with it.
func (r *Report) notice() {
	for _, c := range r.comms {
		for _, m := range c.members {
			f := m.Failure
			if f == nil || f.Code != lifecycle.CodeUnreachable && (f.Code != lifecycle.CodeRankDead || f.Peer < 0) {
				continue
			}
			var noticed []*process
			for rank, of := range c.byRank {
				if p := of.proc; p != m.proc && (f.Peer < 0 || int(f.Peer) == rank) &&
					p.endedAround(p.mono(m.failedAt()), f.Code) {
					noticed = append(noticed, p)
				}
			}
			if len(noticed) == 0 {
				continue
			}
			first := slices.MinFunc(noticed, byEnd)
			until := first.at(first.end.at).Add(verdict.SweepTime)
			for _, p := range noticed {
				if at := p.mono(m.failedAt()); p.end.at == 0 || at < p.end.at && !p.at(p.end.at).After(until) {
					p.end.at = at
				}
			}
		}
	}
}

// failedAt is when the communicator of a member failed: the end of the call that failed is on the tape before the
// error.
func (m *member) failedAt() time.Time {
	at := m.Failure.Time
	if last := &m.Last; last.End > 0 && last.Code != lifecycle.CodeOK && last.Seq == m.Failure.Seq {
		at = min(at, last.End)
	}
	return m.proc.at(at)
}

// endedAround tells whether the process may have been dead at a time on its clock at which another rank failed because
// it was dead, or a connection broke. A process that wrote to its tape later had not ended.
func (p *process) endedAround(at int64, code lifecycle.Code) bool {
	switch state := p.state(); {
	case state == StateClosed, state == StateAlive, at < p.last:
		return false
	case code == lifecycle.CodeRankDead:
		return true
	case p.end.exit.Signal == 0, p.end.at-at > int64(noticeTime):
		return false
	}
	// The process was alive then if it was told to end later, or noticed a broken connection itself.
	told := p.end.signaled > at || p.header.Terminated > at || p.swept() && p.end.exit.Signal == unix.SIGTERM
	return !told && !slices.ContainsFunc(p.members, func(m *member) bool {
		f := m.Failure
		return f != nil && f.Code == lifecycle.CodeUnreachable && at-f.Time <= int64(noticeTime)
	})
}

// gone is when the process had ended, on its tape's clock. If its end is not known, it is end, the last time on any
// tape of the job, or the process's own last time if that is later.
func (p *process) gone(end time.Time) int64 {
	switch {
	case p.end.at > 0:
		return p.end.at
	case end.IsZero(): // no tape has a record
		return p.last
	}
	return max(p.last, p.mono(end))
}

// swept tells whether the process ended when its launcher was ending the job, as another one had failed.
func (p *process) swept() bool { return p.end.failed > 0 && p.end.at >= p.end.failed }
