package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// straggles tells whether a finding is that a rank holds up a job that goes on.
func straggles(f Finding) bool { return f.Reason == verdict.Straggler }

// hangs tells whether a verdict shows that the job hung: it is more than possible, and ranks wait.
func hangs(v *verdict.Verdict) bool { return v.Urgent() && len(v.Victims) > 0 }

// Ending is how the job ended.
type Ending struct {
	// How is "running", "completed", "failed", "ended" (from outside) or "killed": processes ended without closing
	// their tapes, and no other rank waited for them in the end.
	How  string    `json:"how"`
	Time time.Time `json:"time,omitzero"`
	Text string    `json:"text"`

	// Text in two parts: lead comes before the findings, and then, without its full stop, before the later ones. If a
	// job that runs or completed has a lead, its findings are of a time before.
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
		failed := r.failedOperation()
		if failed == "" || len(r.Mistakes)+len(r.Held) > 0 {
			text = lead + ": " + text
		}
		text += failed
	}
	return Ending{How: how, Text: capital(text) + "."}
}

// failedOperation is the clause about the operation that failed first, for a job in which no rank was found to be the
// cause; empty if none failed.
func (r *Report) failedOperation() string {
	var of *comm
	var first *member
	for _, c := range r.comms {
		for _, m := range c.members {
			if m.failedIn(&m.Last) && (first == nil || m.proc.at(m.Last.End).Before(first.proc.at(first.Last.End))) {
				of, first = c, m
			}
		}
	}
	if first == nil {
		return ""
	}
	var ranks []int
	for _, m := range of.members {
		if m.failedIn(&first.Last) {
			ranks = append(ranks, m.jobRank())
		}
	}
	o := &first.Last
	return fmt.Sprintf(", but %s on %s failed on %s: %s", numbered(o.Signature.Call.String(), o.Seq), first.name(),
		words.Ranks(sorted(ranks)), o.Code)
}

// failedIn tells whether a member's last operation is this one, and failed there. One that the rank itself ended with
// its communicator did not fail.
func (m *member) failedIn(o *model.Op) bool {
	last := &m.Last
	own := []lifecycle.Code{lifecycle.CodeOK, lifecycle.CodeAborted, lifecycle.CodeRevoked, lifecycle.CodeUnfinished}
	return last.End > 0 && !last.Refused() && !slices.Contains(own, last.Code) &&
		last.Seq == o.Seq && last.Signature.Call == o.Signature.Call
}

// partial tells whether the tapes don't show all of the job: processes have none, or operations are in CUDA graphs.
func (r *Report) partial() bool {
	return slices.ContainsFunc(r.Comms, func(c Comm) bool { return c.untaped() || c.Captured > 0 })
}

// ending says how the job ended. at is the moment of the findings.
func (r *Report) ending(at moment) Ending {
	in, swept := make(map[ProcessState]int), 0
	var told *process // to end, from outside
	for _, p := range r.procs {
		state := p.state()
		in[state]++
		if (state == StateDied || state == StateUnknown) && p.swept() {
			swept++
		}
		if told == nil && p.end.signaled > 0 {
			told = p
		}
	}
	failures := r.failures()
	hung := slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Reason != verdict.Straggler && f.Reason != verdict.Unknown
	})
	switch {
	case in[StateAlive] > 0:
		return r.runs(in[StateAlive], at, hung)
	case told != nil && at.ended:
		return r.canceled(told, at)
	case r.failedUntaped != nil && at.ended:
		u := r.failedUntaped
		return Ending{How: "failed", Time: u.at(), Text: fmt.Sprintf(
			"%s failed at %s, before it had a tape: %s. Its output may say why; the tapes don't.",
			capital(u.name()), clockTime(u.at()), u.end.Exit.How())}
	case in[StateClosed]+in[StateExited]+swept == len(r.procs) && !hung && (swept == 0 || len(failures) > 0):
		return r.endedByItself(failures, in[StateExited])
	case hung:
		return r.stoodStill(told, at)
	case told != nil && !slices.ContainsFunc(failures, func(p *process) bool {
		return p.at(p.end.at).Before(told.at(told.end.signaled))
	}):
		return r.canceledLater(told)
	default:
		return r.unnoticed(len(r.procs)-in[StateClosed], failures)
	}
}

// runs is the ending of a job of which n processes run.
func (r *Report) runs(n int, at moment, hung bool) Ending {
	e := r.well("running", fmt.Sprintf("%d of %s %s", n, count(len(r.procs), "process"),
		english.PluralWord(n, "runs", "run")))
	if hung && !at.now {
		e.Text = fmt.Sprintf("This is how it was %s. %s", at.title, e.Text)
		e.lead = e.Text
	}
	return e
}

