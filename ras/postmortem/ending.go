package postmortem

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
)

// ending is how a process ended, as far as that is known, on its tape's own clock.
type ending struct {
	at   int64          // 0: it runs, or that is not known
	seen int64          // when its launcher saw it; 0: unknown
	how  string         // "it was ended by SIGKILL"
	exit osprocess.Exit // as its launcher saw it
	// failed says that the launcher ended the job because a rank had failed.
	failed bool
	// told is when the process, or its launcher, was told to end from outside; 0: never.
	told int64
	by   string // "SIGTERM"
}

// endings finds out when and how each process ended, from its launcher's ledger or its own tape; see also notice.
func (r *Report) endings(procs []*process, ledgers []string) {
	type key struct {
		boot string
		pid  int
	}
	byPID := make(map[key]*process)
	for _, p := range procs {
		k := key{p.header.KernelBoot.String(), p.header.PID}
		if old := byPID[k]; old == nil || old.last < p.last { // pids are reused
			byPID[k] = p
		}
		p.end.told, p.end.by = p.header.Terminated, "SIGTERM"
		if p.header.Closed {
			p.end.at = p.last
		}
	}
	for _, path := range ledgers {
		entries, err := osprocess.ReadLedger(path)
		if err != nil {
			r.problem(path, "can't be read to its end: %v", cause(err))
		}
		for i := range entries {
			e := &entries[i]
			if e.PID == 0 {
				for _, p := range procs {
					switch {
					case p.header.KernelBoot.String() != e.Boot:
					case filepath.Dir(p.path) != filepath.Dir(path) || e.Mono <= p.first:
					case e.Ended == osprocess.EndedByFailure:
						p.end.failed = true
					case p.end.told == 0 || e.Mono < p.end.told:
						p.end.told, p.end.by = e.Mono, e.Ended
					}
				}
				continue
			}
			if p := byPID[key{e.Boot, e.PID}]; p != nil && e.Mono >= p.last-int64(time.Second) {
				p.end.how, p.end.exit = e.Exit.How(), e.Exit
				if !p.header.Closed {
					p.end.seen = max(e.Mono, p.last)
					p.end.at = p.end.seen
				}
			}
		}
	}
	for _, p := range procs {
		if p.end.at > 0 && p.end.told > p.end.at { // that was another run of the job
			p.end.told = 0
		}
	}
}

// sweepTime is how long it takes at most to kill all processes of a job.
const sweepTime = 5 * time.Second

// killed finds out whether the job was killed from outside without its launcher's knowledge: all processes ended within
// sweepTime, several by such signals, the first of all among them, and no launcher ended them because one had failed.
// Others may have noticed and given up. Then all count as told to end when the first was.
func (r *Report) killed() {
	var first, last time.Time
	by, killed := "", 0
	for _, p := range r.procs {
		e := &p.end
		if e.at == 0 || !e.exit.Known || e.failed || e.told > 0 {
			return
		}
		signal := ""
		switch e.exit.Signal {
		case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
			signal = unix.SignalName(e.exit.Signal)
			killed++
		default:
		}
		at := p.at(e.at)
		if first.IsZero() || at.Before(first) {
			first, by = at, signal
		}
		last = later(last, at)
	}
	if killed < 2 || by == "" || last.Sub(first) > sweepTime {
		return
	}
	for _, p := range r.procs {
		p.end.told, p.end.by = p.mono(first), by
	}
}

// noticeTime is how long after others a launcher sees at most that a process has died.
const noticeTime = time.Second

// notice finds when others noticed that a process had died, which may be before its launcher did: when they failed
// because it was dead, or because a connection broke, whosever. A process that wrote something later had not died.
func (r *Report) notice() {
	for _, c := range r.comms {
		for _, m := range c.members {
			f := m.Failure
			switch {
			case f == nil:
				continue
			case f.Code == lifecycle.CodeRankDead && f.Peer >= 0, f.Code == lifecycle.CodeUnreachable:
			default:
				continue
			}
			for rank, of := range c.byRank {
				p := of.proc
				state := p.state()
				if p == m.proc || f.Peer >= 0 && int(f.Peer) != rank || state == StateClosed || state == StateAlive {
					continue
				}
				at := p.mono(m.proc.at(f.Time))
				if f.Code == lifecycle.CodeUnreachable && (p.end.exit.Signal == 0 || p.end.at-at > int64(noticeTime)) {
					continue // it may have lost others, and ended because of that
				}
				if at >= p.last && (p.end.at == 0 || at < p.end.at) {
					p.end.at = at
				}
			}
		}
	}
}

