package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// patience is how long a process must be out of reach before that is its fate: where packets get lost, some come back in
// a moment.
const patience = 2 * time.Second

// silences are those who run, as far as is known, and did not answer in the last look, by their names, with the time of the first look
// since which that is so.
type silences map[string]time.Time

// look is what a look that has notes finds: who was silent before it counts on.
func (l silences) look(notes []verdict.Note, members []mesh.Status, now time.Time) silences {
	answered := make(map[string]bool, len(notes))
	for i := range notes {
		answered[notes[i].Member] = true
	}
	still := silences{}
	for i := range members {
		s := &members[i]
		// The coordinator probes each of many members rarely: one that is gone may seem alive to it for seconds.
		if answered[s.Member.Name] || s.State != mesh.Alive && (s.State != mesh.Suspect || s.Cause == mesh.CauseRuns) {
			continue
		}
		since, before := l[s.Member.Name]
		if !before {
			since = now
		}
		still[s.Member.Name] = since
	}
	return still
}

// How long who doesn't answer may keep the coordinator from saying that something is unknown: one, and all of them, where it is another
// one each time.
const (
	silentTime = 15 * time.Second
	unsureTime = 2 * silentTime
)

// listen finds who doesn't answer in a look that has notes, and whom it may be worth while to wait for.
func (l *loop) listen(notes []verdict.Note, members []mesh.Status, now time.Time) silences {
	if now.Sub(l.looked) > silentTime { // nobody knows who has answered since
		l.silent, l.unsure = nil, time.Time{}
	}
	l.silent = l.silent.look(notes, members, now)
	switch {
	case len(l.silent) == 0:
		l.unsure = time.Time{}
	case l.unsure.IsZero():
		l.unsure = now
	case now.Sub(l.unsure) >= unsureTime:
		return nil
	}
	return l.silent
}

// withFates says in the notes what the membership knows of each process, and adds a note of those that can't speak and
// of which nobody could read the tape. Who left has no note; who runs and doesn't answer has none either. unsure says that it isn't known
// yet what became of some: in a moment it may be, and with it what is unknown now.
func withFates(notes []verdict.Note, members []mesh.Status, now time.Time, silent silences) (with []verdict.Note, unsure bool) {
	byName := make(map[string]int, len(notes))
	for i := range notes {
		byName[notes[i].Member] = i
	}
	waiting := map[string]bool{} // hosts of those
	for i := range members {
		s := &members[i]
		since, quiet := silent[s.Member.Name]
		if quiet && now.Sub(since) < silentTime || s.State == mesh.Unreachable && now.Sub(s.Since) < patience {
			waiting[s.Member.Host] = true
		}
	}
	left := map[string]bool{}
	for i := range members {
		s := &members[i]
		fate, known := fateOf(s.State)
		if s.State == mesh.Left {
			left[s.Member.Name] = true
		}
		if !known || fate == verdict.Unreachable && waiting[s.Member.Host] { // a host is lost as one
			continue
		}
		at, ok := byName[s.Member.Name]
		if !ok {
			if fate == verdict.Alive {
				continue
			}
			at = len(notes)
			notes = append(notes, verdict.Note{Member: s.Member.Name})
		}
		n := &notes[at]
		n.Host, n.PID, n.Rank, n.JobSize = s.Member.Host, s.Member.PID, s.Member.Rank, s.Member.JobSize
		n.Fate, n.FateAge, n.Cause = fate, max(now.Sub(s.Since), 0), ""
		if fate == verdict.Alive {
			n.FateAge = 0
		} else {
			n.Cause = causeText(s)
		}
	}
	return slices.DeleteFunc(notes, func(n verdict.Note) bool { return left[n.Member] }), len(waiting) > 0
}

