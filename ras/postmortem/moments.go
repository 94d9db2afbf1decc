package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// moment is a time at which the job is judged.
type moment struct {
	at    time.Time
	title string // "just before rank 2 failed"
	// trouble is what happened first, if the moment is just before or after it: "rank 2 failed".
	trouble string
	// ended says that the job was ended from outside at that time, or that a process failed before it had a tape.
	ended bool
	now   bool // it is when the tapes of living processes were read
	last  bool // it is the end of the tapes
}

func momentAt(at time.Time) moment { return moment{at: at, title: "at " + clockTime(at)} }

// beforeTime before the first trouble is known, nothing of it is on the tapes: the end of a call that fails is there
// before its error. settleTime after it, its immediate consequences are there, and the judge no longer waits for more:
// the trouble may be known some milliseconds before its cause is on a tape.
const (
	beforeTime = 10 * time.Millisecond
	settleTime = 120 * time.Millisecond
)

// troubles are what went wrong, in the order of time: the job was ended from outside, processes ended, operations were
// given up, communicators failed. An abort before all of that counts if the rank had waited for others. A process that
// failed before it had a tape comes first if its launcher ended the others for it.
func (r *Report) troubles() (all []moment) {
	for _, p := range r.procs {
		if p.end.signaled > 0 {
			all = append(all, moment{
				at: p.at(p.end.signaled), trouble: "the job was ended from outside (" + p.end.signal + ")", ended: true,
			})
		}
		if p.end.at > 0 && !p.swept() && (p.end.exit.Failed() || p.state() != StateClosed && p.state() != StateExited) {
			all = append(all, moment{at: p.at(p.end.at), trouble: p.ended()})
		}
		for _, m := range p.members {
			if m.gaveUp > 0 && !r.wentWell() {
				all = append(all, moment{at: p.at(m.gaveUp), trouble: m.gaveUpText()})
			}
			if f := m.Failure; f != nil && f.Code != lifecycle.CodeRevoked && f.Code != lifecycle.CodeAborted {
				all = append(all,
					moment{at: p.at(f.Time), trouble: fmt.Sprintf("%s failed on %s", m.name(), m.label())})
			}
		}
	}
	slices.SortStableFunc(all, byTime)
	for _, a := range r.aborts() {
		if len(all) > 0 && !a.at.Before(all[0].at) {
			break
		}
		if r.waited(a.of, a.at.Add(-beforeTime)) {
			all = slices.Insert(all, 0, moment{at: a.at, trouble: a.of.abortText()})
		}
	}
	if u := r.failedUntaped; u != nil && (len(all) == 0 || !all[0].at.Before(u.of.at(u.of.end.failed))) {
		all = slices.Insert(all, 0, moment{at: u.at(), trouble: u.name() + " failed", ended: true})
	}
	return all
}

func byTime(a, b moment) int { return a.at.Compare(b.at) }

// moments are when the job is judged, in the order of time: just before the first trouble, as a hang may have led to
// it; right after it, and after all processes that were killed together; just before each later one, as other ranks may
// have waited until then; and now or at the end. If there is no trouble, but a process left in order in the middle of a
// call, the first moment is just before the first process left since that call began.
func (r *Report) moments() (all []moment) {
	troubles := r.troubles()
	if len(troubles) > 0 {
		first := troubles[0]
		all = append(all, r.justBefore(first))
		if first.ended {
			return all // later failures are consequences
		}
		after := first.at
		for _, p := range r.failures() {
			if at := p.at(p.end.at); p.singled() && at.Sub(after) <= verdict.SweepTime {
				after = later(after, at)
			}
		}
		after = after.Add(settleTime)
		all = append(all, moment{at: after, title: "right after " + first.trouble, trouble: first.trouble})
		i := slices.IndexFunc(troubles, func(t moment) bool { return t.ended })
		if i >= 0 && troubles[i].at.After(after) {
			at := troubles[i].at.Add(-time.Microsecond)
			return append(all, moment{at: at, title: "just before the job was ended from outside", ended: true})
		}
	}
	switch now := r.now(); {
	case !now.IsZero():
		all = append(all, moment{at: now, title: "now", now: true})
	case r.End.IsZero():
	case len(troubles) > 0:
		all = append(all, r.later(all[1].at, troubles)...)
	default:
		if p := r.firstLeft(); p != nil {
			at, what := p.at(p.end.left).Add(-time.Microsecond), p.name()+" left the job"
			all = append(all, moment{at: at, title: "just before " + what, trouble: what})
		}
		all = append(all, r.end())
	}
	return all
}

