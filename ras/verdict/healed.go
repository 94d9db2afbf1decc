package verdict

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Healed tells, of a verdict that holds no longer, whether its cause is gone: who did not run runs again, or some of those whom it
// concerned have gone on. Those whom a death concerns for which nobody waited are those who were in a communicator with the dead:
// what others do elsewhere says nothing. Otherwise only those who waited are gone: they gave up, or the job has ended. notes are those
// by which it holds no longer, with one of each process that is known not to run, and held is how long ago it was last known to hold.
func (v *Verdict) Healed(notes []Note, held time.Duration) bool {
	known := !slices.ContainsFunc(v.Culprits, func(r Rank) bool { return r.Member == "" })
	without := v.Reason == RankDead && len(v.Victims) == 0
	if known && (v.Reason == RankStopped || v.Reason == RankUnreachable) { // of whom there is no note yet, or no more, answers or left in order: it runs
		away := func(fates ...Fate) bool {
			return slices.ContainsFunc(v.Culprits, func(r Rank) bool {
				return slices.ContainsFunc(notes, func(n Note) bool { return n.Member == r.Member && slices.Contains(fates, n.Fate) })
			})
		}
		if !away(Dead, Stopped, Unreachable) {
			return true
		}
		if v.Reason == RankStopped || away(Dead, Stopped) {
			return false
		}
		without = true // the others may have gone on all the same
	}
	for i := range notes {
		n := &notes[i]
		if n.Fate != Alive || !v.concerns(n.Member) && !without {
			continue
		}
		if without {
			if v.goesOn(n, notes, held) {
				return true
			}
			continue
		}
		if slices.ContainsFunc(v.Victims, func(w Wait) bool { return w.Rank.Member == n.Member && n.through(&w) }) {
			return true
		}
		if slices.ContainsFunc(n.Slots, func(s Slot) bool { return s.fine() && s.Seq > 0 && s.Age < held }) {
			return true
		}
	}
	return false
}

// goesOn tells whether a process that was in a communicator with the culprits works without them: in one that was made from it,
// and in which they are not. It keeps the one that failed, or all who are left work in the new one: else that one was there before, as a
// job splits its world into groups, and those who use it may not have noticed yet. Nor is it a sign that one was ended in order.
func (v *Verdict) goesOn(n *Note, notes []Note, held time.Duration) bool {
	return slices.ContainsFunc(n.Slots, func(s Slot) bool {
		if !s.fine() || s.Seq == 0 || s.Age >= held || slices.Contains(v.Comms, s.Comm) {
			return false
		}
		if slices.ContainsFunc(n.Slots, func(f Slot) bool { return f.Comm == s.Parent && f.lostSomebody() && s.Age < f.Failure.Age }) {
			return len(v.Comms) == 0 || slices.Contains(v.Comms, s.Parent)
		}
		return slices.Contains(v.Comms, s.Parent) && !slices.ContainsFunc(notes, func(o Note) bool {
			return o.Fate == Alive && !slices.ContainsFunc(o.Slots, func(t Slot) bool { return t.Comm == s.Comm })
		})
	})
}

// lostSomebody tells whether a communicator failed because one of its ranks ended or is out of reach.
func (s *Slot) lostSomebody() bool {
	return s.Failure != nil && (s.Failure.Code == lifecycle.CodeRankDead || s.Failure.Code == lifecycle.CodeUnreachable)
}

// concerns tells whether a process waited, or is at fault; anyone, if nobody waited.
func (v *Verdict) concerns(member string) bool {
	return len(v.Victims) == 0 || slices.ContainsFunc(v.Victims, func(w Wait) bool { return w.Rank.Member == member }) ||
		slices.ContainsFunc(v.Culprits, func(r Rank) bool { return r.Member == member })
}

// fine tells whether a rank can make calls on its communicator.
func (s *Slot) fine() bool { return s.Failure == nil && s.State == lifecycle.StateReady }

// through tells whether a rank has what it waited for.
func (n *Note) through(w *Wait) bool {
	if slices.Contains(n.Closed, w.Comm) {
		return true
	}
	return slices.ContainsFunc(n.Slots, func(s Slot) bool {
		return s.Comm == w.Comm && s.fine() && (s.InFlight == 0 || s.Seq > w.Seq) &&
			!slices.ContainsFunc(s.Acts, func(a OpenAct) bool { return a.Act.String() == w.Call })
	})
}
