package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// side is one of the different calls that ranks have made as a meeting.
type side struct {
	sig          tape.Signature
	participants []*participant
	votes        int // ranks that made this call, or would make it next
	odd          int // ranks that made it out of order by their histories, or beside a group that they have not ended
}

// mismatch is the verdict on ranks that made different calls. At fault are the ranks whose programs have not ended a
// group with calls on the communicator, or have always made another call here; else the minority, where ranks that have
// not come count with the call that they would make next. Which call came first is no evidence.
func (w *walk) mismatch(m *meeting) Verdict {
	sides, unknown := w.sides(m)
	here := actorsOf(m.present)
	for _, a := range w.actors {
		for _, s := range sides {
			if a.wouldCall(m.key.comm, s.sig) && !slices.Contains(here, a) {
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
	wrong := wrongSides(sides, unknown)
	var culprits []*actor
	for _, s := range wrong {
		culprits = append(culprits, actorsOf(s.participants)...)
	}
	v := m.verdict(Mismatch, Certain, m.ranksOf(culprits), victims([]*meeting{m}, culprits))
	var says []string
	told := 0 // ranks
	for _, s := range sides {
		told += len(s.participants)
		says = append(says, fmt.Sprintf("%s: %s%s", s.ranks(m), s.text(sides), s.without()))
	}
	if len(wrong) > 0 && len(wrong) < len(sides) {
		v.Text = say("%s made a different call than the others as number %d on %s: %s", culpritsText(v.Culprits),
			m.key.seq, commText(m.slot), strings.Join(says, "; "))
	} else {
		v.Confidence = Likely
		v.Text = say("the ranks made different calls as number %d on %s, and it is not known which is wrong: %s",
			m.key.seq, commText(m.slot), strings.Join(says, "; "))
	}
	if v.blameGroups(m, culprits) || told > len(m.present) { // some are no longer in it
		v.Text.add("%s", waiting(v.Victims))
	}
	for _, s := range sides {
		for _, p := range s.participants {
			if h := w.oddAs(p, m); h != nil && len(v.Evidence) < maxEvidence {
				v.Evidence = append(v.Evidence, h.text(rankOf(p.actor, m.key.comm).String()))
			}
		}
	}
	if len(culprits) == 1 && v.Reason == Mismatch {
		w.dispute(&v, culprits[0])
	}
	return v
}

// madeAnother is the verdict on an operation that some ranks completed as another call, such as a broadcast from
// another root, by their trails; false if none did, or that is not known. NCCL notices no mismatch, and for some ranks
// the call may even complete.
func (w *walk) madeAnother(m *meeting) (Verdict, bool) {
	if m.key.kind != collective || m.differ || !m.slot.Op.Call.IsOperation() {
		return Verdict{}, false
	}
	if sides, _ := w.sides(m); len(sides) < 2 {
		return Verdict{}, false
	}
	return w.mismatch(m), true
}

// made is the call that a rank made as the meeting's, by its trail; false if that is not known.
func (p *participant) made(m *meeting) (sig tape.Signature, known bool) {
	if p.actor.habit == nil {
		return sig, false
	}
	for _, c := range p.actor.habit.Trail {
		if c.Call == countCollective && c.Seq == m.key.seq && c.Slot < len(p.actor.note.Slots) &&
			p.actor.note.Slots[c.Slot].Comm == m.key.comm {
			return c.Op, true
		}
	}
	return sig, false
}

// sides are the calls with which ranks are in a meeting or have passed it. unknown is how many ranks have passed it
// with a call that is not known.
func (g *graph) sides(m *meeting) (sides []*side, unknown int) {
	add := func(p *participant, sig tape.Signature, agrees func(*side) bool) {
		i := slices.IndexFunc(sides, agrees)
		if i < 0 {
			i = len(sides)
			sides = append(sides, &side{sig: sig})
		}
		s := sides[i]
		s.participants = append(s.participants, p)
		s.votes++
		if p.actor.unended(m) != nil || g.oddAs(p, m) != nil {
			s.odd++
		}
	}
	for _, p := range m.present {
		add(p, agreed(p.slot.Op), func(s *side) bool { return s.participants[0].slot.agrees(p.slot) })
	}
	here := actorsOf(m.present)
	for p := range m.members() {
		if m.key.kind != collective || !passed(m, p.slot) || slices.Contains(here, p.actor) {
			continue
		}
		if sig, known := p.made(m); known {
			add(p, sig, func(s *side) bool { return s.sig == sig })
		} else {
			unknown++
		}
	}
	return sides, unknown
}

// text is the first side's call, with the arguments in which others differ from it; for another side, what differs.
func (s *side) text(sides []*side) string {
	first := sides[0].sig
	text := difference(&first, &s.sig)
	if s != sides[0] {
		return text
	}
	var more []string
	for _, o := range sides[1:] {
		if other := o.sig; other.Call == first.Call {
			other.DataType = first.DataType // the text has it
			more = append(more, unlike(&other, &first)...)
		}
	}
	slices.Sort(more)
	return strings.Join(append([]string{text}, slices.Compact(more)...), ", ")
}

// wrongSides are the sides at fault, where the calls of unknown more ranks are not known. If nothing tells the sides
// apart, both are at fault if they are of one rank each; else, none is.
func wrongSides(sides []*side, unknown int) []*side {
	odd := slices.DeleteFunc(slices.Clone(sides), func(s *side) bool { return s.odd < len(s.participants) })
	switch {
	case len(odd) > 0 && len(odd) < len(sides):
		return odd
	case sides[0].votes > sides[1].votes+unknown:
		return sides[1:]
	case len(sides) == 2 && len(sides[0].participants) == 1 && len(sides[1].participants) == 1:
		return sides
	default:
		return nil
	}
}

// without says which ranks a side's shrink leaves out; it is empty for other calls, or if that isn't known.
func (s *side) without() string {
	p := s.participants[0]
	if s.sig.Call != lifecycle.CallShrink || p.meeting == nil {
		return ""
	}
	act := p.act()
	if act == nil || len(act.Without) == 0 {
		return ""
	}
	return " without " + words.Ranks(slices.DeleteFunc(slices.Clone(act.Without), func(r int) bool {
		return r == model.OtherRanks
	}))
}

// ranks names the ranks of a side.
func (s *side) ranks(m *meeting) string {
	if ranks := m.ranksOf(actorsOf(s.participants)); len(ranks) > 1 {
		return ranksText(ranks)
	}
	return rankOf(s.participants[0].actor, m.key.comm).in()
}

// reportedMismatch is the verdict on a mismatch that the engine reports and of which the notes show one side. At fault
// are the ranks that the first applicable rule picks: the rank that has not ended a group with calls on the
// communicator; the rank whose history shows it, or whose groups do; the rank in a collective while two others wait for
// a message of it; of a message and a collective, the one that other ranks show to be wrong; the rank whose message has
// a new direction; the rank with a group too many; of collectives, the rank that the engine names. If that rank's call
// is not known, it is at fault in any case, and alone if the others agree. If no rule applies, all that disagree are at
// fault, or none if it is not known whose message was in vain.
func (w *walk) reportedMismatch(m *meeting) Verdict {
	if v, ok := w.contradiction(m); ok {
		return v
	}
	v := m.verdict(Mismatch, Likely, nil, nil)
	there := w.disagree(m)
	messages := slices.ContainsFunc(there, func(p *participant) bool { return p.slot.inMessage() })
	wrong := slices.Clone(there)
	if messages && len(there) != 2 { // it is not known whose message it is about
		wrong = nil
	}
	for _, is := range []func(*participant) bool{
		func(p *participant) bool { return p.actor.unended(m) != nil },
		func(p *participant) bool { return w.odd(p.actor) != nil },
		func(p *participant) bool { return messages && p.actor.oddGroup() != nil },
		func(p *participant) bool { return len(there) > 2 && p == there[0] && messages && !p.slot.inMessage() },
		func(p *participant) bool {
			return messages && !there[0].slot.inMessage() && (w.superfluous(p) || w.leftOut(p))
		},
		func(p *participant) bool {
			return len(there) == 2 && p.newDirection(there[1-slices.Index(there, p)])
		},
		w.groupTooMany,
		func(p *participant) bool { return m.slot.Size > 2 && !messages && p.slot.Rank == m.engine.Peer },
	} {
		if some := slices.DeleteFunc(slices.Clone(there), func(p *participant) bool { return !is(p) }); len(some) > 0 {
			wrong = some
			break
		}
	}
	unknown := m.engine.Peer >= 0 && m.at(m.engine.Peer) == nil
	if sides, _ := w.sides(m); unknown && len(there) > 1 && len(sides) == 1 {
		wrong = nil // they agree with each other
	}
	for _, p := range wrong {
		r := rankOf(p.actor, m.key.comm)
		v.Culprits = append(v.Culprits, r)
		if o := w.oddity(p.actor); o != nil {
			v.Evidence = append(v.Evidence, o.text(r.String()))
		}
	}
	if unknown {
		v.Culprits = append(v.Culprits, w.rankAt(m.slot, m.engine.Peer))
	}
	slices.SortFunc(v.Culprits, byRank)
	v.Text = w.mismatchText(m, there, v.Culprits)
	v.blameGroups(m, actorsOf(wrong))
	v.addFailed(m, actorsOf(wrong))
	return v
}

// addFailed adds the ranks whose calls failed with a mismatch on a meeting's communicator as victims, without those at
// fault.
func (v *Verdict) addFailed(m *meeting, wrong []*actor) {
	v.ID = hash(v.Reason, m.key.comm) // a communicator fails once
	v.Victims = victims(slices.DeleteFunc(slices.Clone(m.g.order), func(o *meeting) bool {
		return o.key.comm != m.key.comm || !o.mismatched() && !o.contradicted
	}), wrong)
	v.Text.add("%s", waiting(v.Victims))
	if m.contradicted {
		v.addFates(m, m.failedInits())
	}
}

// failedInits are the ranks of a meeting whose init failed.
func (m *meeting) failedInits() []*actor {
	return slices.DeleteFunc(slices.Clone(m.g.actors), func(a *actor) bool { return !m.failedFor(a) })
}

// mismatchText says what the ranks that disagree were in, or what the engine says of one. Only the engine's text has
// the difference if they had called for other collectives behind the one that failed.
func (w *walk) mismatchText(m *meeting, there []*participant, culprits []Rank) Text {
	if len(there) < 2 || len(there) > maxEvidence {
		return say("%s met a different call: %s", m.text(), m.engine.Text)
	}
	slices.SortFunc(there, func(a, b *participant) int { return cmp.Compare(a.slot.Rank, b.slot.Rank) })
	says := make([]string, len(there))
	for i, p := range there {
		call := callText(p.slot.Op.Call.String(), p.slot.Seq, p.slot).String()
		switch op := &p.slot.Op; op.Call {
		case lifecycle.CallSend:
			call = fmt.Sprintf("send %d%s to %s", p.slot.Seq, sizeText(op, there), m.rank(int(op.Peer)))
		case lifecycle.CallRecv:
			call = fmt.Sprintf("recv %d%s from %s", p.slot.Seq, sizeText(op, there), m.rank(int(op.Peer)))
		default:
		}
		says[i] = fmt.Sprintf("%s was in %s", rankOf(p.actor, m.key.comm).in(), call)
	}
	a, b := there[0].slot, there[1].slot
	if len(there) == 2 && a.Op.Call == b.Op.Call && a.inMessage() && !a.inGroup() {
		says[1] += fmt.Sprintf(": both %s first, and each waits for the other",
			map[lifecycle.Call]string{lifecycle.CallSend: "send", lifecycle.CallRecv: "receive"}[a.Op.Call])
	}
	first := there[0].slot
	shows := func(p *participant) bool { // a group doesn't show its messages
		other := p.slot.Seq == first.Seq && !p.slot.agrees(first)
		return p.slot.inMessage() != first.inMessage() || !p.slot.inGroup() && (other || p.slot.inMessage())
	}
	if !slices.ContainsFunc(there, shows) {
		says = []string{m.engineSays()}
	}
	switch {
	case len(culprits) == 0:
		return say("the ranks made calls on %s that do not match, and it is not known which is wrong: %s",
			commText(m.slot), strings.Join(says, "; "))
	case len(culprits) < len(there):
		return say("%s made a call on %s that does not match the others' calls: %s", culpritsText(culprits),
			commText(m.slot), strings.Join(says, "; "))
	default:
	}
	return say("%s made calls on %s that do not match, and it is not known which is wrong: %s",
		culpritsText(culprits), commText(m.slot), strings.Join(says, "; "))
}

// sizeText is in what a message differs from the other side of it, if that is the only other call of a mismatch; empty
// if it doesn't.
func sizeText(op *tape.Signature, there []*participant) (text string) {
	for _, p := range there {
		o := &p.slot.Op
		if len(there) != 2 || !p.slot.inMessage() || p.slot.inGroup() || o.Call == op.Call {
			continue
		}
		if o.Bytes != op.Bytes {
			text += fmt.Sprintf(" of %d bytes", op.Bytes)
		}
		if o.DataType != op.DataType {
			text += " with data type " + kernels.DataType(op.DataType).String()
		}
	}
	return text
}

// engineSays is how the calls differ, as the engine says. The engine numbers ranks as the communicator does.
func (m *meeting) engineSays() string {
	says := lifecycle.MismatchDetail(m.engine.Text)
	for p := range m.members() {
		if p.actor.job != p.slot.Rank {
			return "by the ranks of " + commText(m.slot) + ", " + says
		}
	}
	return says
}

// unheard reports whether a meeting failed a moment ago because of a rank that has no note yet, or only one from before
// the failure: it is not known yet what that rank did.
func (g *graph) unheard(m *meeting) bool {
	if m.engine == nil || m.until >= skew {
		return false
	}
	peer := m.at(m.engine.Peer)
	return peer == nil || peer.slot.Failure == nil && peer.slot.Left == nil && peer.actor.note.Fate == Alive
}

// disagree returns the ranks whose calls differ, as far as a mismatch that the engine reports tells: the rank that the
// engine names, and the rank that the named rank's own error names, or those whose calls can't meet the named rank's.
// All ranks report the same mismatch, also those whose own call is fine.
func (g *graph) disagree(m *meeting) []*participant {
	peer := m.at(m.engine.Peer)
	if peer == nil {
		return m.present
	}
	if f := peer.slot.Failure; f.is(lifecycle.CodeMismatch) && f.Peer != peer.slot.Rank {
		if other := m.at(f.Peer); other != nil { // each names the other one
			return []*participant{peer, other}
		}
	}
	if other := m.at(peer.slot.partner()); other != nil {
		return []*participant{peer, other}
	}
	if other := g.outOfBalance(peer); other != nil {
		return []*participant{peer, other}
	}
	there := []*participant{peer}
	for p := range g.members(m.slot) {
		if p.slot.partner() == m.engine.Peer && (p.slot.InFlight > 0 || p.slot.Failed) {
			there = append(there, p)
		}
	}
	if len(there) == 1 { // all are in collectives
		for _, p := range m.present {
			if p.actor != peer.actor {
				there = append(there, p)
			}
		}
	}
	return there
}

// outOfBalance returns the only rank that has called for fewer or more messages with p, which is in a group of them,
// than p has with it; nil if there is none, or are several.
func (g *graph) outOfBalance(p *participant) (found *participant) {
	if !p.slot.inGroup() {
		return nil
	}
	for q := range g.members(p.slot) {
		if q == p || !q.slot.countsWith(p.slot.Rank) || !p.slot.countsWith(q.slot.Rank) {
			continue
		}
		l, o := q.slot.lacks(p.slot), p.slot.lacks(q.slot)
		if l.by == 0 && o.by == 0 {
			continue
		}
		if found != nil {
			return nil
		}
		found = q
	}
	return found
}

// inGroup tells whether a rank's last operation was a group of messages.
func (s *Slot) inGroup() bool { return countOf(s.Op.Call) == countGroup }

// inMessage tells whether a rank's last operation was a message, or a group of them.
func (s *Slot) inMessage() bool { return countOf(s.Op.Call) != countCollective }

// partner is the peer of a rank's last operation if that was a message, or the peer that the rank waited for if it was
// a group of messages; -1 if that isn't known, or it was a collective.
func (s *Slot) partner() int {
	switch s.Op.Call {
	case lifecycle.CallSend, lifecycle.CallRecv:
		return int(s.Op.Peer)
	case lifecycle.CallSendRecv, lifecycle.CallGroupEnd:
		wait := s.Wait
		if s.Failure != nil {
			wait = s.Failure.Wait
		}
		if wait < 0 && s.Size == 2 {
			return 1 - s.Rank
		}
		return wait
	default:
		return -1
	}
}

// superfluous and leftOut tell which side is at fault when one rank's message met its peer's collective. They ask the
// other ranks in that collective: the message is superfluous if none of them has had as many messages with the rank at
// the same distance; the peer has left it out if one has.
func (g *graph) superfluous(p *participant) bool {
	most, others := g.messagesLike(p)
	return others && most < p.slot.messages(p.slot.partner())
}

func (g *graph) leftOut(p *participant) bool {
	return slices.ContainsFunc(slices.Collect(g.members(p.slot)), func(o *participant) bool {
		most, others := g.messagesLike(o)
		return others && o.slot.partner() == p.slot.Rank && most >= o.slot.messages(p.slot.Rank)
	})
}

// messagesLike returns the most messages that a rank in a collective has had with the rank at the distance that p's
// partner has from p; others reports whether there are such ranks. Ranks without any message count as well, if all have
// none. A group doesn't show which of its messages p was in, so that it tells nothing.
func (g *graph) messagesLike(p *participant) (most uint64, others bool) {
	partner := p.slot.partner()
	if partner < 0 || p.slot.inGroup() {
		return 0, false
	}
	none, n := true, 0
	for o := range g.members(p.slot) {
		if o.slot.Rank == partner || o.slot.partner() >= 0 || !o.slot.Op.Call.IsCollective() {
			continue
		}
		n++
		none = none && len(o.slot.Messages) == 0 && o.slot.Groups == 0
		if count := o.slot.messages(o.slot.Rank + partner - p.slot.Rank); count > 0 {
			most, others = max(most, count), true
		}
	}
	return most, others || none && n > 0
}

// newDirection reports whether a rank has called for its first message to another rank, or from it, while that rank has
// called for often messages or more in each direction in which it has called for any.
func (p *participant) newDirection(to *participant) bool {
	if !p.slot.countsWith(to.slot.Rank) || !to.slot.countsWith(p.slot.Rank) {
		return false
	}
	own, theirs := p.slot.Messages[int32(to.slot.Rank)], to.slot.Messages[int32(p.slot.Rank)]
	usual := func(n uint64) bool { return n == 0 || n >= often }
	return (own.Sent == 1 || own.Received == 1) && usual(theirs.Sent) && usual(theirs.Received)
}

// groupTooMany reports whether a rank is in a group of messages that no other rank has made, while all others are in a
// collective after one group fewer: then it is the only rank that is not in the collective.
func (g *graph) groupTooMany(p *participant) bool {
	if !p.slot.inGroup() || p.slot.Size < 3 {
		return false
	}
	n := 1
	for o := range g.members(p.slot) {
		if o.slot.Op.Call.IsCollective() && o.slot.Groups > 0 && o.slot.Groups+1 == p.slot.Groups {
			n++
		}
	}
	return n == p.slot.Size
}

// messages is how many messages the rank has begun to or from another one.
func (s *Slot) messages(other int) uint64 {
	m := s.Messages[int32(other)]
	return m.Sent + m.Received
}

// mismatched tells whether a meeting failed because of different calls, as the engine says.
func (m *meeting) mismatched() bool { return m.engine.is(lifecycle.CodeMismatch) }

// secondary reports whether a meeting failed because of a mismatch in which none of its ranks has a part: one between
// other ranks, or one in the communicator's parent.
func (g *graph) secondary(m *meeting) bool {
	if m.key.kind == joining {
		return slices.ContainsFunc(m.present, func(p *participant) bool {
			s := p.actor.slotIn(m.slot.Parent)
			return s != nil && s.Failure.is(lifecycle.CodeMismatch)
		})
	}
	there := g.disagree(m)
	part := func(o *meeting) bool {
		return slices.ContainsFunc(o.present, func(p *participant) bool {
			return slices.ContainsFunc(there, func(q *participant) bool { return q.actor == p.actor })
		})
	}
	return !part(m) && slices.ContainsFunc(g.order, func(o *meeting) bool {
		return o.key.comm == m.key.comm && o.mismatched() && part(o)
	})
}