// withLost adds a note of those that don't run and that withFates leaves out while their host is waited for: a verdict that says so hasn't
// healed by that.
func withLost(notes []verdict.Note, members []mesh.Status) []verdict.Note {
	noted := make(map[string]bool, len(notes))
	for i := range notes {
		noted[notes[i].Member] = true
	}
	for i := range members {
		s := &members[i]
		if fate, known := fateOf(s.State); known && fate != verdict.Alive && !noted[s.Member.Name] {
			notes = append(notes, verdict.Note{Member: s.Member.Name, Fate: fate})
		}
	}
	return notes
}

// withForgotten adds a note of those who did not run as far as open verdicts say, and whom the membership has forgotten since: that
// nothing is known of them any more is no sign that they run.
func withForgotten(notes []verdict.Note, members []mesh.Status, open []verdict.Verdict) []verdict.Note {
	is := make(map[string]bool, len(members)+len(notes))
	for i := range members {
		is[members[i].Member.Name] = true
	}
	for i := range notes {
		is[notes[i].Member] = true
	}
	for i := range open {
		v := &open[i]
		if v.Reason != verdict.RankUnreachable && v.Reason != verdict.RankStopped {
			continue
		}
		for _, r := range v.Culprits {
			if r.Member != "" && !is[r.Member] {
				is[r.Member] = true
				notes = append(notes, verdict.Note{Member: r.Member, Fate: verdict.Unreachable})
			}
		}
	}
	return notes
}

// known leaves out the verdicts that say that not enough is known.
func known(verdicts []verdict.Verdict) []verdict.Verdict {
	return slices.DeleteFunc(verdicts, func(v verdict.Verdict) bool { return v.Reason == verdict.Unknown })
}

// kept adds those that were open and are not known to be healed: while some have not answered, that a verdict can't be reached says nothing.
// Of whose culprits something else is known now, it is left out.
func kept(verdicts, open []verdict.Verdict, healed func(*verdict.Verdict) bool) []verdict.Verdict {
	for i := range open {
		o := &open[i]
		id := o.ID()
		if !healed(o) && !slices.ContainsFunc(verdicts, func(v verdict.Verdict) bool { return v.ID() == id || blames(&v, o.Culprits) }) {
			verdicts = append(verdicts, *o)
		}
	}
	return verdicts
}

// blames tells whether all of some are among a verdict's culprits.
func blames(v *verdict.Verdict, some []verdict.Rank) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(r verdict.Rank) bool {
		return !slices.ContainsFunc(v.Culprits, func(c verdict.Rank) bool { return c.Member == r.Member && c.Job == r.Job })
	})
}

// continued tells which verdicts go on from those that are open: of whom only the place in a communicator is known has
// the name that it had (who made a mistake may have ended by now, in order, and is still the one), and some of those who
// were out of reach are not another cause than all of them (a host comes back one process after the other), nor are these
// than some of them (of whom a host can't reach any more it hears one by one).
func continued(verdicts, open []verdict.Verdict) []verdict.Verdict {
	for i := range verdicts {
		v := &verdicts[i]
		for j := range open {
			o := &open[j]
			if v.ID() == o.ID() && len(v.Comms) == 0 { // its tape was readable then
				v.Comms = o.Comms
			}
			switch {
			case o.Reason != v.Reason:
			case v.Reason == verdict.RankUnreachable && v.ID() != o.ID() &&
				(within(v.Culprits, o.Culprits) || v.Whole == "" && within(o.Culprits, v.Culprits)):
				v.Whole = o.ID()
			case o.Comm == v.Comm && o.Seq == v.Seq && len(o.Culprits) == len(v.Culprits):
				for at, old := range o.Culprits {
					if c := &v.Culprits[at]; c.Job < 0 && c.Comm == old.Comm {
						*c = old
					}
				}
			}
		}
	}
	return joined(verdicts)
}

