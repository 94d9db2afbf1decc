package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

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

	later bool // than the others, of which Ending says when they were
}

// MaxHeld is how many times at which the job was held up a Report has, and at how many at which it was slow.
const MaxHeld = 16

// find judges the job at each moment in turn, until there is a verdict that is certain. Without one, the first moment
// with a verdict counts. Those who waited then are not accused of what came after it, such as their ends. If the job
// was ended from outside later, or still runs, what held it up then is found, too.
func (r *Report) find(moments []moment) (found []Finding, at moment) {
	var slow, unknown []Finding
	for i, m := range moments {
		var here []Finding
		known, certain := false, false
		for _, v := range r.verdicts(m.at) {
			if v.Reason == verdict.Straggler {
				slow = append(slow[:0], Finding{Verdict: v, At: m.at})
				continue
			}
			if waitedThen(&v, found) {
				continue
			}
			here = append(here, Finding{Verdict: v, At: m.at})
			known = known || v.Reason != verdict.Unknown
			certain = certain || v.Reason != verdict.Unknown && v.Confidence == verdict.Certain
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

// until adds to what was found what held the job up when it was ended from outside, or holds it up now, at the last of
// the later moments: verdicts that are certain, on ranks that were not named before, nor waited in what still lasts,
// and those found before for which nobody had waited yet.
func (r *Report) until(found []Finding, later []moment) []Finding {
	if len(later) == 0 || !later[len(later)-1].ended && !later[len(later)-1].now {
		return found
	}
	at := later[len(later)-1].at
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
		r.hung = r.hung || v.Urgent()
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

// refutes tells whether a finding shows that the call of a rank was wrong which waited in it at an earlier moment: then
// those that had not come were not to.
func (f *Finding) refutes(earlier *Finding) bool {
	return f.Reason == verdict.Mismatch && f.Comm == earlier.Comm && f.Call == earlier.Call && f.Seq == earlier.Seq &&
		waitedThen(&f.Verdict, []Finding{*earlier})
}

// verdicts are those on the job at a time.
func (r *Report) verdicts(at time.Time) []verdict.Verdict {
	if r.frozen(at) {
		return nil
	}
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
	verdicts, _ := verdict.Diagnose(notes)
	return verdicts
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
		JobSize: r.size,
	}
	switch end := p.end.at; {
	case end > 0 && end <= now:
		n.Fate, n.FateAge, n.Cause, n.Told = verdict.Dead, time.Duration(now-end), p.end.how, p.end.exit.Told()
		n.Found = p.end.found && !p.end.exit.Known
		closed := p.state() == StateClosed
		if p.end.exit.Code == 0 && (closed || p.state() == StateExited) {
			n.Fate = verdict.Departed
			if closed {
				n.Cause = ""
			}
		}
	case p.end.left > 0 && p.end.left <= now:
		n.Fate, n.FateAge = verdict.Departed, time.Duration(now-p.end.left)
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
	if at := p.header.Resumed; at > 0 && at <= now {
		m.Resumed(p.header.Paused, at)
	}
	m.StaysAs(p.staysAt(now))
	n.Fold(m, now)
	return n, err
}

// staysAt is what an agent noted of the process's devices last at a time.
func (p *process) staysAt(now int64) map[uint32]model.Stay {
	after := slices.IndexFunc(p.seen, func(s seen) bool { return s.at > now })
	if after < 0 {
		after = len(p.seen)
	}
	if after == 0 {
		return nil
	}
	return p.seen[after-1].stays
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

// straggles tells whether a finding is that a rank holds up a job that goes on.
func straggles(f Finding) bool { return f.Reason == verdict.Straggler }

// Ending is how the job ended.
type Ending struct {
	// How is "running", "completed", "failed", "ended" (from outside) or "killed": processes ended without closing
	// their tapes, and no other rank waited for them.
	How  string    `json:"how"`
	Time time.Time `json:"time,omitzero"`
	Text string    `json:"text"`

	// Text in two parts: what comes before the findings and, without its full stop, before those that are later.
	lead, then string
}

// well is the ending of a job with which nothing is wrong at the end, as far as the tapes show.
func (r *Report) well(how, text string) Ending {
	if len(r.Findings) == 0 {
		lead := "nothing went wrong"
		if len(r.Mistakes) > 0 {
			lead = "nothing but the mistakes below went wrong"
		}
		switch held, running := len(r.Held) > 0, how == "running"; {
		case held && running:
			lead = "nothing is wrong now"
		case held && !slices.ContainsFunc(r.Held, func(f Finding) bool { return !straggles(f) }):
			lead = "it was slow for some time"
		case held:
			lead = "nothing was wrong in the end"
		case running:
			lead += " so far"
		}
		if r.partial() {
			lead = "as far as the tapes show, " + lead
		}
		text = lead + ": " + text
	}
	return Ending{How: how, Text: capital(text) + "."}
}

// partial tells whether the tapes don't show all of the job: ranks have none, or operations are in CUDA graphs.
func (r *Report) partial() bool {
	return slices.ContainsFunc(r.comms, func(c *comm) bool {
		_, absent := c.absent()
		return absent > 0 || slices.ContainsFunc(c.members, func(m *member) bool { return m.Captured > 0 })
	})
}

// ending says how the job ended. at is the moment of the findings.
func (r *Report) ending(at moment) Ending {
	in, swept := make(map[ProcessState]int), 0
	for _, p := range r.procs {
		state := p.state()
		in[state]++
		if (state == StateDied || state == StateUnknown) && p.swept() {
			swept++
		}
	}
	running, closed, exited := in[StateAlive], in[StateClosed], in[StateExited]
	failures := r.failures()
	told := slices.IndexFunc(r.procs, func(p *process) bool { return p.end.signaled > 0 })
	outside := ""
	if told >= 0 {
		p := r.procs[told]
		outside = fmt.Sprintf("The job was ended from outside by %s at %s", p.end.signal,
			clockTime(p.at(p.end.signaled)))
	}
	failed := slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Reason != verdict.Straggler && f.Reason != verdict.Unknown
	})
	switch {
	case running > 0:
		e := r.well("running", fmt.Sprintf("%d of %s %s", running, count(len(r.procs), "process"),
			english.PluralWord(running, "runs", "run")))
		if failed && !at.now {
			r.past = true
			e.Text = fmt.Sprintf("This is how it was %s. %s", at.title, e.Text)
		}
		return e
	case told >= 0 && at.ended:
		e := Ending{How: "ended", Time: r.procs[told].at(r.procs[told].end.signaled), Text: outside}
		if failed {
			e.Text += ", while it hung."
		} else {
			slow, well := "", ", while all was well."
			if slices.ContainsFunc(r.Findings, straggles) {
				slow = ", while it was slow."
			}
			if r.partial() {
				well = ", while all was well as far as the tapes show."
			}
			e.Text += cmp.Or(slow, r.tooShort(at.at), well)
		}
		return e
	case r.lost != nil && at.ended:
		l := r.lost
		return Ending{How: "failed", Time: l.of.at(l.at), Text: fmt.Sprintf(
			"%s failed at %s, before it had a tape: %s. Its output may say why; the tapes don't.",
			capital(l.name), clockTime(l.of.at(l.at)), l.how)}
	case closed+exited+swept == len(r.procs) && !failed && (swept == 0 || len(failures) > 0):
		if len(failures) > 0 {
			p := failures[0]
			text := capital(p.name())
			switch {
			case p.state() == StateExited:
				text += " did not stop Carillon: " + p.end.how
			case p.end.exit.Known:
				text += " closed its tape in order, and then " + p.end.how
			default:
				text += " closed its tape at " + clockTime(p.at(p.end.at))
			}
			e := Ending{How: "failed", Time: p.at(p.end.at), Text: text + "."}
			var more []int
			for _, o := range failures[1:] {
				if o.rank >= 0 {
					more = append(more, o.rank)
				}
			}
			if len(more) > 0 {
				e.Text += fmt.Sprintf(" %s failed as well.", capital(words.Ranks(more)))
			}
			if a := p.failedAct(); a != nil {
				e.Text += fmt.Sprintf(" The %s of %s had failed on it: %s.", a.Kind,
					cmp.Or(words.Line(a.Comm.Name), a.Comm.ID.Short()), strings.TrimSuffix(words.Line(a.Text), "."))
			} else if len(r.Mistakes) == 0 {
				e.Text += " Its output may say why; the tapes don't."
			}
			return e
		}
		if e := r.program; e != nil && e.Exit.Failed() { // it launched them
			p := r.procs[0]
			return Ending{How: "failed", Time: p.at(e.Mono), Text: fmt.Sprintf("No process with a tape is known to "+
				"have failed, but the program that carillon attach ran (pid %d) did: %s. Its output may say why; the "+
				"tapes don't.", e.PID, e.Exit.How())}
		}
		if exited > 0 {
			return r.well("completed",
				fmt.Sprintf("all processes exited with 0, %d of them without stopping Carillon", exited))
		}
		if slices.ContainsFunc(r.procs, func(p *process) bool { return !p.end.exit.Known }) {
			return r.well("completed", "all processes closed their tapes in order")
		}
		return r.well("completed", "all processes ended in order")
	case failed:
		e := Ending{How: "failed", Time: at.at, lead: "This is how it was " + at.title + "."}
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.later }) {
			e.lead = capital(at.trouble) + "."
		}
		e.Text = e.lead
		if outside != "" {
			e.then = outside
			if r.hung {
				e.then += ", while it still hung"
			}
			e.Text += " " + e.then + "."
		}
		return e
	default:
		return r.unnoticed(len(r.procs)-closed, failures)
	}
}

// failures are the processes that failed, other than by their launcher's hand, the first one first.
func (r *Report) failures() []*process {
	failed := slices.DeleteFunc(slices.Clone(r.procs), func(p *process) bool {
		return !p.failed() || p.swept()
	})
	slices.SortStableFunc(failed, byEnd)
	return failed
}

// failed tells whether the process is known to have failed: by how it ended or, if nobody saw that, by the act that it
// ended last.
func (p *process) failed() bool {
	return p.end.exit.Failed() || p.header.Closed && !p.end.exit.Known && p.failedAct() != nil
}

// failedAct is the last act that one of the process's ranks ended, if that failed; nil if there is none.
func (p *process) failedAct() *model.Act {
	for _, rank := range p.model.Ranks() {
		if a := rank.LastAct; a != nil && a.Code != lifecycle.CodeOK {
			return a
		}
	}
	return nil
}

// longTime is how long a call must have waited for another rank to be mentioned, if it is no hang.
const longTime = 2 * time.Second

// tooShort is the clause about the call that had waited longest at a time at which nobody was found to hold it up;
// empty if none had waited for longTime.
func (r *Report) tooShort(at time.Time) string {
	var slots []verdict.Slot
	for _, p := range r.procs {
		if n, err := r.note(p, at); err == nil && n.Fate == verdict.Alive {
			slots = append(slots, n.Slots...)
		}
	}
	waiting := slices.DeleteFunc(slices.Clone(slots), func(s verdict.Slot) bool {
		return s.InFlight == 0 || s.Age < longTime
	})
	if len(waiting) == 0 {
		return ""
	}
	longest := slices.MaxFunc(waiting, func(a, b verdict.Slot) int { return cmp.Compare(a.Age, b.Age) })
	wait := longest.Wait
	if wait < 0 && longest.Op.Call.IsCollective() { // NCCL doesn't say for whom
		for i := range slots {
			if s := &slots[i]; s.Comm == longest.Comm && s.InFlight == 0 && s.Begun < longest.Seq {
				wait = s.Rank
			}
		}
	}
	call := fmt.Sprintf("%s on %s", numbered(longest.Op.Call.String(), longest.Seq),
		cmp.Or(words.Line(longest.Name), longest.Comm.Short()))
	if wait < 0 {
		return fmt.Sprintf(", while %s had gone on for %s; it is not known what it waited for.",
			call, span(int64(longest.Age)))
	}
	rank := fmt.Sprintf("rank %d of it", wait)
	for i := range slots {
		if s := &slots[i]; s.Comm == longest.Comm && s.Rank == wait && s.Job >= 0 {
			rank = fmt.Sprintf("rank %d", s.Job)
		}
	}
	return fmt.Sprintf(", before anything had taken long enough to be called a hang: %s had waited for %s for %s.",
		call, rank, span(int64(longest.Age)))
}

// unnoticed is the ending of a job of which n processes ended without closing their tapes, and no other rank waited.
func (r *Report) unnoticed(n int, failures []*process) Ending {
	known := slices.IndexFunc(r.procs, func(p *process) bool { return p.state() != StateClosed && p.end.how != "" })
	if len(failures) > 0 && failures[0].state() != StateClosed {
		known = slices.Index(r.procs, failures[0])
	}
	if known < 0 {
		return Ending{How: "killed", Text: fmt.Sprintf(
			"%s ended without closing %s: killed, or exited without stopping Carillon. No other "+
				"rank noticed before it ended too.", count(n, "process"),
			english.PluralWord(n, "its tape", "their tapes"))}
	}
	p := r.procs[known]
	e := Ending{
		How: "killed", Time: p.at(p.end.at), Text: fmt.Sprintf("%s ended at %s: %s. No other rank waited for it.",
			capital(p.name()), clockTime(p.at(p.end.at)), p.end.how),
	}
	if n > 1 {
		e.Text += fmt.Sprintf(" %s more ended without closing %s.", count(n-1, "process"),
			english.PluralWord(n-1, "its tape", "their tapes"))
	}
	return e
}

// mistakes are the refused calls by error and call, and the leaked communicators.
func (r *Report) mistakes() []Said {
	type key struct {
		code lifecycle.Code
		call lifecycle.Call
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
			k := key{e.code, e.call}
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
