package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// processes returns the verdicts on processes that ended, stopped or are unreachable. Dead and unreachable processes
// get a verdict even if no rank waits for them yet; see stillNeeded. All unreachable processes share one verdict, as
// the network is the one cause. A process that ended because a communicator had failed before is a victim; one that was
// struck is not, even if the others have given up meanwhile. A process that had itself ended a communicator before gets
// a verdict for that instead.
func (w *walk) processes() []Verdict {
	ends := map[*Note][]*meeting{}
	left := map[*Note]bool{} // processes that had ended a communicator before
	for _, l := range w.leaves {
		switch l.why {
		case notAlive:
			ends[l.actor.note] = append(ends[l.actor.note], l.at)
		case leftComm:
			left[l.actor.note] = true
		case idle:
		}
	}
	var verdicts []Verdict
	var away []*Note
	struck := w.struck()
	for _, n := range w.notes {
		waitedFor := len(ends[n]) > 0
		switch n.Fate {
		case Alive:
		case Unreachable:
			if waitedFor || w.stillNeeded(n) {
				away = append(away, n)
			}
		case Dead:
			if w.maybeConsequence(n) || w.toldToEnd(n) {
				break
			}
			inside := slices.ContainsFunc(n.Slots, func(s Slot) bool { return s.Left == nil })
			if waitedFor || slices.Contains(struck, n) && inside || w.stillNeeded(n) && !w.failedFirst(n) && !left[n] {
				verdicts = append(verdicts, w.ended(n, ends))
			}
		case Stopped:
			verdicts = append(verdicts, w.processVerdict([]*Note{n}, ends))
		case Departed:
			if !waitedFor || w.maybeConsequence(n) {
				break
			}
			if m := ends[n][0]; m.mostLeft() {
				verdicts = append(verdicts, w.lateCall(m)...)
			} else {
				verdicts = append(verdicts, w.ended(n, ends))
			}
		}
	}
	if len(away) > 0 {
		verdicts = append(verdicts, w.processVerdict(away, ends))
	}
	return verdicts
}

// SweepTime is the longest time from the end of one process to the next when somebody ends several of them at once.
const SweepTime = 500 * time.Millisecond

// struck are the processes that somebody killed together while others of the job were left: one soon after the other,
// and the first of them before a communicator had failed in it. Each of them is a cause, although communicators may
// have failed in the later ones by then.
func (g *graph) struck() (all []*Note) {
	dead := slices.DeleteFunc(slices.Clone(g.notes), func(n *Note) bool { return n.Fate != Dead })
	slices.SortStableFunc(dead, func(a, b *Note) int { return cmp.Compare(b.FateAge, a.FateAge) })
	over := !slices.ContainsFunc(dead, func(n *Note) bool { return n.Killed && n.FateAge < SweepTime })
	var together []*Note
	for i, n := range dead {
		switch {
		case i == 0 || dead[i-1].FateAge-n.FateAge > SweepTime:
			together = nil
			if g.singled(n) && !g.failedFirst(n) {
				together = append(together, n)
			}
		case len(together) == 0, !g.singled(n), together[len(together)-1].FateAge-n.FateAge > SweepTime:
		case !over && !n.Alone:
			g.moving = true
		default:
			if together = append(together, n); len(together) == 2 {
				all = append(all, together[0])
			}
			all = append(all, n)
		}
	}
	return all
}

// singled tells whether somebody ended a dead process and, SweepTime later, not all of its machine, as a launcher does
// if a rank has failed: another process lives there. SIGTERM doesn't show that, as programs may handle it.
func (g *graph) singled(n *Note) bool {
	return n.Alone || n.Killed && slices.ContainsFunc(g.notes, func(o *Note) bool {
		return o.Fate == Alive && !o.Stale && o.MachineName() == n.MachineName()
	})
}

// failedFirst tells whether a communicator of the process had failed before the process ended, and it had not gone on.
func (g *graph) failedFirst(n *Note) bool {
	return slices.ContainsFunc(n.Slots, func(s Slot) bool {
		// Ages are not compared: another process reports them, which proves nothing.
		return s.Failure.unintended() && !n.wentOn(s.Root, s.Failure.Age)
	})
}

