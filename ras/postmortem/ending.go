package postmortem

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// ending is how a process ended, as far as is known. Times are on its tape's own clock.
type ending struct {
	at   int64 // 0: it runs, or the time is not known
	left int64 // when it closed its tape; 0: it didn't
	seen int64 // when its launcher saw the end; 0: unknown
	ran  int64 // when an agent last saw it run, in a job that hung; 0: unknown
	// stopped is when the agent first saw that it was stopped, and it was not seen to go on since; 0: never.
	stopped int64
	how     string         // "it was ended by SIGKILL"
	exit    osprocess.Exit // as its launcher saw it
	// found tells that it was found dead at the time at: it had ended some time before.
	found    bool
	followed bool // an agent followed its tape to the end
	// failed is when the launcher began to end the job because a rank had failed; 0: it didn't.
	failed int64
	// signaled is when somebody told the process or its launcher to end, and signal how; 0: never.
	signaled int64
	signal   string // "SIGTERM"
}

// lastSeen is the last time at which the process wrote to its tape, or was seen to run.
func (p *process) lastSeen() int64 {
	if p.end.at > 0 {
		return p.last
	}
	return max(p.last, p.end.ran)
}

// roll has the processes by each of their numbers, which those of other pid namespaces may have, too.
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

// find is the last process that an entry may call pid; nil if there is none.
func (r roll) find(e *osprocess.Entry, pid int) (last *process) {
	for _, p := range r[rollKey{e.Boot, pid}] {
		if p.numberIn(e.PIDSpace) == pid && (last == nil || last.last < p.last) { // pids are reused
			last = p
		}
	}
	return last
}

// numberIn is the number of the process in a pid namespace: its own (0 is that, too), or that of the agent that
// followed it last; 0 if it isn't known.
func (p *process) numberIn(space uint64) int {
	if own := p.header.PIDSpace; space == 0 || own == 0 || space == own {
		return p.header.PID
	}
	return p.header.AgentPID
}

