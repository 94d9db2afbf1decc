package postmortem

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Finding is a verdict on the job at a moment. Its JSON is the verdict's, as a running job tells it, with the time of
// the moment.
type Finding struct {
	verdict.Verdict
	// At is the moment at which the job was judged; ages are as of then.
	At time.Time `json:"at"`

	later bool // it is of a later moment than the others, whose moment Ending names
}

// MaxHeld bounds the times at which the job was held up that a Report has, and those at which it was slow.
const MaxHeld = 16

// find judges the job at each moment in turn, until there is a verdict that is certain. Without one, the first moment
// with a verdict counts. Ranks that waited then are not accused of what came after it, such as their ends. If the job
// was ended from outside later, or still runs, find adds what held it up then.
func (r *Report) find(moments []moment) (found []Finding, at moment) {
	var slow, unknown []Finding
	for i, m := range moments {
		var here, slowHere []Finding
		known, certain := false, false
		for _, v := range r.verdicts(m.at) {
			if v.Reason == verdict.Straggler {
				slowHere = append(slowHere, Finding{Verdict: v, At: m.at})
				continue
			}
			if waitedThen(&v, found) {
				continue
			}
			here = append(here, Finding{Verdict: v, At: m.at})
			known = known || v.Reason != verdict.Unknown
			certain = certain || v.Reason != verdict.Unknown && v.Confidence == verdict.Certain
		}
		if slowHere != nil {
			slow = slowHere
		}
		switch {
		case certain:
			return r.until(here, moments[i+1:]), m
		case known && found == nil:
			found, at = here, m
		case !known && here != nil:
			unknown = here
		}
		if found == nil && (i == 0 || !m.ended) { // else something else was wrong before it was ended
			at = m
		}
	}
	if found == nil {
		found = append(unknown, slow...)
	}
	return found, at
}

// until adds what held the job up at the last of the later moments, if that is when the job was ended from outside,
// now, or when the job was last seen. It adds verdicts that are certain and whose ranks were not named before, nor
// waited in a call that still lasts. Verdicts of found for which no rank had waited yet are replaced by their later
// state.
func (r *Report) until(found []Finding, later []moment) []Finding {
	if len(later) == 0 {
		return found
	}
	last := later[len(later)-1]
	if !last.ended && !last.now && !last.last {
		return found
	}
	at := last.at
	lasts := func(v *verdict.Verdict) bool {
		return slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool {
			return slices.ContainsFunc(found, func(f Finding) bool { return slices.ContainsFunc(f.Victims, w.Same) })
		})
	}
	named := func(rank verdict.Rank) bool {
		return slices.ContainsFunc(found, func(f Finding) bool { return slices.ContainsFunc(f.Culprits, rank.Same) })
	}
	var more []Finding
	for _, v := range r.verdicts(at) {
		r.stillHung = r.stillHung || hangs(&v)
		old := slices.IndexFunc(found, func(f Finding) bool { return f.ID == v.ID && len(f.Victims) == 0 })
		if old >= 0 {
			found[old] = Finding{v, at, true}
			continue
		}
		if v.Confidence == verdict.Certain && v.Reason != verdict.Unknown && v.Urgent() &&
			(!lasts(&v) || !waitedThen(&v, found)) && !slices.ContainsFunc(v.Culprits, named) {
			more = append(more, Finding{v, at, true})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		switch {
		case a.later == b.later:
			return 0
		case b.later:
			return -1
		}
		return 1
	})
	return append(found, more...)
}

// waitedThen tells whether a verdict accuses only ranks that waited at an earlier moment.
func waitedThen(v *verdict.Verdict, before []Finding) bool {
	return len(v.Culprits) > 0 && !slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool {
		return !slices.ContainsFunc(before, func(b Finding) bool {
			return b.Urgent() && slices.ContainsFunc(b.Victims, func(w verdict.Wait) bool { return w.Rank.Same(r) })
		})
	})
}

// refutes reports whether a finding shows that the call in which a rank waited at an earlier moment was wrong: then the
// ranks that had not come were not meant to.
func (f *Finding) refutes(earlier *Finding) bool {
	return f.Reason == verdict.Mismatch && f.Comm == earlier.Comm && f.Call == earlier.Call && f.Seq == earlier.Seq &&
		waitedThen(&f.Verdict, []Finding{*earlier})
}