// fromOutside says when the process, the first one that was, was told to end, and by which signal or why.
func (p *process) fromOutside() string {
	at := clockTime(p.at(p.end.signaled))
	if unix.SignalNum(p.end.signal) == 0 {
		return fmt.Sprintf("The job was ended from outside at %s because %s", at, p.end.signal)
	}
	return fmt.Sprintf("The job was ended from outside by %s at %s", p.end.signal, at)
}

// canceled is the ending of a job that was told to end at the moment of the findings.
func (r *Report) canceled(told *process, at moment) Ending {
	found := func(is func(Finding) bool) bool { return slices.ContainsFunc(r.Findings, is) }
	how := "."
	switch {
	case found(func(f Finding) bool { return hangs(&f.Verdict) }):
		how = ", while it hung."
	case found(straggles):
		how = ", while it was slow."
	case found(func(f Finding) bool { return f.Reason != verdict.Unknown }): // perhaps a mistake, but no hang
	case len(r.Findings) > 0:
		how = cmp.Or(r.tooShort(at.at), how)
	default:
		well := ", while all was well"
		if len(r.Mistakes) > 0 {
			well = ", while nothing but the mistakes below had gone wrong"
		}
		if r.partial() {
			well += " as far as the tapes show"
		}
		how = cmp.Or(r.tooShort(at.at), well+".")
	}
	return Ending{How: "ended", Time: told.at(told.end.signaled), Text: told.fromOutside() + how}
}

// canceledLater is the ending of a job that was told to end after it had survived a failure.
func (r *Report) canceledLater(told *process) Ending {
	text := told.fromOutside() + "."
	if m := r.firstFailure(); m != nil && m.proc.at(m.Failure.Time).Before(told.at(told.end.signaled)) {
		text += " " + m.hadFailed()
	}
	return Ending{How: "ended", Time: told.at(told.end.signaled), Text: text}
}

// hadFailed says that the rank's communicator had failed on it, and why.
func (m *member) hadFailed() string {
	return fmt.Sprintf("Before that, %s had failed on %s: %s.", m.name(), m.label(), clause(m.Failure.Text))
}

// endedByItself is the ending of a job in which no rank was found to hold others up. Its processes all closed their
// tapes, exited without closing them (exited of them), or were ended because others had failed.
func (r *Report) endedByItself(failures []*process, exited int) Ending {
	if len(failures) > 0 {
		return r.failed(failures)
	}
	if e := r.program; e != nil && e.Exit.Failed() { // it launched them
		p := r.procs[0]
		return Ending{How: "failed", Time: p.at(e.Mono), Text: fmt.Sprintf("No process with a tape is known to "+
			"have failed, but the program that carillon attach ran (pid %d) did: %s. Its output may say why; the "+
			"tapes don't.", e.PID, e.Exit.How())}
	}
	text := "all processes ended in order"
	if exited > 0 {
		text = fmt.Sprintf("all processes exited with 0, %d of them without stopping Carillon", exited)
	} else if slices.ContainsFunc(r.procs, func(p *process) bool { return !p.end.exit.Known }) {
		text = "all processes closed their tapes in order"
	}
	return r.well("completed", text)
}

// failed is the ending of a job whose processes failed by themselves.
func (r *Report) failed(failures []*process) Ending {
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
	text += "."
	var more []int
	for _, o := range failures[1:] {
		if o.rank >= 0 {
			more = append(more, o.rank)
		}
	}
	if len(more) > 0 {
		text += fmt.Sprintf(" %s failed as well.", capital(words.Ranks(more)))
	}
	if a := p.failedAct(); a != nil {
		text += fmt.Sprintf(" The %s of %s had failed on it: %s.", a.Kind, commName(a.Comm.Name, a.Comm.ID),
			clause(a.Text))
	} else if m := r.firstFailure(); m != nil {
		text += " " + m.hadFailed()
	} else if len(r.Mistakes) == 0 {
		text += " Its output may say why; the tapes don't."
	}
	return Ending{How: "failed", Time: p.at(p.end.at), Text: text}
}

// firstFailure is the rank on which a communicator failed first; nil if none did.
func (r *Report) firstFailure() (first *member) {
	for _, p := range r.procs {
		for _, m := range p.members {
			if m.Failure != nil && (first == nil || p.at(m.Failure.Time).Before(first.proc.at(first.Failure.Time))) {
				first = m
			}
		}
	}
	return first
}