// endings finds out when and how each process ended, from its launcher's ledger or its own tape.
func (r *Report) endings(procs []*process, ledgers []string) {
	named := make(roll)
	for _, p := range procs {
		named.add(p)
		if p.header.Closed {
			p.end.at, p.end.left = p.last, p.last
		}
	}
	for _, path := range ledgers {
		entries, err := osprocess.ReadLedger(path)
		if err != nil {
			r.problem(path, "can't be read to its end: %v", cause(err))
		}
		var untaped *osprocess.Entry // of those that failed, the last one
		for i := range entries {
			e := &entries[i]
			for _, pid := range e.Running {
				if p := named.find(e, pid); p != nil && e.Mono > p.first {
					p.end.ran = max(p.end.ran, e.Mono)
					p.ran = append(trimmed(p.ran, maxStalls), e.Mono)
					if !slices.Contains(e.Stopped, pid) {
						p.end.stopped = 0
					} else if p.end.stopped == 0 {
						p.end.stopped = e.Mono
					}
				}
			}
			if e.PID == 0 && e.Ended == "" {
				continue
			}
			if e.PID == 0 {
				tapeless := untaped
				untaped = nil
				for _, p := range procs {
					switch {
					case p.header.KernelBoot.String() != e.Boot:
					case filepath.Dir(p.path) != filepath.Dir(path) || e.Mono <= p.first:
					case e.Ended == osprocess.EndedByFailure:
						if p.end.failed == 0 {
							p.end.failed = e.Mono
						}
						if tapeless != nil {
							name := fmt.Sprintf("rank %d (pid %d)", tapeless.Rank, tapeless.PID)
							r.lost = &lost{name, tapeless.Exit.How(), tapeless.Mono, e.Mono, p}
						}
					case p.end.failed > 0:
					case p.end.signaled == 0 || e.Mono < p.end.signaled:
						p.end.signaled, p.end.signal = e.Mono, e.Ended
					}
				}
				continue
			}
			p := named.find(e, e.PID)
			if e.Stays != nil {
				if p != nil && e.Mono > p.first {
					p.seeDevices(e)
				}
				continue
			}
			taped := func(p *process) bool { return p.header.Rank == e.Rank }
			switch {
			case e.Program:
				r.ran(e, filepath.Dir(path), procs)
			case e.Exit.Failed() && !slices.ContainsFunc(procs, taped):
				untaped = e
			}
			if p != nil && e.Mono >= p.last-int64(time.Second) {
				p.end.learn(e, p.last)
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

// seeDevices takes an entry with Stays; one that can't be read has none.
func (p *process) seeDevices(e *osprocess.Entry) {
	s := seen{at: e.Mono}
	_ = json.Unmarshal(e.Stays, &s.stays)
	p.seen = append(trimmed(p.seen, maxStalls), s)
}

// learn takes an entry about the process's end; last is when it last gave a sign of life. The first entry says when it
// ended, and the first one that knows it says how.
func (n *ending) learn(e *osprocess.Entry, last int64) {
	if n.seen == 0 || e.Exit.Known && !n.exit.Known {
		n.how, n.exit, n.found = e.Exit.How(), e.Exit, e.Found
	}
	n.followed = n.followed || e.Followed
	if seen := max(e.Mono, last); n.seen == 0 || seen < n.seen {
		n.seen = seen
	}
	n.at = n.seen
}

// ran takes the end of a program that carillon attach ran, with tapes in a folder. The first one that began before the
// first sign of life of all processes, and ended after their last, was this run's.
func (r *Report) ran(e *osprocess.Entry, dir string, procs []*process) {
	within := func(p *process) bool {
		return filepath.Dir(p.path) == dir && p.header.KernelBoot.String() == e.Boot &&
			(e.Began <= p.first || p.first == 0) && p.last <= e.Mono
	}
	if r.program == nil && !slices.ContainsFunc(procs, func(p *process) bool { return !within(p) }) {
		r.program = e
	}
}

// signaledFirst tells whether a signal to all processes of the job at once ended this one before its launcher got it.
func (p *process) signaledFirst() bool {
	late := p.end.signaled - p.end.at
	return p.end.at > 0 && late > 0 && late <= int64(sweepTime) && unix.SignalName(p.end.exit.Signal) == p.end.signal
}

// lost is a process that failed before it had a tape, and for which its launcher ended the job.
type lost struct {
	name, how string
	at, told  int64    // its end, and when the launcher began to end the others, on the clock of of
	of        *process // one of these
}

// sweepTime is how long it takes at most, when all processes of a job are killed, from one to the next. If the others
// go on for longer, the first one's end is a matter of its own.
const sweepTime = 500 * time.Millisecond

// terminated finds out whether the job got SIGTERM without its launcher, as from a scheduler: most of the processes
// that were left did, one soon after the other. A signal to a few is the end of these.
func (r *Report) terminated() {
	got := func(p *process) time.Time { return p.at(p.header.Terminated) }
	var rest []*process
	for _, p := range r.procs {
		launcher := p.end.failed > 0 && p.header.Terminated >= p.end.failed // it was the launcher's SIGTERM
		if p.header.Terminated > 0 && p.end.signaled == 0 && !launcher {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b *process) int { return got(a).Compare(got(b)) })
	for left := len(r.procs); len(rest) > 0; {
		n := 1
		for n < len(rest) && got(rest[n]).Sub(got(rest[n-1])) <= sweepTime {
			n++
		}
		if 2*n > left {
			for _, p := range rest {
				p.end.signaled, p.end.signal = p.header.Terminated, "SIGTERM"
			}
			return
		}
		rest, left = rest[n:], left-n
	}
}

// leastKilled is how many processes that were killed mean that the whole job was, although most others exited with the
// errors that they got, before it was their turn: of many, two may be killed together for another reason.
const leastKilled = 3

// killed finds out whether the job was killed from outside without its launcher: all processes that had not left in
// order by then ended one soon after the other, the first and most others (or leastKilled in all) by the same signal,
// of those that a person or a scheduler sends, none by another one, and no launcher ended them because of a failure.
// Then all count as told to end when the first ended.
func (r *Report) killed() {
	var ended []*process
	var first time.Time // that a signal ended
	for _, p := range r.procs {
		e := &p.end
		if e.at == 0 || !e.exit.Known || e.failed > 0 || e.signaled > 0 {
			return
		}
		ended = append(ended, p)
		if at := p.at(e.at); e.exit.Signal != 0 && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	ended = slices.DeleteFunc(ended, func(p *process) bool {
		return p.state() == StateClosed && !p.end.exit.Failed() && p.at(p.end.at).Before(first)
	})
	slices.SortFunc(ended, byEnd)
	by, killed, last := "", 0, first
	for _, p := range ended {
		at, signal := p.at(p.end.at), p.end.exit.Signal
		if at.Before(first) || at.Sub(last) > sweepTime {
			return
		}
		last = at
		switch signal {
		case 0:
			continue
		case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		default:
			return
		}
		if killed++; killed > 1 && unix.SignalName(signal) != by {
			return
		}
		by = unix.SignalName(signal)
	}
	if killed < 2 || killed < leastKilled && 2*killed <= len(ended) {
		return
	}
	for _, p := range ended {
		p.end.signaled, p.end.signal = p.mono(first), by
	}
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

// noticeTime is how long after others a launcher sees at most that a process has died. Its connections break at once,
// and it takes the kernel up to seconds to free what the process has on a GPU before it is dead.
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
					p.endedAround(p.mono(m.proc.at(f.Time)), f.Code) {
					noticed = append(noticed, p)
				}
			}
			if len(noticed) == 0 {
				continue
			}
			first := slices.MinFunc(noticed, byEnd)
			until := first.at(first.end.at).Add(sweepTime)
			for _, p := range noticed {
				if at := p.mono(m.proc.at(f.Time)); p.end.at == 0 || at < p.end.at && !p.at(p.end.at).After(until) {
					p.end.at = at
				}
			}
		}
	}
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
	// It was alive then if it was told to end later, or noticed a broken connection itself.
	told := p.end.signaled > at || p.header.Terminated > at || p.swept() && p.end.exit.Signal == unix.SIGTERM
	return !told && !slices.ContainsFunc(p.members, func(m *member) bool {
		f := m.Failure
		return f != nil && f.Code == lifecycle.CodeUnreachable && at-f.Time <= int64(noticeTime)
	})
}

// gone is when the process had ended, on its tape's clock: when it is known to have ended, else end, the last time on
// any tape of the job, or its own last time if that is later.
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

// moment is a time at which the job is judged.
type moment struct {
	at    time.Time
	title string // "just before rank 2 failed"
	// trouble is what happened first, if the moment is just before or after it: "rank 2 failed".
	trouble string
	// ended tells that the job was ended from outside at that time, or that a process failed that was lost.
	ended bool
	now   bool // it is when the tapes of living processes were read
}

// beforeTime is how long before the first trouble is known nothing of it is on the tapes: the end of a call that fails
// is there before its error. settleTime is how long after it its immediate consequences are there, and the judge no
// longer waits for more: the trouble may be known some milliseconds before its cause is on a tape.
const (
	beforeTime = 10 * time.Millisecond
	settleTime = 120 * time.Millisecond
)

// moments are when the job is judged, in the order of time: just before the first trouble, as a hang may have led to
// it, right after it, and now or at the end. Without trouble, but if a process left in order in the middle of a call,
// the first moment is just before the first one left since that call began.
func (r *Report) moments() []moment {
	var all []moment
	var first *moment
	var signaled time.Time // when the job was ended from outside
	trouble := func(at time.Time, what string, ended bool) {
		if first == nil || at.Before(first.at) {
			first = &moment{at: at, trouble: what, ended: ended}
		}
	}
	gaveUp := func(m *member) string { return fmt.Sprintf("%s gave up an operation on %s", m.label(), m.name()) }
	for _, p := range r.procs {
		if p.end.signaled > 0 {
			signaled = earlier(signaled, p.at(p.end.signaled))
			trouble(p.at(p.end.signaled), "the job was ended from outside ("+p.end.signal+")", true)
		}
		if p.end.at > 0 && !p.swept() && (p.end.exit.Failed() || p.state() != StateClosed && p.state() != StateExited) {
			trouble(p.at(p.end.at), p.ended(), false)
		}
		for _, m := range p.members {
			if m.gaveUp > 0 && !r.wentWell() {
				trouble(p.at(m.gaveUp), gaveUp(m), false)
			}
			if f := m.Failure; f != nil && f.Code != lifecycle.CodeRevoked && f.Code != lifecycle.CodeAborted {
				trouble(p.at(f.Time), fmt.Sprintf("%s failed on %s", m.name(), m.label()), false)
			}
		}
	}
	for _, a := range r.aborts() {
		if first != nil && !a.at.Before(first.at) {
			break
		}
		if r.waited(a.of, a.at.Add(-beforeTime)) {
			trouble(a.at, gaveUp(a.of), false)
		}
	}
	if l := r.lost; l != nil && (first == nil || !first.at.Before(l.of.at(l.told))) {
		first = &moment{at: l.of.at(l.at), trouble: l.name + " failed", ended: true}
	}
	if first != nil {
		before := first.at.Add(-beforeTime)
		if first.ended {
			before = first.at.Add(-time.Microsecond)
		}
		if last, known := r.lastSign(); known && before.Sub(last) > pauseTime {
			before = last
		}
		what := first.trouble
		all = append(all, moment{at: before, title: "just before " + what, trouble: what, ended: first.ended})
		if first.ended {
			return all // later failures are consequences
		}
		all = append(all, moment{at: first.at.Add(settleTime), title: "right after " + what, trouble: what})
		if !signaled.IsZero() && signaled.After(first.at.Add(settleTime)) {
			all = append(all, moment{
				at: signaled.Add(-time.Microsecond), title: "just before the job was ended from outside", ended: true,
			})
			return all
		}
	}
	switch now := r.now(); {
	case !now.IsZero():
		all = append(all, moment{at: now, title: "now", now: true})
	case first == nil && !r.End.IsZero():
		title := "at the end of the tapes"
		if slices.ContainsFunc(r.procs, func(p *process) bool { return p.lastSeen() > p.last }) {
			title = "when it was last seen to run"
		}
		if p := r.firstLeft(); p != nil {
			at, what := p.at(p.end.left).Add(-time.Microsecond), p.name()+" left the job"
			all = append(all, moment{at: at, title: "just before " + what, trouble: what})
		}
		all = append(all, moment{at: r.End, title: title})
	}
	return all
}

// abort is when a rank aborted a communicator.
type abort struct {
	of *member
	at time.Time
}

// mostAborts bounds the aborts before which the job is judged.
const mostAborts = 8

// aborts are those of communicators with an operation that had been launched so long ago that it had stalled if it was
// not done, which the rank's own tape doesn't tell. Of those within sweepTime there is the first one.
func (r *Report) aborts() (all []abort) {
	for _, p := range r.procs {
		for _, m := range p.members {
			for _, a := range m.acts() {
				o := m.InFlight()
				late := p.model.Unproven(m.Comm, a.Start) || o != nil && p.model.Stalled(o, a.Start)
				if a.Kind == tape.ActAbort && m.Enqueues() && late {
					all = append(all, abort{m, p.at(a.Start)})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b abort) int { return a.at.Compare(b.at) })
	all = slices.CompactFunc(all, func(a, b abort) bool { return b.at.Sub(a.at) <= sweepTime })
	return all[:min(len(all), mostAborts)]
}

// waited tells whether a rank waited for others in a call on its communicator at a time, as a verdict on the job says.
func (r *Report) waited(m *member, at time.Time) bool {
	return slices.ContainsFunc(r.verdicts(at), func(v verdict.Verdict) bool {
		return slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool {
			return w.Comm == m.ID && w.Rank.Comm == m.Rank
		})
	})
}

// firstLeft is the process that left in order first since the oldest call began in the middle of which one left; nil if
// none did.
func (r *Report) firstLeft() (first *process) {
	var began time.Time
	left := slices.DeleteFunc(slices.Clone(r.procs), func(p *process) bool { return p.end.left == 0 })
	for _, p := range left {
		for _, m := range p.members {
			if d := m.doing(r.End); d != nil {
				began = earlier(began, d.Since)
			}
		}
	}
	for _, p := range left {
		at := p.at(p.end.left)
		if !began.IsZero() && !at.Before(began) && (first == nil || at.Before(first.at(first.end.left))) {
			first = p
		}
	}
	return first
}

// wentWell tells whether all processes are known to have exited with 0: then the job meant to give up what it gave up.
func (r *Report) wentWell() bool {
	return !slices.ContainsFunc(r.procs, func(p *process) bool { return !p.end.exit.Known || p.end.exit.Failed() })
}

// lastSign is the last time at which any process gave a sign of life. It is not known of processes that have no
// telemetry of their own. A launcher may see their ends later, if the machine stands still.
func (r *Report) lastSign() (last time.Time, known bool) {
	for _, p := range r.procs {
		if p.header.Seen == 0 {
			return last, false
		}
		last = later(last, p.at(max(p.header.Seen, p.last)))
	}
	return last, true
}

// now is when the tapes of living processes were read; zero if there are none.
func (r *Report) now() (now time.Time) {
	for _, p := range r.procs {
		if p.live > 0 {
			now = later(now, p.at(p.live))
		}
	}
	return now
}

// hung are the times at which an agent last noted that the job hung, one for each hang: within one, the pauses between
// notes double.
func (p *process) hung() (last []time.Time) {
	var first int64
	for i, at := range p.ran {
		if i == 0 || at-p.ran[i-1] > p.ran[i-1]-first+int64(2*time.Second) {
			first = at
			last = append(last, time.Time{})
		}
		last[len(last)-1] = p.at(at)
	}
	return last
}

// heldMoments are moments at which calls had stalled that later ended well, as far as the tapes or an agent noted it,
// or processes were stopped that later went on. Of stalls that overlap the first counts, halfway between its threshold
// and its end: by then, late ranks may have come. Where an agent was there to the end, its notes say when devices
// stalled.
func (r *Report) heldMoments() []moment {
	type span struct{ began, end time.Time }
	var spans []span
	for _, p := range r.procs {
		for _, s := range p.stalls {
			if s.device && p.end.followed {
				continue
			}
			spans = append(spans, span{p.at(s.began), p.at(s.end)})
		}
		if h := &p.header; p.wasStopped() && h.Resumed-h.Paused > p.quiet() {
			spans = append(spans, span{p.at(h.Paused + p.quiet()), p.at(h.Resumed)})
		}
	}
	if i := slices.IndexFunc(r.procs, func(p *process) bool { return len(p.ran) > 0 }); i >= 0 {
		for _, at := range r.procs[i].hung() {
			spans = append(spans, span{at, at})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.end.Compare(b.end), a.began.Compare(b.began)) })
	var all []moment
	var last span
	for _, s := range spans {
		if len(all) > 0 && s.began.Before(last.end) {
			continue
		}
		last = s
		at := s.began.Add(s.end.Sub(s.began) / 2)
		all = append(all, moment{at: at, title: "at " + clockTime(at)})
	}
	// A straggler may be one for longer than that, with many notes.
	all = all[max(0, len(all)-MaxHeld):]
	if i := slices.IndexFunc(r.procs, func(p *process) bool { return len(p.seen) > 0 }); i >= 0 {
		var slow []moment
		for _, s := range r.procs[i].seen {
			if at := r.procs[i].at(s.at); len(s.stays) > 0 {
				slow = append(slow, moment{at: at, title: "at " + clockTime(at)})
			}
		}
		all = append(all, slow[max(0, len(slow)-MaxHeld):]...)
		slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	}
	return all
}

// covered is the last time that the tapes cover.
func (r *Report) covered() time.Time {
	last := later(r.End, r.now())
	for _, p := range r.procs {
		if p.end.at > 0 {
			last = later(last, p.at(p.end.at))
		}
	}
	return last
}