// maybeConsequence reports whether a process may have ended because another one had ended, or because of a failure
// shortly before. That is so if it was found dead after the other one, or its tape is lost: launchers end the other
// processes, and programs exit when a call fails.
func (g *graph) maybeConsequence(n *Note) bool {
	if n.Found && slices.ContainsFunc(g.notes, func(o *Note) bool {
		return o.Fate == Dead && !o.Found && !o.Told && o.FateAge+skew >= n.FateAge
	}) {
		return true
	}
	if n.tapeKnown() {
		return false
	}
	return g.troubleBefore(n.FateAge, func(s *Slot) bool {
		// If no known process has the rank that failed, it may be this process's: the call failed because it ended.
		return s.Failure.is(lifecycle.CodeMismatch) || g.ranks[commRank{s.Comm, s.Failure.Peer}] != nil
	}) || slices.ContainsFunc(g.actors, func(a *actor) bool {
		return slices.ContainsFunc(a.slots, func(s *Slot) bool { // n may have had a rank of that communicator
			return s.Left != nil && shortlyBefore(s.Left.Age, n.FateAge) && len(slices.Collect(g.members(s))) < s.Size
		})
	})
}

// toldToEnd reports whether a process was ended by a signal that asks for that, either with the whole job or because of
// another process, which ended earlier without such a signal, or left communicators that it had not ended: a launcher
// ends the others when a rank has failed. The whole job is all processes that have a note, even if their communicators
// have more ranks: an agent that sees only one machine can't tell whether the processes of other machines were ended,
// too, for example by a scheduler, or have failed, so that the launcher ended these.
func (g *graph) toldToEnd(n *Note) bool {
	whole := !slices.ContainsFunc(g.notes, func(o *Note) bool {
		return o.Fate != Departed && (o.Fate != Dead || !o.Told)
	})
	return n.Told && (whole || slices.ContainsFunc(g.notes, func(o *Note) bool {
		in := func(s Slot) bool { return s.Left == nil && s.Size > 1 }
		ended := o.Fate == Dead ||
			o.Fate == Departed && o.FateAge-n.FateAge < settleTime && slices.ContainsFunc(o.Slots, in)
		return ended && !o.Told && (o.Found || o.FateAge+skew >= n.FateAge)
	}))
}

// tapeKnown tells whether a process's last state is known, or was.
func (n *Note) tapeKnown() bool { return len(n.Slots) > 0 && !n.Stale || n.Blamed }

// endedTogether returns the processes that ended together with the note's, and whose tapes are lost, or that were found
// dead: which of them ended first, and why, is not known. They are those of its machine that ended at about the same
// time, and those of other machines that exited at the same moment, as programs do when a call has failed.
func (g *graph) endedTogether(n *Note) (some []*Note) {
	unseen := func(n *Note) bool { return n.Found || !n.tapeKnown() }
	if !unseen(n) || n.Host == "" {
		return nil
	}
	near := func(a, b *Note) bool {
		apart := (a.FateAge - b.FateAge).Abs()
		return a.MachineName() == b.MachineName() && apart < settleTime || !a.Killed && !b.Killed && apart < skew
	}
	some = []*Note{n}
	for i := 0; i < len(some); i++ { // each brings those near to it, so that the set is the same for all of them
		for _, o := range g.notes {
			if o.Fate == n.Fate && o.Found == n.Found && unseen(o) && near(some[i], o) && !slices.Contains(some, o) {
				some = append(some, o)
			}
		}
	}
	return some
}

