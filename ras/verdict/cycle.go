package verdict

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// cycle is the verdict on meetings that wait for each other. At fault are the ranks that the first of the rules in
// deviants tells from the others; if none does, all ranks of the cycle.
func (w *walk) cycle(knot []*meeting, ring []edge) Verdict {
	reason, proof := Deadlock, Certain
	first := ring[0].to
	oneComm, kinds := true, map[meetingKind]bool{}
	var steps []Text
	for i, e := range ring { // e leads to the meeting that the next edge leaves
		next := ring[(i+1)%len(ring)]
		oneComm = oneComm && e.to.key.comm == first.key.comm
		kinds[e.to.key.kind] = true
		if e.to.age > first.age {
			first = e.to
		}
		steps = append(steps, say("%s is in %s, which needs %s",
			rankOf(e.via, e.to.key.comm), e.to.text(), rankOf(next.via, e.to.key.comm)))
	}
	if oneComm && len(kinds) > 1 { // collectives and messages on one communicator, in different orders
		reason = Mismatch
	}
	var wrong []Rank
	deviants, rule := w.deviants(ring)
	if rule != nil {
		proof = rule.proof
		if rule.says == otherID {
			reason = Mismatch
		}
	}
	for _, a := range deviants {
		wrong = append(wrong, rankOf(a, first.key.comm))
	}
	culprits := slices.Clone(wrong)
	if rule == nil && len(wrong) > 2 { // most ranks of a longer cycle are innocent
		culprits, deviants = nil, nil
	}
	v := first.verdict(reason, proof, culprits, victims(knot, deviants))
	if len(v.Culprits) == 0 { // which call has waited longest may change
		v.ID = hash(v.Reason, names(wrong))
	}
	var lone *actor // the only deviant: the sentence says what it did
	if len(deviants) == 1 && w.odd(deviants[0]) != nil {
		lone = deviants[0]
	}
	for _, e := range ring {
		if h := w.odd(e.via); h != nil && e.via != lone {
			v.Evidence = append(v.Evidence, h.text(rankOf(e.via, e.to.key.comm).String()))
		}
		if e.to.guessed {
			v.Confidence = Likely
		}
	}
	if len(ring) == 2 && len(kinds) == 1 && kinds[exchange] && !first.slot.inCountedMessages() {
		v.Reason = Transport
		v.Culprits = []Rank{rankOf(ring[0].via, first.key.comm), rankOf(ring[1].via, first.key.comm)}
		v.setID()
		v.Evidence = append(steps, v.Evidence...)
		v.Text = say("%s and %s exchange messages, and no data has moved in either direction for %s, over %s",
			v.Culprits[0], v.Culprits[1], Age(first.age), w.route(first.slot, v.Culprits[0], v.Culprits[1]))
		return v
	}
	before := "; the cycle: "
	switch {
	case rule == nil:
		v.Text, before = say("%s wait for each other", ranksText(wrong)), ": "
	case lone != nil:
		v.Text = w.odd(lone).text(culpritsText(wrong))
	default:
		v.Text = say("%s %s", culpritsText(wrong), rule.says)
	}
	words := make([]string, len(steps))
	for i := range steps {
		words[i] = steps[i].String() // they contain no ages
	}
	others := slices.DeleteFunc(slices.Clone(v.Victims), func(w Wait) bool {
		return slices.ContainsFunc(wrong, w.Rank.Same)
	})
	v.Text.add("%s%s%s", before, strings.Join(words, "; "), waiting(others))
	return v
}

// rule tells which ranks of a cycle are at fault.
type rule struct {
	is    func(i int) bool // whether the rank of the i-th edge is
	proof Confidence
	says  string // what those ranks did
}