// joined makes verdicts that go on from the same one, one again: of a host of which one process is back, the others are
// out of reach one by one.
func joined(verdicts []verdict.Verdict) []verdict.Verdict {
	var all []verdict.Verdict
	for _, v := range verdicts {
		at := slices.IndexFunc(all, func(o verdict.Verdict) bool { return v.Whole != "" && o.Whole == v.Whole })
		if at < 0 {
			all = append(all, v)
			continue
		}
		o := &all[at]
		o.Culprits = append(slices.Clone(o.Culprits), v.Culprits...)
		o.Evidence = append(slices.Clone(o.Evidence), v.Evidence...)
		o.Text += "; " + v.Text
		for _, w := range v.Victims { // most wait for both
			if !slices.ContainsFunc(o.Victims, func(other verdict.Wait) bool {
				return other.Rank == w.Rank && other.Comm == w.Comm && other.Seq == w.Seq
			}) {
				o.Victims = append(slices.Clone(o.Victims), w)
			}
		}
		slices.SortStableFunc(o.Victims, func(a, b verdict.Wait) int { return cmp.Compare(b.Age, a.Age) })
	}
	return all
}

// within tells whether all processes of some are among all.
func within(some, all []verdict.Rank) bool {
	return !slices.ContainsFunc(some, func(r verdict.Rank) bool {
		return r.Member == "" || !slices.ContainsFunc(all, func(o verdict.Rank) bool { return o.Member == r.Member })
	})
}

// fateOf is a member's state in the terms of a note.
func fateOf(s mesh.State) (fate verdict.Fate, known bool) {
	switch s {
	case mesh.Dead:
		return verdict.Dead, true
	case mesh.Stopped:
		return verdict.Stopped, true
	case mesh.Unreachable:
		return verdict.Unreachable, true
	case mesh.Alive, mesh.Suspect:
		return verdict.Alive, true
	default:
		return 0, false
	}
}

// causeText says how a process came to its fate.
func causeText(s *mesh.Status) string {
	switch s.Cause {
	case mesh.CauseExit:
		if s.Exit.Known {
			return s.Exit.String()
		}
		return "its process ended"
	case mesh.CauseSignal:
		return "stopped by a signal"
	case mesh.CauseTraced:
		return "held by a debugger"
	case mesh.CauseFrozen:
		return "its cgroup is frozen"
	case mesh.CauseSilence:
		return "it doesn't answer"
	case mesh.CauseRefused:
		return "its host answers, and nobody listens there"
	default:
		return s.Cause.String()
	}
}

// concerned leaves out the processes that ended or are out of reach and that nobody misses: no living process is in a
// communicator that they were in, but those that failed and from which it has gone on. Of whose communicators nothing is known,
// as of those on a lost host, stays, unless the living have gone on from one that failed because of such a loss, and have
// all seats of the communicators that they are in, but of failed ones that nobody uses, or it was buried before: a host that is lost takes
// along the tapes of those who ended there long ago.
func concerned(notes []verdict.Note, buried map[string]burial) []verdict.Note {
	lost := func(n *verdict.Note) bool { return n.Fate == verdict.Dead || n.Fate == verdict.Unreachable }
	goneOn := false
	for i := range notes {
		n := &notes[i]
		if lost(n) {
			continue
		}
		n.Slots = slices.DeleteFunc(slices.Clone(n.Slots), func(s verdict.Slot) bool {
			left := leftBehind(&s, n.Slots)
			goneOn = goneOn || left && failedByLoss(&s)
			return left
		})
	}
	living := map[lifecycle.CommID]map[int]bool{} // which ranks of each communicator
	for i := range notes {
		n := &notes[i]
		if lost(n) {
			continue
		}
		if goneOn { // what failed with the one that was left behind has no child of its own, perhaps
			n.Slots = slices.DeleteFunc(n.Slots, func(s verdict.Slot) bool { return failedByLoss(&s) && idle(&s) })
		}
		for j := range n.Slots {
			s := &n.Slots[j]
			if living[s.Comm] == nil {
				living[s.Comm] = map[int]bool{}
			}
			if s.Rank >= 0 {
				living[s.Comm][s.Rank] = true
			}
		}
	}
	full := true
	for i := range notes {
		for _, s := range notes[i].Slots {
			full = full && (lost(&notes[i]) || len(living[s.Comm]) == s.Size)
		}
	}
	return slices.DeleteFunc(notes, func(n verdict.Note) bool {
		switch {
		case !lost(&n):
			return false
		case len(n.Slots) == 0:
			return goneOn && full || buried[n.Member].reason != 0
		default:
			return !slices.ContainsFunc(n.Slots, func(s verdict.Slot) bool { return living[s.Comm] != nil })
		}
	})
}