// ended is the verdict on a process that ended. If others ended together with it, the verdict is on all of them, and is
// returned for each of them.
func (w *walk) ended(n *Note, ends map[*Note][]*meeting) Verdict {
	some := w.endedTogether(n)
	if len(some) < 2 {
		return w.processVerdict([]*Note{n}, ends)
	}
	v := w.processVerdict(some, ends)
	hosts := hostsOf(some)
	v.ID = hash("together", hosts, n.Found)
	v.Reason, v.Confidence = Unknown, Possible
	host, how, why := "host", "ended together", ": no process of that host is left to read their tapes"
	if len(hosts) > 1 {
		host, why = "hosts", ": no process of those hosts is left to read their tapes"
	}
	if n.Found {
		how, why = "were found dead", ""
	}
	v.Text = say("%s of %s %s %s %s ago, and which was first is not known%s",
		ranksText(v.Culprits), host, strings.Join(hosts, ", "), how, v.Age, why)
	v.Text.add("%s", waiting(v.Victims))
	v.Culprits, v.Evidence = nil, nil
	return v
}

// onceEach are the ranks of processes in order. Those without a number in the job are left out where the process is
// named by another one.
func onceEach(ranks []Rank) (all []Rank) {
	named := map[string]bool{}
	for _, numbered := range []bool{true, false} {
		for _, r := range ranks {
			if numbered && r.Job >= 0 || !numbered && r.Job < 0 && !named[r.Member] {
				all, named[r.Member] = append(all, r), true
			}
		}
	}
	slices.SortFunc(all, byRank)
	return all
}

// stillNeeded tells whether a living rank is in a communicator with a process that is gone, and has not gone on without
// it. A process without a tape may have been in any communicator that has an unknown rank.
func (g *graph) stillNeeded(n *Note) bool {
	in := map[lifecycle.CommID]bool{}
	for i := range n.Slots {
		in[n.Slots[i].Comm] = n.Slots[i].Left == nil
	}
	living := slices.DeleteFunc(slices.Clone(g.actors), (*actor).gone)
	if len(living) == 0 { // no process is left that could recover
		return len(n.Slots) == 0 || slices.ContainsFunc(n.Slots, func(s Slot) bool { return s.Left == nil })
	}
	taken := map[lifecycle.CommID]int{}
	for _, a := range living {
		for _, s := range a.slots {
			taken[s.Comm]++
		}
	}
	return slices.ContainsFunc(living, func(a *actor) bool {
		return slices.ContainsFunc(a.slots, func(s *Slot) bool {
			shared := in[s.Comm] || len(n.Slots) == 0 && taken[s.Comm] < s.Size
			return shared && s.Left == nil && !a.past(s) && !a.note.wentOn(s.Root, n.FateAge)
		})
	})
}

// processVerdict is the verdict on processes with one fate.
func (w *walk) processVerdict(notes []*Note, ends map[*Note][]*meeting) Verdict {
	fate := notes[0].Fate
	v := Verdict{Reason: fate.reason(), Confidence: Certain}
	var culprits []*actor
	var at []*meeting
	var calls []Text
	guessed := false
	for _, n := range notes {
		v.Age = max(v.Age, Age(n.FateAge))
		for _, m := range ends[n] {
			at = append(at, m)
			guessed = guessed || m.guessed
			for _, c := range m.carried {
				if c.by.note == n {
					v.Evidence = append(v.Evidence, say("its proxy carries the data from %s to %s in %s",
						m.rank(c.from), m.rank(c.to), m.text()))
				}
			}
		}
		for _, a := range w.actors {
			if a.note == n {
				culprits = append(culprits, a)
				v.Culprits = append(v.Culprits, Rank{Job: a.job, Comm: -1, Member: n.Member, Host: n.Host, PID: n.PID})
				calls = append(calls, a.lastCalls()...)
			}
		}
		if len(n.Slots) == 0 && fate != Departed {
			r := Rank{Member: n.Member, Host: n.Host, PID: n.PID}
			calls = append(calls, say("%s was in no communicator, or its tape could not be read", r.Process()))
		}
	}
	v.Culprits = onceEach(v.Culprits)
	v.Victims = victims(at, culprits)
	if len(v.Victims) > 0 {
		first := v.Victims[0]
		v.Comm, v.Name, v.Call, v.Seq = first.Comm, first.Name, first.Call, first.Seq
	}
	if guessed || notes[0].Found {
		v.Confidence = Likely
	}
	v.setID()
	v.Text = processText(notes, v.Culprits, v.Age)
	if fate == Departed && len(at) > 0 && len(culprits) == 1 {
		if m := at[0]; m.key.kind == collective || m.slot.inCountedMessages() {
			if m.leftIn(culprits[0]) != nil {
				v.Text.add(", in the middle of %s", m.text())
			} else {
				v.Text.add(", and has not %s", m.entered(m.ranksOf(culprits)))
			}
			v.Evidence = append(v.Evidence, attendance(m))
		}
	}
	v.Text.add("%s", waiting(v.Victims))
	if fate == Unreachable {
		aside, seen := w.viewpoint()
		v.Text.add("%s", aside)
		v.Evidence = append(v.Evidence, seen)
	}
	v.Evidence = append(v.Evidence, calls...)
	return v
}