// deviants are the ranks of a cycle that are at fault, in the cycle's order, and the first rule that tells some from
// the others; all ranks, and nil, if none does.
func (w *walk) deviants(ring []edge) ([]*actor, *rule) {
	pick := func(is func(i int) bool) []*actor {
		var some []*actor
		for i, e := range ring {
			if is(i) && !slices.Contains(some, e.via) {
				some = append(some, e.via)
			}
		}
		return some
	}
	all := pick(func(int) bool { return true })
	const (
		order = "made other calls, or in a different order, than the ranks that run the same program"
		unfit = "made calls that do not match those of the others"

		otherPeer = "called for a message with a rank with which it had exchanged none before"
	)
	for _, r := range []rule{
		{func(i int) bool { return w.inStep(ring[i].via) == no }, Certain, order},
		{func(i int) bool { return w.odd(ring[i].via) != nil }, Certain, unfit},
		{func(i int) bool { return outnumbered(ring, i, collective) }, Likely, order},
		{func(i int) bool { return outnumbered(ring, i, joining) }, Likely, otherID},
		{func(i int) bool { return ring[i].strays() }, Likely, unfit},
		{func(i int) bool { return overtaken(ring, i) || overtaken(ring, (i+len(ring)-1)%len(ring)) }, Likely, unfit},
		{func(i int) bool { return newPair(ring, i) }, Likely, otherPeer},
		{func(i int) bool { return leftOut(ring, i) }, Likely, "left out a message"},
		{func(i int) bool { return w.leftTwin(ring[i].via) }, Likely, order},
		{func(i int) bool { return w.inStep(ring[i].via) != yes || ring[i].via.groups() }, Likely, unfit},
		{func(i int) bool { return onlyOne(ring, i) }, Likely, unfit},
		{func(i int) bool { return stayedOut(ring, i) }, Likely, unfit},
	} {
		if picked := pick(r.is); len(picked) > 0 && len(picked) < len(all) {
			return picked, &r
		}
	}
	return all, nil
}

// otherID is what a rank did that is in an init of its own.
const otherID = "gave an init another id than the others"

// outnumbered tells whether the rank of an edge is in one of two meetings of a kind and the same ranks, and most of
// these are in the other one.
func outnumbered(ring []edge, i int, kind meetingKind) bool {
	own, other := ring[i].to, ring[(i+1)%len(ring)].to
	return len(ring) == 2 && own.key.kind == kind && other.key.kind == kind &&
		own.slot.Size == other.slot.Size && len(own.present) < len(other.present) &&
		len(own.present)+len(other.present) == own.slot.Size
}

// strays tells whether an edge leads to messages that wait for a rank at a distance at which no rank of the
// communicator has waited before, nor does now, while two others or more have waited for ranks at other distances.
func (e edge) strays() bool {
	s := e.to.slot
	if e.to.key.kind != exchange || s.Wait < 0 || s.Wait >= s.Size {
		return false
	}
	others := 0
	for p := range e.to.g.members(s) {
		o := p.slot
		for _, w := range o.Waited {
			if o.distance(int(w.Rank)) == s.distance(s.Wait) && (o != s || w.Ops > 1) {
				return false
			}
		}
		if o != s && o.Wait >= 0 && o.distance(o.Wait) == s.distance(s.Wait) {
			return false
		}
		if o != s && (o.Wait >= 0 || len(o.Waited) > 0) {
			others++
		}
	}
	return others > 1
}

// distance is that of a rank from another one of its communicator, either way around.
func (s *Slot) distance(rank int) int {
	d := (rank - s.Rank + s.Size) % max(s.Size, 1)
	return min(d, s.Size-d)
}

// leftOut tells whether the rank of an edge has called for as many messages with a third rank as the one that waits for
// it has with it, and itself for fewer.
func leftOut(ring []edge, i int) bool {
	e := ring[(i+len(ring)-1)%len(ring)] // leads to what the rank is missing in
	waits, s := e.to.slot, ring[i].via.slotIn(e.to.key.comm)
	if e.to.key.kind != exchange || !waits.inCountedMessages() || s == nil || !s.countsWith(waits.Rank) {
		return false
	}
	l, asMany, asFew := s.lacks(waits), false, false
	for r, m := range s.Messages {
		for _, n := range []uint64{m.Sent, m.Received} {
			asMany = asMany || int(r) != waits.Rank && n == l.number+l.by-1
			asFew = asFew || int(r) != waits.Rank && n == l.number-1 && n > 0
		}
	}
	return l.by > 0 && asMany && !asFew
}

// overtaken tells whether an edge is the only one from a rank in a group of messages to one that has made a later
// group, where all ranks of the communicator have made equally many groups but for one: one of the two has left out a
// message, or the other has one too many.
func overtaken(ring []edge, i int) bool {
	later := func(i int) bool {
		s, next := ring[i].to.slot, ring[(i+1)%len(ring)].via.slotIn(ring[i].to.key.comm)
		return ring[i].to.key.kind == exchange && next != nil && next.Groups > s.Groups
	}
	if !later(i) {
		return false
	}
	s := ring[i].to.slot
	for k := range ring {
		if k != i && later(k) {
			return false
		}
	}
	for p := range ring[i].to.g.members(s) {
		if s.Groups < often || p.slot.Groups < s.Groups || p.slot.Groups > s.Groups+1 {
			return false
		}
	}
	return true
}