// verdicts are those on the job at a time.
func (r *Report) verdicts(at time.Time) []verdict.Verdict {
	if r.frozen(at) {
		return nil
	}
	verdicts, _ := verdict.Diagnose(r.notesOfAll(at))
	return verdicts
}

// notesOfAll are the notes of all processes that are known at a time.
func (r *Report) notesOfAll(at time.Time) []verdict.Note {
	notes := r.notes(at)
	for i := range r.untaped {
		if n, over := r.untaped[i].note(at, r.size); over {
			notes = append(notes, n)
		}
	}
	return notes
}

// notes are those of the processes with tapes at a time.
func (r *Report) notes(at time.Time) []verdict.Note {
	all, errs := make([]verdict.Note, len(r.procs)), make([]error, len(r.procs))
	parallel(len(r.procs), func(i int) { all[i], errs[i] = r.note(r.procs[i], at) })
	notes := make([]verdict.Note, 0, len(all))
	for i, p := range r.procs {
		if p.header.Created.After(at) && p.at(p.first).After(at) {
			continue
		}
		if errs[i] != nil && !p.unread {
			p.unread = true
			r.problem(p.path, "could not be read again: %v", cause(errs[i]))
		}
		notes = append(notes, all[i])
	}
	return notes
}

// quietTime is how long, at least, a process must give no sign of life, while others do, to count as stopped.
const quietTime = 3 * time.Second

// quiet is quietTime for this process, which gives a sign of life every quarter of SlowAfter.
func (p *process) quiet() int64 { return int64(max(quietTime, p.header.SlowAfter)) }

// frozen tells whether all processes paused at a time, as on a machine that stands still: none was stopped, and how
// long their calls take means nothing.
func (r *Report) frozen(at time.Time) bool {
	return len(r.procs) > 1 && !slices.ContainsFunc(r.procs, func(p *process) bool {
		now := p.mono(at)
		return now < p.header.Paused || now >= p.header.Resumed
	})
}

// pauseTime is how long a process that later went on must have paused to count as stopped.
const pauseTime = 500 * time.Millisecond

// wasStopped tells whether the process was stopped when it last stood still. It was not if its threads waited for a
// processor for most of that time.
func (p *process) wasStopped() bool {
	h := &p.header
	return h.Paused > 0 && 2*int64(h.Starved) < h.Resumed-h.Paused
}

// note is the note of the process at a time.
func (r *Report) note(p *process, at time.Time) (verdict.Note, error) {
	now, host := p.mono(at), words.Line(p.header.Host)
	m, wrote, err := p.modelAt(now)
	paused := max(p.header.Paused, wrote) // a record is a sign of life, too
	n := verdict.Note{
		Member: fmt.Sprintf("%s-%d", host, p.header.KnownPID()), Host: host, PID: p.header.KnownPID(), Rank: p.rank,
		JobSize: r.size, Failed: p.end.exit.Code != 0,
	}
	switch end := p.end.at; {
	case end > 0 && end <= now:
		n.Fate, n.FateAge, n.Cause, n.Told = verdict.Dead, time.Duration(now-end), p.end.how, p.end.exit.Told()
		n.Found, n.Killed = p.end.found && !p.end.exit.Known, p.end.exit.Killed()
		n.Alone = p.singled()
		closed := p.state() == StateClosed
		if p.end.exit.Code == 0 && (closed || p.state() == StateExited) {
			n.Fate = verdict.Departed
			if closed {
				n.Cause = ""
			}
		}
	case p.end.left > 0 && p.end.left <= now:
		n.Fate, n.FateAge = verdict.Departed, time.Duration(now-p.end.left)
		if n.Failed {
			n.Cause = p.end.how + " afterwards"
		}
	case p.end.stopped > wrote && p.end.stopped <= now:
		n.Fate, n.FateAge, n.Cause = verdict.Stopped, time.Duration(now-p.end.stopped), "as an agent noted"
	case p.wasStopped() && now < p.header.Resumed && now-paused > int64(pauseTime):
		n.Fate, n.FateAge, n.Cause = verdict.Stopped, time.Duration(now-paused),
			"it gave no sign of life until it went on"
	case p.header.Seen > 0 && now-p.header.Seen > p.quiet() && r.otherSeen(p, now):
		n.Fate, n.FateAge, n.Cause = verdict.Stopped, time.Duration(now-p.header.Seen), "it gave no sign of life since"
	}
	n.Stale = now < p.from || p.cut || err != nil // the records of that time are overwritten, cut off or unreadable
	m.Learn(p.tallies)
	m.Terminated(p.header.Terminated)
	if at := p.header.Resumed; at > 0 && at <= now {
		m.Resumed(p.header.Paused, at)
	}
	m.StaysAs(p.staysAt(now))
	n.Fold(m, now)
	return n, err
}

