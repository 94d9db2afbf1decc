package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// odd returns a call that the actor made out of order; nil if none is known. A call that other ranks made too counts
// only if it is in order for most of them: a barrier at the end of an epoch is out of order for all. A call that is in
// flight, or failed, counts even if no other rank made it.
func (g *graph) odd(a *actor) *Odd { return g.oddOf(a, func(*Odd) bool { return true }) }

// oddAs returns a call out of order that a rank made as a meeting's. For a rank in the meeting, it may also be an
// earlier call that has led the rank there.
func (g *graph) oddAs(p *participant, m *meeting) *Odd {
	odd := g.oddOf(p.actor, func(o *Odd) bool {
		return o.Did.Comm == m.key.comm && o.Did.Seq == m.key.seq && countOf(o.Did.Op.Call) == countCollective
	})
	if odd == nil && slices.Contains(m.present, p) {
		return g.odd(p.actor)
	}
	return odd
}

// oddOf is odd for the calls for which counts is true.
func (g *graph) oddOf(a *actor, counts func(*Odd) bool) *Odd {
	if a.habit == nil {
		return nil
	}
	for i := range a.habit.Odd {
		odd := &a.habit.Odd[i]
		if !counts(odd) || g.common(a, odd) {
			continue
		}
		usual, not := 0, 0
		for _, o := range g.actors {
			switch m := o.recordOf(a, &odd.Did); {
			case m == nil || o == a:
			case m.Usual:
				usual++
			default:
				not++
			}
		}
		if usual > not || not == 0 && a.isInCall(&odd.Did) {
			return odd
		}
	}
	return nil
}

// dispute lowers the confidence of a verdict on a rank's call out of order if that call may be right, as the first one
// of a checkpoint, and the other rank's wrong: the rank had never made it before, and only one other runs its program.
func (g *graph) dispute(v *Verdict, a *actor) {
	if odd := g.odd(a); odd != nil && odd.Did.Times == 0 && g.programs[a.program] == 2 {
		v.Confidence = Likely
		v.Evidence = append(v.Evidence,
			say("%s had not made this call before: the other rank may have left it out", rankOf(a, v.Comm)))
	}
}

// common reports whether at least half of the other ranks that run the actor's program made the same odd call in the
// same place: it is another part of the program, such as an evaluation. If no other rank runs the program, a message
// that ended well counts as common.
func (g *graph) common(a *actor, odd *Odd) bool {
	if g.oddCalls == nil {
		g.oddCalls, g.programs = map[oddKind]int{}, map[string]int{}
		for _, o := range g.actors {
			o.program = o.programName()
			g.programs[o.program]++
			kinds := map[oddKind]bool{}
			if o.habit != nil {
				for i := range o.habit.Odd {
					kinds[o.oddKind(&o.habit.Odd[i])] = true
				}
			}
			for k := range kinds {
				g.oddCalls[k]++
			}
		}
	}
	others := g.programs[a.program] - 1
	if others == 0 {
		return countOf(odd.Did.Op.Call) != countCollective && !a.isInCall(&odd.Did)
	}
	return 2*(g.oddCalls[a.oddKind(odd)]-1) >= others
}

// oddKind is equal for the same odd call of ranks that run the same program.
type oddKind struct{ program, did, instead string }

func (a *actor) oddKind(o *Odd) oddKind {
	return oddKind{a.program, a.callKind(&o.Did), a.callKind(&o.Instead)}
}

// callKind names a call by the role of its communicator, and a message by the distance to the other rank.
func (a *actor) callKind(u *Usual) string {
	role, op := u.Name, u.Op
	if s := a.slotIn(u.Comm); s != nil {
		role = a.role(s)
		if c := countOf(op.Call); c == countSend || c == countReceive {
			op.Peer -= int32(s.Rank)
		}
	}
	return fmt.Sprint(role, op)
}

// programName is equal for ranks that make the same kinds of calls, as far as is known.
func (a *actor) programName() string {
	if a.track == nil {
		a.track = trackOf(a)
	}
	var kinds []string
	for c := range a.track.now {
		kinds = append(kinds, fmt.Sprint(c))
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ";")
}

// isInCall tells whether the actor is in the call, or was when the communicator failed.
func (a *actor) isInCall(call *Usual) bool {
	return slices.ContainsFunc(a.slots, func(s *Slot) bool {
		return s.Comm == call.Comm && s.Seq == call.Seq && s.Op == call.Op && (s.InFlight > 0 || s.Failed)
	})
}

// recordOf is the actor's record of its own side of another actor's call; nil if it has none, or it was too long ago.
func (a *actor) recordOf(caller *actor, call *Usual) *Mark {
	if a.habit == nil {
		return nil
	}
	side := [numCounts]uint8{
		countCollective: countCollective, countSend: countReceive, countReceive: countSend, countGroup: numCounts,
	}[countOf(call.Op.Call)] // a group has no other side that is known
	from := caller.slotIn(call.Comm)
	for i := range a.habit.Trail {
		m := &a.habit.Trail[i]
		if m.Seq != call.Seq || m.Call != side || m.Slot >= len(a.note.Slots) {
			continue
		}
		s := &a.note.Slots[m.Slot]
		if s.Comm == call.Comm && (side == countCollective ||
			s.Rank == int(call.Op.Peer) && from != nil && from.Rank == int(m.Peer)) {
			return m
		}
	}
	return nil
}

// oddity returns what says most about a rank that made a call out of order: its odd group of messages, which may have
// led to an odd call later, or else its odd call; nil if it has neither.
func (g *graph) oddity(a *actor) *Odd { return cmp.Or(a.oddGroup(), g.odd(a)) }

// oddGroup returns the only group of messages that a rank has made with its total size or type on a communicator, if it
// has made often groups or more of each other kind there: a message may have been left out of that group, or added to
// it. It returns nil if there is no such group.
func (a *actor) oddGroup() *Odd {
	if a.habit == nil {
		return nil
	}
	groups := map[int]map[tape.Signature]int{} // by slot: how many of each kind
	for _, m := range a.habit.Trail {
		if m.Call == countGroup && m.Slot < len(a.note.Slots) {
			if groups[m.Slot] == nil {
				groups[m.Slot] = map[tape.Signature]int{}
			}
			groups[m.Slot][m.Op]++
		}
	}
	for slot := range a.note.Slots {
		s := &a.note.Slots[slot]
		odd := &Odd{Did: Usual{Comm: s.Comm, Name: s.Name}, Instead: Usual{Comm: s.Comm, Name: s.Name}}
		single, few := 0, false
		for sig, n := range groups[slot] {
			switch {
			case n == 1:
				odd.Did.Op, single = sig, single+1
			case n < often:
				few = true
			case n > odd.Instead.Times:
				odd.Instead.Op, odd.Instead.Times = sig, n
			}
		}
		if single == 1 && !few && odd.Instead.Times > 0 {
			return odd
		}
	}
	return nil
}