// justBefore is the moment just before a trouble.
func (r *Report) justBefore(t moment) moment {
	before := t.at.Add(-beforeTime)
	if t.ended {
		before = t.at.Add(-time.Microsecond)
	}
	if last, known := r.lastSign(); known && before.Sub(last) > pauseTime {
		before = last
	}
	return moment{at: before, title: "just before " + t.trouble, trouble: t.trouble, ended: t.ended}
}

// end is the last moment of all tapes.
func (r *Report) end() moment {
	title := "at the end of the tapes"
	if slices.ContainsFunc(r.procs, func(p *process) bool { return p.lastSeen() > p.last }) {
		title = "when it was last seen to run"
	}
	return moment{at: r.End, title: title, last: true}
}

// mostLater bounds the moments before later troubles.
const mostLater = 8

// later are the moments just before later troubles, which include the ends of processes and the aborts. Of troubles
// within verdict.SweepTime of each other, only the first counts. The end of the tapes is the last moment, if a process
// outlived the troubles. If the job ended with them, it is not: processes that are killed in turn are victims.
func (r *Report) later(after time.Time, troubles []moment) (all []moment) {
	for _, p := range r.procs {
		if p.end.at > 0 {
			troubles = append(troubles, moment{at: p.at(p.end.at), trouble: p.ended()})
		}
	}
	for _, a := range r.aborts() {
		troubles = append(troubles, moment{at: a.at, trouble: a.of.abortText()})
	}
	slices.SortStableFunc(troubles, byTime)
	last := after
	for _, t := range troubles {
		if before := r.justBefore(t); t.at.Sub(last) > verdict.SweepTime && before.at.After(after) {
			all = append(all, before)
		}
		last = later(last, t.at)
	}
	outlived := func(p *process) bool { return p.end.at == 0 || p.at(p.end.at).After(r.End) }
	all = all[:min(len(all), mostLater)]
	if slices.ContainsFunc(r.procs, outlived) && r.End.Sub(last) > verdict.SweepTime {
		all = append(all, r.end())
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

// aborts are those of communicators with an operation that had been launched so long ago that it had stalled unless it
// was complete, which the rank's own tape doesn't tell. Of aborts within verdict.SweepTime of each other, only the
// first counts.
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
	all = slices.CompactFunc(all, func(a, b abort) bool { return b.at.Sub(a.at) <= verdict.SweepTime })
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

// firstLeft is the first process that left in order after the oldest call began in the middle of which a process left;
// nil if none did.
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

// wentWell reports whether all processes are known to have exited with 0: then what the job gave up it gave up on
// purpose.
func (r *Report) wentWell() bool {
	return !slices.ContainsFunc(r.procs, func(p *process) bool { return !p.end.exit.Known || p.end.exit.Failed() })
}

// lastSign is the last time at which any process gave a sign of life. It is not known if a process has no telemetry of
// its own. If the machine stands still, a launcher may see the ends of processes later.
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

// lastHung are the times at which an agent last knew that the job hung, one for each hang: within a hang, the pauses
// between the agent's notes double, and the last note may say that the hang is over.
func (p *process) lastHung() (last []time.Time) {
	var first int64
	for i, at := range p.hung {
		if i == 0 || at-p.hung[i-1] > p.hung[i-1]-first+int64(2*time.Second) {
			first = at
			last = append(last, p.at(at))
		} else {
			last[len(last)-1] = p.at(p.hung[i-1])
		}
	}
	return last
}

// heldMoments are moments at which calls had stalled that later ended well, as far as the tapes or an agent's notes
// tell, or processes were stopped that later went on. Of stalls that overlap the first counts, halfway between its
// threshold and its end: by then, late ranks may have come. Where an agent was there to the end, its notes, not the
// tapes, say when devices stalled.
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
	if i := slices.IndexFunc(r.procs, func(p *process) bool { return len(p.hung) > 0 }); i >= 0 {
		for _, at := range r.procs[i].lastHung() {
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
		all = append(all, momentAt(s.began.Add(s.end.Sub(s.began)/2)))
	}
	// A straggler may last longer than a stall, and has many notes: its moments have a bound of their own.
	all = all[max(0, len(all)-MaxHeld):]
	if i := slices.IndexFunc(r.procs, func(p *process) bool { return len(p.devices) > 0 }); i >= 0 {
		var slow []moment
		for _, s := range r.procs[i].devices {
			if len(s.stays) > 0 {
				slow = append(slow, momentAt(r.procs[i].at(s.at)))
			}
		}
		all = append(all, slow[max(0, len(slow)-MaxHeld):]...)
		slices.SortStableFunc(all, byTime)
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