// groups tells whether a rank has made groups of messages. What was in them is not counted, so that such a rank may be
// at fault although it is in step with others.
func (a *actor) groups() bool {
	return slices.ContainsFunc(a.slots, func(s *Slot) bool { return s.Groups > 0 })
}

// onlyOne tells whether an edge leads to the only message of three or more that its rank sends, or the only one that
// its rank receives.
func onlyOne(ring []edge, i int) bool {
	if len(ring) < 3 || slices.ContainsFunc(ring, func(e edge) bool { return e.to.key.kind != message }) {
		return false
	}
	sends := func(e edge) bool {
		return slices.ContainsFunc(e.via.in, func(p *participant) bool {
			return p.meeting == e.to && p.slot.Rank == e.to.key.from
		})
	}
	same := 0
	for _, e := range ring {
		if sends(e) == sends(ring[i]) {
			same++
		}
	}
	return same == 1
}

// stayedOut tells whether the rank of an edge is the only one of three or more that has not come to the act which makes
// a communicator: histories have no acts.
func stayedOut(ring []edge, i int) bool {
	m := ring[(i+len(ring)-1)%len(ring)].to
	call := m.slot.Op.Call
	return m.key.kind == collective && call.IsCollective() && !call.IsOperation() && m.slot.Size > 2 &&
		len(m.present) == m.slot.Size-1
}

// newPair tells whether an edge leads to the first message that two ranks have exchanged, where the other pairs of the
// cycle have exchanged often messages or more.
func newPair(ring []edge, i int) bool {
	exchanged := func(i int, from, to uint64) bool {
		e, next := ring[i], ring[(i+1)%len(ring)]
		s, o := e.via.slotIn(e.to.key.comm), next.via.slotIn(e.to.key.comm)
		counted := e.to.key.kind == message || e.to.key.kind == exchange && e.to.slot.inCountedMessages()
		if !counted || s == nil || o == nil {
			return false
		}
		n := max(s.messages(o.Rank), o.messages(s.Rank))
		return n >= from && n < to
	}
	some := func(from, to uint64) bool {
		for k := range ring {
			if exchanged(k, from, to) {
				return true
			}
		}
		return false
	}
	return exchanged(i, 1, 2) && some(often, math.MaxUint64) && !some(2, often)
}

const often = 3

// fromLowest rotates a cycle so that it begins with its lowest rank.
func fromLowest(ring []edge) []edge {
	at := slices.Index(ring, slices.MinFunc(ring, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.via.job, b.via.job), cmp.Compare(a.via.note.Member, b.via.note.Member))
	}))
	return slices.Concat(ring[at:], ring[:at])
}

// tries bounds the search in a knot of thousands of meetings, where any short cycle will do.
const tries = 64

// shortest is the shortest cycle of ranks in a knot that wait for each other, as its edges; nil if there is none: an
// edge from a process that ended to the cause of its end is no wait.
func shortest(knot []*meeting) (best []edge) {
	inside := map[*meeting]bool{}
	for _, m := range knot {
		inside[m] = true
	}
	type step struct {
		edge
		from *meeting
	}
	for _, start := range knot[:min(len(knot), tries)] {
		first := map[*meeting]step{} // that led to each
		for queue := []*meeting{start}; len(queue) > 0 && first[start].from == nil; queue = queue[1:] {
			m := queue[0]
			for _, e := range m.edges {
				if inside[e.to] && first[e.to].from == nil && slices.Contains(m.missing, e.via) {
					first[e.to] = step{e, m}
					queue = append(queue, e.to)
				}
			}
		}
		var ring []edge
		for s := first[start]; s.from != nil; s = first[s.from] {
			if ring = append(ring, s.edge); s.from == start {
				break
			}
		}
		slices.Reverse(ring)
		if ring != nil && (best == nil || len(ring) < len(best)) {
			best = ring
		}
	}
	return best
}

// afterLeaving tells whether a rank of a cycle had ended a communicator that others need before it came there: that is
// the cause, as its program has met errors since.
func afterLeaving(ring []edge) bool {
	return slices.ContainsFunc(ring, func(e edge) bool {
		in := e.in()
		return in != nil && slices.ContainsFunc(e.via.leaves, func(l *leaf) bool {
			return l.why == leftComm && l.left.Age > in.since
		})
	})
}

// in is the edge's rank in the meeting that the edge leads to; nil if it isn't there.
func (e *edge) in() *participant {
	i := slices.IndexFunc(e.via.in, func(p *participant) bool { return p.meeting == e.to })
	if i < 0 {
		return nil
	}
	return e.via.in[i]
}