// gone is when the process was gone, on its tape's clock: when it is known to have ended, or else not before the last
// that any tape of a job that ended at end tells of.
func (p *process) gone(end time.Time) int64 {
	switch {
	case p.end.at > 0:
		return p.end.at
	case end.IsZero(): // there is no record at all
		return p.last
	}
	return max(p.last, p.mono(end))
}

// moment is a time at which the job is judged.
type moment struct {
	at    time.Time
	title string // "just before rank 2 failed"
	// ended tells that the job was ended from outside at that time.
	ended bool
}

// settleTime is how long after the first trouble all that follows from it at once is on the tapes.
const settleTime = 100 * time.Millisecond

// moments are when the job is to be judged, in the order of time: before the first trouble, which a hang may have led
// to, after it, and now or in the end.
func (r *Report) moments() []moment {
	var all []moment
	var first *moment
	meet := func(at time.Time, what string, ended bool) {
		if first == nil || at.Before(first.at) {
			first = &moment{at, what, ended}
		}
	}
	for _, p := range r.procs {
		if p.end.told > 0 {
			meet(p.at(p.end.told), "the job was ended from outside ("+p.end.by+")", true)
		}
		if p.end.at > 0 && p.state() != StateClosed && (p.state() != StateExited || p.end.exit.Failed()) {
			meet(p.at(p.end.at), p.name()+" ended", false)
		}
		for _, m := range p.members {
			if f := m.Failure; f != nil && f.Code != lifecycle.CodeRevoked && f.Code != lifecycle.CodeAborted {
				meet(p.at(f.Time), fmt.Sprintf("%s failed on %s", m.name(), m.label()), false)
			}
		}
	}
	if first != nil {
		all = append(all, moment{first.at.Add(-time.Microsecond), "just before " + first.title, first.ended})
		if first.ended {
			return all // what happens to processes that are ended is no cause of anything
		}
		all = append(all, moment{first.at.Add(settleTime), "right after " + first.title, false})
	}
	switch now := r.now(); {
	case !now.IsZero():
		all = append(all, moment{at: now, title: "now"})
	case first == nil && !r.End.IsZero():
		all = append(all, moment{r.End, "at the end of the tapes", false})
	}
	return all
}

// now is when the living processes were looked at; zero if there are none.
func (r *Report) now() (now time.Time) {
	for _, p := range r.procs {
		if p.live > 0 {
			now = later(now, p.at(p.live))
		}
	}
	return now
}

// heldMoments are moments at which calls had stalled that ended well later, or a process had stopped that went on
// later: halfway between the time when the first of those that overlap had stalled, and its end. Later some of those
// that were late may have come.
func (r *Report) heldMoments() []moment {
	type span struct{ stalled, end time.Time }
	var spans []span
	for _, p := range r.procs {
		for _, l := range p.long {
			spans = append(spans, span{p.at(l.stalled), p.at(l.end)})
		}
		if h := &p.header; h.Resumed-h.Paused > p.quiet() {
			spans = append(spans, span{p.at(h.Paused + p.quiet()), p.at(h.Resumed)})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.end.Compare(b.end), a.stalled.Compare(b.stalled)) })
	var all []moment
	var last span
	for _, s := range spans {
		if len(all) > 0 && s.stalled.Before(last.end) {
			continue
		}
		last = s
		at := s.stalled.Add(s.end.Sub(s.stalled) / 2)
		all = append(all, moment{at: at, title: "at " + clockTime(at)})
	}
	return all[max(0, len(all)-MaxHeld):]
}

// covered is the last time of which the tapes tell.
func (r *Report) covered() time.Time {
	last := later(r.End, r.now())
	for _, p := range r.procs {
		if p.end.at > 0 {
			last = later(last, p.at(p.end.at))
		}
	}
	return last
}