// staysAt is what an agent had last noted of the process's devices at a time.
func (p *process) staysAt(now int64) map[uint32]model.Stay {
	for _, d := range slices.Backward(p.devices) {
		if d.at <= now {
			return d.stays
		}
	}
	return nil
}

// otherSeen tells whether another process with a comparable clock gave a sign of life after a time, or shortly before.
func (r *Report) otherSeen(p *process, now int64) bool {
	return slices.ContainsFunc(r.procs, func(o *process) bool {
		near := o.clock == p.clock || o.clock.close() && p.clock.close()
		return o != p && near && o.header.Seen > 0 && now-p.mono(o.at(o.header.Seen)) < p.quiet()/2
	})
}

// close tells whether the clock is exact enough to compare signs of life with those of other machines.
func (c *clock) close() bool {
	return c.Source == ClockReference || c.Source == ClockShared && c.hi-c.lo < int64(quietTime)/2
}

// modelAt is the process's model as of a time of its own clock, and when it had last written a record.
func (p *process) modelAt(now int64) (m *model.Process, wrote int64, err error) {
	if now >= p.last {
		return p.model, p.last, nil
	}
	m = model.New(p.limits())
	r, _, err := tape.OpenCut(p.path)
	if err != nil {
		return m, 0, err
	}
	defer r.Close() //nolint:errcheck // only read from
	for ev, err := range r.Events() {
		if err != nil {
			break // a Problem already, from the first reading
		}
		m.Until(&ev, now)
		if at := ev.Time(); at <= now {
			wrote = max(wrote, at)
		}
	}
	m.LookBack(p.slots, now)
	return m, wrote, nil
}

// mistakes are the refused calls by error, call, place and reason, and the leaked communicators.
func (r *Report) mistakes() []Said {
	type key struct {
		code lifecycle.Code
		call lifecycle.Call
		refusal
	}
	var all []*Said
	found := make(map[key]*Said)
	for _, c := range r.comms {
		for _, e := range c.errors() {
			if e.code == lifecycle.CodeLeaked { // no mistake of a program that failed
				e.by = slices.DeleteFunc(e.by, func(m *member) bool { return m.proc.failed() })
				e.calls = len(e.by)
			}
			if !e.misuse || len(e.by) == 0 {
				continue
			}
			k := key{e.code, e.call, e.refusal}
			if e.code == lifecycle.CodeLeaked {
				k.call = lifecycle.CallNone
			}
			s := found[k]
			if s == nil {
				s = &Said{Code: e.Code, Text: e.Text, Time: e.Time, Site: e.Site, First: e.First}
				found[k] = s
				all = append(all, s)
			}
			s.Times, s.least = s.Times+e.calls, s.least || e.least
			for _, m := range e.by {
				s.least = s.least || m.proc.refused
				s.Ranks = append(s.Ranks, m.jobRank())
			}
		}
	}
	list := make([]Said, 0, len(all))
	for _, s := range all {
		s.Ranks = sorted(s.Ranks)
		list = append(list, *s)
	}
	return list
}

// state is whether and how the process ended.
func (p *process) state() ProcessState {
	switch {
	case p.header.Closed, p.cut && p.end.exit.Known && !p.end.exit.Failed():
		return StateClosed
	case p.alive == osprocess.Alive:
		return StateAlive
	case p.end.exit.Known && p.end.exit.Signal == 0:
		return StateExited
	case p.alive == osprocess.Dead || p.end.how != "":
		return StateDied
	default:
		return StateUnknown
	}
}