// fateVerbs say what happened to a process. One that left the job may still run for a while.
var fateVerbs = map[Fate]string{
	Dead: "ended", Departed: "left the job", Stopped: "stopped", Unreachable: "stopped answering",
}

// processText says what happened to processes, and how that is known.
func processText(notes []*Note, ranks []Rank, age Age) Text {
	fate := notes[0].Fate
	verb := fateVerbs[fate]
	if notes[0].Found {
		verb = "was found dead"
	}
	t := say("%s", culpritsText(ranks))
	if hosts := hostsOf(notes); len(hosts) > 1 {
		t.add(" of hosts %s", strings.Join(hosts, ", "))
	} else if len(notes) > 1 {
		t.add(" of host %s", hosts[0])
	}
	if fate == Dead && age == 0 {
		t.add(" has ended")
	} else {
		t.add(" %s %s ago", verb, age)
	}
	var why []string
	for _, n := range notes {
		if n.Cause != "" && !slices.Contains(why, n.Cause) {
			why = append(why, n.Cause)
		}
	}
	if len(why) > 0 {
		t.add(": %s", strings.Join(why, "; "))
	}
	return t
}

// hostsOf are the machines of processes, each once, in order.
func hostsOf(notes []*Note) []string {
	hosts := make([]string, 0, len(notes))
	for _, n := range notes {
		hosts = append(hosts, n.MachineName())
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// viewpoint says from which hosts others are unreachable: if the network is partitioned, each side reports the other
// one. If at most half of the processes answer, aside says so in the sentence.
func (g *graph) viewpoint() (aside, seen Text) {
	all := slices.DeleteFunc(slices.Clone(g.notes), func(n *Note) bool { return n.Fate.ended() })
	here := slices.DeleteFunc(slices.Clone(all), func(n *Note) bool { return n.Fate == Unreachable })
	hosts := hostsOf(here)
	from := "here"
	if len(hosts) > 0 && hosts[0] != "" {
		from = hosts[0]
	}
	if more := len(hosts) - 1; more > 0 {
		from += fmt.Sprintf(" and %d more", more)
	}
	seen = say("as seen from %s, where %d of %d processes answer: if the network is partitioned, the other side "+
		"reports the same of this one", from, len(here), len(all))
	if 2*len(here) <= len(all) {
		aside = say("; only %d of %d processes answer: it may be those of %s that are cut off",
			len(here), len(all), from)
	}
	return aside, seen
}

// lastCalls are the calls that a rank was in when its process ended, by its tape.
func (a *actor) lastCalls() (calls []Text) {
	for _, s := range a.slots {
		rank := rankOf(a, s.Comm).String()
		if s.InFlight > 0 {
			calls = append(calls, say("%s was in %s", rank, callText(s.Op.Call.String(), s.Seq, s)))
		}
		for _, act := range s.Acts {
			calls = append(calls, say("%s was in the %s of %s", rank, act.Act.String(), commText(s)))
		}
	}
	return calls
}

// Resolved tells whether the cause of a verdict that no longer holds is gone: a stopped process runs again, the victims
// completed their call, or the job goes on without the dead. Otherwise the victims gave up, or the job has ended. notes
// are the present ones, and held is how long ago the verdict was last known to hold.
func (v *Verdict) Resolved(notes []Note, held time.Duration) bool {
	switch v.Reason {
	case RankStopped, RankUnreachable, RankDead:
		away := func(r Rank) bool {
			return r.Member == "" || slices.ContainsFunc(notes, func(n Note) bool {
				return n.Member == r.Member && n.Fate != Alive && n.Fate != Departed
			})
		}
		if v.Reason != RankDead && !slices.ContainsFunc(v.Culprits, away) {
			return true
		}
		return v.Reason != RankStopped && slices.ContainsFunc(notes, func(n Note) bool { // others go on without them
			return n.Fate == Alive && !v.Accuses(n.Member) &&
				slices.ContainsFunc(n.Slots, func(s Slot) bool { return s.healthy() && s.Seq > 0 && s.Age < held })
		})
	default:
	}
	return v.anyVictim(notes, func(w *Wait, s *Slot) bool { // a call that an abort cuts short is not complete
		return !w.stillIn(s) && !s.Failed && (s.Left == nil || s.Left.Act != abort)
	})
}

// CutShort reports whether victims of a verdict that no longer holds aborted the communicator in which they waited, as
// a watchdog does, and none of their processes has made another call since: such an abort healed nothing. notes are the
// present ones.
func (v *Verdict) CutShort(notes []Note) bool {
	cut := func(_ *Wait, s *Slot) bool { return s.Left != nil && s.Left.Act == abort }
	goesOn := func(n Note) bool {
		return v.anyVictim([]Note{n}, func(w *Wait, s *Slot) bool {
			return cut(w, s) && slices.ContainsFunc(n.Slots, func(t Slot) bool {
				return t.healthy() && t.Op.Call != lifecycle.CallNone && t.Age < s.Left.Age-s.Left.Took
			})
		})
	}
	return v.anyVictim(notes, cut) && !slices.ContainsFunc(notes, goesOn)
}

// Canceled reports whether a culprit's process canceled calls less than that long ago. notes are the present ones.
func (v *Verdict) Canceled(notes []Note, within time.Duration) bool {
	return slices.ContainsFunc(notes, func(n Note) bool {
		return v.Accuses(n.Member) && slices.ContainsFunc(n.Slots, func(s Slot) bool {
			return s.gaveUp() && s.Failure.Age < within
		})
	})
}

// Answered tells whether the culprits of a verdict that no longer holds run while a victim is still in its call: then
// the culprits have done what the victim waited for. notes are the present ones.
func (v *Verdict) Answered(notes []Note) bool {
	for _, r := range v.Culprits {
		if !slices.ContainsFunc(notes, func(n Note) bool { return n.Member == r.Member && n.Fate == Alive }) {
			return false
		}
	}
	return v.anyVictim(notes, (*Wait).stillIn)
}

// anyVictim tells whether is holds of a victim that runs and whose communicator has not failed.
func (v *Verdict) anyVictim(notes []Note, is func(*Wait, *Slot) bool) bool {
	return slices.ContainsFunc(notes, func(n Note) bool {
		return n.Fate == Alive && slices.ContainsFunc(v.Victims, func(w Wait) bool {
			return w.Rank.Member == n.Member && slices.ContainsFunc(n.Slots, func(s Slot) bool {
				same := s.Comm == w.Comm || s.Was == w.Comm // a communicator may get another id at the end of its init
				return same && (w.Rank.Comm < 0 || s.Rank == w.Rank.Comm) && s.Failure == nil && is(&w, &s)
			})
		})
	})
}

// Accuses tells whether a process, by its Member, is among the culprits.
func (v *Verdict) Accuses(member string) bool {
	return slices.ContainsFunc(v.Culprits, func(r Rank) bool { return r.Member == member })
}

// stillIn tells whether the rank of a slot is still in the call in which it waited.
func (w *Wait) stillIn(s *Slot) bool {
	return slices.ContainsFunc(s.Acts, func(a OpenAct) bool { return a.Act.String() == w.Call }) ||
		s.Left == nil && (s.InFlight > 0 || s.Unproven) && s.Seq <= w.Seq && s.Op.Call.String() == w.Call
}