// stoodStill is the ending of a job that the findings say was held up. told is the first process that was told to end
// later; nil if none was.
func (r *Report) stoodStill(told *process, at moment) Ending {
	e := Ending{How: "failed", Time: at.at, lead: "This is how it was " + at.title + "."}
	later := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.later })
	if later == 0 {
		e.lead = capital(at.trouble) + "."
	}
	e.Text = e.lead
	if told != nil {
		e.then = told.fromOutside()
		if r.stillHung {
			e.then += ", while it still hung"
		}
	} else if m, a := r.failedSince(at.at); m != nil && later < 0 {
		e.then = fmt.Sprintf("Later, the %s of %s failed on %s: %s", a.Kind, m.name(), m.label(), clause(a.Text))
	}
	if e.then != "" {
		e.Text += " " + e.then + "."
	}
	return e
}

// failedSince returns what ended a job that had survived until then: of the acts that make a communicator and began
// after a time, the first that failed and was the last thing that its process did. It returns nil if there is none, or
// if the acts failed only because another rank had ended.
func (r *Report) failedSince(at time.Time) (of *member, first *model.Act) {
	for _, p := range r.failures() {
		m, a := p.lastMade()
		switch {
		case a == nil, !p.at(a.Start).After(at), first != nil && !p.at(a.End).Before(of.proc.at(first.End)):
		case slices.ContainsFunc(p.members, func(o *member) bool { return o.lastEnd > a.End }):
		case slices.Contains([]lifecycle.Code{
			lifecycle.CodeOK, lifecycle.CodeRankDead, lifecycle.CodeUnreachable, lifecycle.CodePeerAborted,
			lifecycle.CodeRevoked, lifecycle.CodeAborted, lifecycle.CodeCanceled,
		}, a.Code):
		default:
			of, first = m, a
		}
	}
	return of, first
}

// lastMade is the last act that the process ended of those by which programs make communicators; nil if there is none.
func (p *process) lastMade() (of *member, last *model.Act) {
	makes := []lifecycle.Call{lifecycle.CallSplit, lifecycle.CallShrink, lifecycle.CallGrow}
	for _, m := range p.members {
		for _, a := range m.over {
			own := a.Kind == tape.ActInit && !slices.Contains(makes, a.First.Call) // else it is part of such a call
			making := own || a.Kind == tape.ActSplit || a.Kind == tape.ActShrink || a.Kind == tape.ActGrow
			if making && (last == nil || a.End > last.End) {
				of, last = m, a
			}
		}
	}
	return of, last
}

// failures are the processes that failed, except those that their launcher ended, the first one first.
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

// tooShort is the clause about what ranks had waited for, at a time at which no call had stalled; empty if none had
// waited for longTime.
func (r *Report) tooShort(at time.Time) string {
	notes := r.notesOfAll(at)
	var longest *verdict.Slot
	for i := range notes {
		slots := notes[i].Slots
		for j := range slots {
			s := &slots[j]
			if notes[i].Fate != verdict.Alive || s.InFlight == 0 || s.Age < longTime {
				continue
			}
			if s.Stalled = true; longest == nil || s.Age > longest.Age {
				longest = s
			}
		}
	}
	if longest == nil {
		return ""
	}
	verdicts, _ := verdict.Diagnose(notes)
	if i := slices.IndexFunc(verdicts, func(v verdict.Verdict) bool { return hangs(&v) }); i >= 0 {
		return fmt.Sprintf(", before anything had taken long enough to be called a hang: %s.", verdicts[i].Text)
	}
	return fmt.Sprintf(", while %s on %s had gone on for %s; it is not known what it waited for.",
		numbered(longest.Op.Call.String(), longest.Seq), commName(longest.Name, longest.Comm),
		span(int64(longest.Age)))
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
		How: "killed", Time: p.at(p.end.at), Text: fmt.Sprintf("%s ended at %s: %s.",
			capital(p.name()), clockTime(p.at(p.end.at)), p.end.how),
	}
	if !slices.ContainsFunc(r.Held, func(f Finding) bool { return slices.ContainsFunc(f.Culprits, p.is) }) {
		e.Text += " No other rank waited for it."
	}
	if n > 1 {
		e.Text += fmt.Sprintf(" %s more ended without closing %s.", count(n-1, "process"),
			english.PluralWord(n-1, "its tape", "their tapes"))
	}
	return e
}
