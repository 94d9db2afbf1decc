package verdict

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// cycle is the verdict on meetings that wait for each other. The ranks at fault are those that deviants picks by its
// first applicable rule; if no rule applies, all ranks of the cycle.
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
	if len(v.Culprits) == 0 { // the call that has waited longest may change
		v.ID = hash(v.Reason, names(wrong))
	}
	var lone *actor // the only deviant: the sentence says what it did
	if len(deviants) == 1 && w.oddity(deviants[0]) != nil {
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
	v.Evidence = append(v.Evidence, lacking(ring)...)
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
		v.Text = w.oddity(lone).text(culpritsText(wrong))
		w.dispute(&v, lone)
	case rule.says == otherPeer && len(deviants) == 1:
		i := slices.IndexFunc(ring, func(e edge) bool { return e.via == deviants[0] })
		v.Text = say("%s called for a message with %s, with which it had exchanged none before", culpritsText(wrong),
			rankOf(ring[(i+1)%len(ring)].via, ring[i].to.key.comm))
	default:
		v.Text = say("%s %s", culpritsText(wrong), rule.says)
		if unsettled(ring, deviants) {
			v.Text.add(", and it is not known which is wrong")
			v.Confidence = Likely
		}
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

// lacking lists the messages that ranks of a cycle have not called for, and for which others of it wait in groups.
func lacking(ring []edge) (evidence []Text) {
	for i, e := range ring {
		waits, next := e.to.slot, ring[(i+1)%len(ring)].via
		s := next.slotIn(e.to.key.comm)
		if e.to.key.kind != exchange || !waits.countsMessages() || s == nil || !s.countsWith(waits.Rank) {
			continue
		}
		if l := s.lacks(waits); l.by > 0 {
			evidence = append(evidence, say("%s has not %s", rankOf(next, e.to.key.comm),
				l.text(rankOf(e.via, e.to.key.comm), waits)))
		}
	}
	return evidence
}

// unsettled reports whether a deviant of a cycle waits for a message with another one: if either of them is right, the
// other one alone is wrong.
func unsettled(ring []edge, deviants []*actor) bool {
	for i, e := range ring {
		next := ring[(i+1)%len(ring)].via
		if e.to.key.kind == message && slices.Contains(deviants, e.via) && slices.Contains(deviants, next) {
			return true
		}
	}
	return false
}

// rule tells which ranks of a cycle are at fault.
type rule struct {
	is    func(i int) bool // whether the rank of the i-th edge is at fault
	proof Confidence
	says  string // what those ranks did
}

// deviants returns the ranks of a cycle that are at fault, in the cycle's order, and the rule that picked them: the
// first one that picks some ranks but not all. If no rule does, it returns all ranks and nil.
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
	)
	for _, r := range []rule{
		{func(i int) bool { return w.inStep(ring[i].via) == no }, Certain, order},
		{func(i int) bool { return w.odd(ring[i].via) != nil }, Certain, unfit},
		{func(i int) bool { return ring[i].via.oddGroup() != nil }, Likely, unfit},
		{func(i int) bool { return outnumbered(ring, i, collective) }, Likely, order},
		{func(i int) bool { return outnumbered(ring, i, joining) }, Likely, otherID},
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

const (
	// otherID is what a rank did that is in the smaller of two inits.
	otherID = "gave an init another id than the others"
	// otherPeer is what ranks did that are in the first message of a pair.
	otherPeer = "called for a message with a rank with which it had exchanged none before"
)

// outnumbered reports whether a cycle has just two meetings, of the given kind, that divide the same ranks between
// them, and the rank of edge i is in the smaller one.
func outnumbered(ring []edge, i int, kind meetingKind) bool {
	own, other := ring[i].to, ring[(i+1)%len(ring)].to
	return len(ring) == 2 && own.key.kind == kind && other.key.kind == kind &&
		own.slot.Size == other.slot.Size && len(own.present) < len(other.present) &&
		len(own.present)+len(other.present) == own.slot.Size
}

// leftOut reports whether the rank of an edge seems to have left out a message: it has called for fewer messages with
// the rank that waits for it than that rank has. If it makes groups of messages, each of them had such a message but
// the last. Otherwise it has called for just as many messages with a third rank, and for so few with no other rank.
func leftOut(ring []edge, i int) bool {
	e := ring[(i+len(ring)-1)%len(ring)] // leads to the meeting that the rank is missing from
	waits, s := e.to.slot, ring[i].via.slotIn(e.to.key.comm)
	if e.to.key.kind != exchange || !waits.countsMessages() || s == nil || !s.countsWith(waits.Rank) {
		return false
	}
	l, asMany, asFew := s.lacks(waits), false, false
	all := l.number + l.by - 1
	if s.Groups > 0 {
		return l.by > 0 && s.Groups >= often && all%s.Groups == 0
	}
	for r, m := range s.Messages {
		for _, n := range []uint64{m.Sent, m.Received} {
			asMany = asMany || int(r) != waits.Rank && n == all
			asFew = asFew || int(r) != waits.Rank && n == l.number-1 && n > 0
		}
	}
	return l.by > 0 && asMany && !asFew
}

// groups reports whether a rank has made groups of messages. Its history doesn't show which messages they had, so that
// it may be at fault although it is in step with others.
func (a *actor) groups() bool {
	return slices.ContainsFunc(a.slots, func(s *Slot) bool { return s.Groups > 0 })
}

// onlyOne reports whether, in a cycle of three or more messages, the rank of an edge is the only sender or the only
// receiver.
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

// stayedOut reports whether the rank of an edge is the only one of three or more ranks that has not entered the act
// which makes a communicator. Histories don't contain acts.
func stayedOut(ring []edge, i int) bool {
	m := ring[(i+len(ring)-1)%len(ring)].to
	call := m.slot.Op.Call
	return m.key.kind == collective && call.IsCollective() && !call.IsOperation() && m.slot.Size > 2 &&
		len(m.present) == m.slot.Size-1
}

// newPair reports whether an edge leads to the first message between two ranks, while another pair of the cycle has
// exchanged often messages or more, and no pair a number in between.
func newPair(ring []edge, i int) bool {
	exchanged := func(i int, from, to uint64) bool {
		e, next := ring[i], ring[(i+1)%len(ring)]
		s, o := e.via.slotIn(e.to.key.comm), next.via.slotIn(e.to.key.comm)
		counted := e.to.key.kind == message || e.to.key.kind == exchange && e.to.slot.countsMessages()
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

// shortest returns the edges of the shortest cycle of ranks in a knot that wait for each other; nil if there is none.
// An edge from an ended process to the cause of its end is not a wait.
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
		first := map[*meeting]step{} // the step that first led to each
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

// afterLeaving reports whether a rank of a cycle ended a communicator that others need before it entered its meeting in
// the cycle. Then that end is the cause, as the rank's program has met errors since.
func afterLeaving(ring []edge) bool {
	return slices.ContainsFunc(ring, func(e edge) bool {
		in := e.in()
		return in != nil && slices.ContainsFunc(e.via.leaves, func(l *leaf) bool {
			return l.why == leftComm && l.left.Age > in.since
		})
	})
}

// in returns the edge's rank as a participant of the meeting that the edge leads to; nil if it isn't there.
func (e *edge) in() *participant {
	i := slices.IndexFunc(e.via.in, func(p *participant) bool { return p.meeting == e.to })
	if i < 0 {
		return nil
	}
	return e.via.in[i]
}