// burial is how a process was lost of which nothing is open any more, and since when, as this process knows it. The zero value is none.
type burial struct {
	reason verdict.Reason
	since  time.Time
}

// bury remembers who ended or is out of reach, and of whom nothing is open any more. Whose place another verdict took, or who is back, is
// none of them.
func (l *loop) bury(changes []verdict.Change, open []verdict.Verdict, members []mesh.Status) {
	since := make(map[string]time.Time, len(members))
	for i := range members {
		since[members[i].Member.Name] = members[i].Since
	}
	for i := range changes {
		v := &changes[i].Verdict
		if v.Reason != verdict.RankDead && v.Reason != verdict.RankUnreachable {
			continue
		}
		for _, c := range v.Culprits {
			if slices.ContainsFunc(open, func(o verdict.Verdict) bool { return blames(&o, []verdict.Rank{c}) }) {
				delete(l.buried, c.Member)
			} else if c.Member != "" {
				l.buried[c.Member] = burial{v.Reason, since[c.Member]}
			}
		}
	}
	l.remember(members)
}

// remember forgets who was buried and is not known any more to have ended, or to be out of reach. Who has been back and is out of reach
// again is lost anew, even if nobody looked in between; of who was back and ended then that can't be told, as who is out of reach may be
// found to have ended long ago.
func (l *loop) remember(members []mesh.Status) {
	still := make(map[string]burial, len(l.buried))
	for i := range members {
		s := &members[i]
		b := l.buried[s.Member.Name]
		if s.State == mesh.Dead && b.reason != 0 || s.State == mesh.Unreachable && b.reason == verdict.RankUnreachable && s.Since.Equal(b.since) {
			still[s.Member.Name] = b
		}
	}
	l.buried = still
}

// goneOnTime is how long ago a communicator must have failed before its rank can have gone on without it: until then,
// operations of others may only not have noticed yet.
const goneOnTime = 2 * time.Second

// leftBehind tells whether a communicator failed a while ago, and its rank has worked since in one that was made from it,
// as a shrink makes one of the ranks that are left: elastic jobs keep the failed one, to come back to.
func leftBehind(s *verdict.Slot, slots []verdict.Slot) bool {
	if s.Failure == nil || s.Failure.Age < goneOnTime || !idle(s) {
		return false
	}
	return slices.ContainsFunc(slots, func(t verdict.Slot) bool {
		return t.Parent == s.Comm && t.Root == s.Root && t.Failure == nil && t.State == lifecycle.StateReady && t.Seq > 0 &&
			t.Age < s.Failure.Age
	})
}

// failedByLoss tells whether a communicator failed a while ago because a process ended or went out of reach.
func failedByLoss(s *verdict.Slot) bool {
	return s.Failure != nil && s.Failure.Age >= goneOnTime &&
		(s.Failure.Code == lifecycle.CodeRankDead || s.Failure.Code == lifecycle.CodeUnreachable)
}

// idle tells whether nothing is going on in a communicator.
func idle(s *verdict.Slot) bool { return s.InFlight == 0 && len(s.Acts) == 0 }

// stalled tells whether something takes too long, whoever's fault it is.
func stalled(notes []verdict.Note) bool {
	for i := range notes {
		for j := range notes[i].Slots {
			s := &notes[i].Slots[j]
			if s.Stalled || slices.ContainsFunc(s.Acts, func(a verdict.OpenAct) bool { return a.Stalled }) {
				return true
			}
		}
	}
	return false
}
