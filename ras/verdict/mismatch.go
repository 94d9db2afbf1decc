package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// side is what some ranks of a meeting call, in a mismatch.
type side struct {
	sig          tape.Signature
	participants []*participant
	votes        int // ranks that made this call, or would make it next
	odd          int // ranks that made it out of order, by their histories
}

// mismatch is the verdict on ranks that made different calls. At fault are the ranks whose programs have always made
// another call here; else the minority, where ranks that have not come count with the call that they would make next.
// Which call came first is no evidence.
func (w *walk) mismatch(m *meeting) Verdict {
	sides := w.sides(m)
	for _, a := range w.actors {
		for _, s := range sides {
			here := slices.ContainsFunc(m.present, func(p *participant) bool { return p.actor == a })
			if !here && a.wouldCall(m.key.comm, s.sig) {
				s.votes++
			}
		}
	}
	if len(sides) > 1 && sides[0].votes == sides[1].votes {
		for _, s := range sides {
			s.votes += w.calledElsewhere(m, s.sig)
		}
	}
	slices.SortStableFunc(sides, func(a, b *side) int { return cmp.Compare(b.votes, a.votes) })
	wrong := wrongSides(sides)
	var culprits []*participant
	for _, s := range wrong {
		culprits = append(culprits, s.participants...)
	}
	v := m.verdict(Mismatch, Certain, m.ranks(culprits), victims([]*meeting{m}, func(a *actor) bool {
		return slices.ContainsFunc(culprits, func(p *participant) bool { return p.actor == a })
	}))
	var says []string
	for _, s := range sides {
		says = append(says, fmt.Sprintf("%s: %s", s.ranks(m), difference(&sides[0].sig, &s.sig)))
	}
	if len(wrong) > 0 && len(wrong) < len(sides) {
		v.Text = say("%s made a different call than the others as number %d on %s: %s", culpritsText(v.Culprits),
			m.key.seq, commText(m.slot), strings.Join(says, "; "))
	} else {
		v.Confidence = Likely
		v.Text = say("the ranks made different calls as number %d on %s, and it is not known which is wrong: %s",
			m.key.seq, commText(m.slot), strings.Join(says, "; "))
	}
	for _, p := range m.present {
		if h := w.odd(p.actor); h != nil && len(v.Evidence) < maxEvidence {
			v.Evidence = append(v.Evidence, h.text(rankOf(p.actor, m.key.comm).String()))
		}
	}
	return v
}

func (g *graph) sides(m *meeting) []*side {
	var sides []*side
	for _, p := range m.present {
		sig := agreed(p.slot.Op)
		i := slices.IndexFunc(sides, func(s *side) bool { return s.sig == sig })
		if i < 0 {
			i = len(sides)
			sides = append(sides, &side{sig: sig})
		}
		s := sides[i]
		s.participants = append(s.participants, p)
		s.votes++
		if g.odd(p.actor) != nil {
			s.odd++
		}
	}
	return sides
}

// wrongSides are the sides at fault. If nothing tells them apart, these are both of two ranks, and none of more.
func wrongSides(sides []*side) []*side {
	odd := slices.DeleteFunc(slices.Clone(sides), func(s *side) bool { return s.odd < len(s.participants) })
	switch {
	case len(odd) > 0 && len(odd) < len(sides):
		return odd
	case sides[0].votes > sides[1].votes:
		return sides[1:]
	case len(sides) == 2 && len(sides[0].participants) == 1 && len(sides[1].participants) == 1:
		return sides
	default:
		return nil
	}
}

// ranks names the ranks of a side.
func (s *side) ranks(m *meeting) string {
	if ranks := m.ranks(s.participants); len(ranks) > 1 {
		return ranksText(ranks)
	}
	return rankOf(s.participants[0].actor, m.key.comm).in()
}

// reportedMismatch is the verdict on a mismatch that the engine reports and the notes show one side of. At fault is the
// rank whose history shows it; else both ranks of the message or the communicator, or the rank that the engine names.
func (w *walk) reportedMismatch(m *meeting) Verdict {
	v := m.verdict(Mismatch, Likely, nil, nil)
	v.ID = hash(v.Reason, m.key.comm) // a communicator fails once
	v.Text = say("%s met a different call: %s", m.text(), m.engine.Text)
	there := slices.Clone(m.present)
	if p := m.at(m.engine.Peer); p != nil {
		if !slices.ContainsFunc(there, func(q *participant) bool { return q.actor == p.actor }) {
			there = append(there, p)
		}
		if p.slot.Failure != nil && p.slot.Failure.Code == lifecycle.CodeMismatch {
			v.Text = say("%s met a different call: %s was in %s", m.text(), rankOf(p.actor, m.key.comm).in(),
				callText(p.slot.Op.Call.String(), p.slot.Seq, p.slot))
		}
	}
	for _, p := range there {
		if o := w.odd(p.actor); o != nil {
			v.Culprits = append(v.Culprits, rankOf(p.actor, m.key.comm))
			v.Evidence = append(v.Evidence, o.text(rankOf(p.actor, m.key.comm).String()))
		}
	}
	switch {
	case len(v.Culprits) > 0 && len(v.Culprits) < len(there):
	case m.slot.Size == 2:
		v.Culprits = []Rank{w.rankAt(m.slot, 0), w.rankAt(m.slot, 1)}
	case m.isPeer(m.engine.Peer):
		v.Culprits = []Rank{w.rankAt(m.slot, m.key.from), w.rankAt(m.slot, m.key.to)}
	case m.engine.Peer >= 0:
		v.Culprits = []Rank{w.rankAt(m.slot, m.engine.Peer)}
	}
	failed := slices.DeleteFunc(slices.Clone(w.order), func(o *meeting) bool {
		return o.key.comm != m.key.comm || !o.mismatched()
	})
	v.Victims = victims(failed, func(a *actor) bool {
		return slices.ContainsFunc(v.Culprits, rankOf(a, m.key.comm).Same)
	})
	v.Text.add("%s", waiting(v.Victims))
	return v
}

// mismatched tells whether a meeting failed because of different calls, as the engine says.
func (m *meeting) mismatched() bool {
	return m.engine != nil && m.engine.Code == lifecycle.CodeMismatch
}

// isPeer tells whether a meeting is a message from or to a rank.
func (m *meeting) isPeer(rank int) bool {
	return m.key.kind == message && (m.key.from == rank || m.key.to == rank)
}

// secondary tells whether a message failed because of another message's mismatch.
func (g *graph) secondary(m *meeting) bool {
	return m.key.kind == message && !m.isPeer(m.engine.Peer) && slices.ContainsFunc(g.order, func(o *meeting) bool {
		return o.key.comm == m.key.comm && o.mismatched() && o.isPeer(o.engine.Peer)
	})
}
