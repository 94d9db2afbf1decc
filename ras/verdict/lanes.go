package verdict

import (
	"slices"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Goroutines of one rank use communicators of different lanes (Slot.Lane). The calls of one of them don't keep another
// one from coming to a meeting, unless they lead to it.

// aside reports whether a rank is in a call for which its program's calls on another communicator don't wait.
func (p *participant) aside(other *Slot) bool {
	slots := p.actor.note.Slots
	return p.until == 0 && !p.launched && p.slot.Phase != tape.PhaseStream &&
		slices.ContainsFunc(p.slot.Aside, func(i int) bool { return i >= 0 && i < len(slots) && &slots[i] == other })
}

// inOtherLane reports whether the ranks of a meeting use a slot's communicator in another lane than the meeting's, so
// that a rank's calls there don't keep it from coming. The steps of a training may lead to the meeting, though, which
// another goroutine comes to, unless they go on without it.
func (m *meeting) inOtherLane(s *Slot) bool {
	for _, p := range m.present {
		if own := p.actor.slotIn(s.Comm); own != nil {
			return own.Lane != p.slot.Lane && (!own.Steps || p.aside(own))
		}
	}
	return false
}

// overtakenBy reports whether a rank is not on its way to a meeting that most ranks have come to: by their trails, each
// of these has since made a collective in the same lane that the rank has made, too.
func (m *meeting) overtakenBy(a *actor) bool {
	if m.key.kind != collective || m.until > 0 || 2*m.arrived() <= m.slot.Size {
		return false
	}
	for _, p := range m.present {
		if p.actor.habit == nil {
			return false
		}
		trail, notes := p.actor.habit.Trail, p.actor.note.Slots
		of := func(c Mark) *Slot {
			if c.Call != countCollective || c.Slot >= len(notes) {
				return nil
			}
			return &notes[c.Slot]
		}
		// Calls before the meeting's own don't count. If the trail doesn't go back so far, all its calls are later.
		trail = trail[1+slices.IndexFunc(trail, func(c Mark) bool {
			s := of(c)
			return s != nil && s.Comm == m.key.comm && c.Seq == m.key.seq
		}):]
		if !slices.ContainsFunc(trail, func(c Mark) bool {
			s := of(c)
			if s == nil || s.Comm == m.key.comm || s.Lane != p.slot.Lane {
				return false
			}
			its, here := a.slotIn(s.Comm), a.slotIn(m.key.comm)
			return its != nil && here != nil && its.Lane == here.Lane && its.Left == nil && its.Begun >= c.Seq
		}) {
			return false
		}
	}
	return true
}
