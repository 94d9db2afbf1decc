package verdict

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A device performs the messages of a group together, so that the operation in flight doesn't tell which of them its
// rank waits for. The counts of both sides do: the rank waits for the peers that have called for fewer of their
// messages.

// countsMessages reports whether the messages of a slot's rank are counted. Those that a graph replays are not.
func (s *Slot) countsMessages() bool { return s.Counted && s.Captured == 0 }

// inCountedMessages reports whether a slot's rank is, or may be, in messages of a device of which only the counts tell
// which of them it waits for.
func (s *Slot) inCountedMessages() bool {
	return s.Enqueues && s.countsMessages() && (s.InFlight > 0 && !s.queued() || s.Unproven) && s.inMessage()
}

// unlaunched reports whether a slot's rank has called for stream operations and not launched them: they are in a group
// that has not ended, or NCCL is still launching them.
func (s *Slot) unlaunched() bool {
	return s.Enqueues && s.Counted && s.InFlight > 0 && (s.Phase == tape.PhaseNone || s.Phase == tape.PhaseGroup)
}

// withholds reports whether a slot's rank has called, in a group that has not ended, for a send to a rank that has
// called for its receive.
func (s *Slot) withholds(to *Slot) bool {
	return s.unlaunched() && s.Phase == tape.PhaseGroup && s.Op.Call == lifecycle.CallSend &&
		int(s.Op.Peer) == to.Rank && s.Seq <= to.Messages[int32(s.Rank)].Received
}

// unlaunched reports whether a rank has not launched its part of the meeting.
func (p *participant) unlaunched() bool {
	if p.act() != nil {
		return p.grouped()
	}
	return p.slot.unlaunched()
}

// grouped reports whether the part is not launched because its group has not ended.
func (p *participant) grouped() bool {
	if act := p.act(); act != nil {
		return act.Phase == tape.PhaseGroup
	}
	return p.slot.InFlight > 0 && p.slot.Phase == tape.PhaseGroup
}

// unlaunched reports whether no rank has launched its part of the meeting.
func (m *meeting) unlaunched() bool {
	return !slices.ContainsFunc(m.present, func(p *participant) bool { return !p.unlaunched() })
}

// act is the open act that makes or ends a communicator and in which a rank meets the others; nil if there is none.
func (p *participant) act() *OpenAct {
	switch p.meeting.key.kind { //nolint:exhaustive // the others are of operations
	case joining:
		return p.slot.open(tape.ActInit)
	case leaving:
		return p.slot.ending()
	}
	making := func(a OpenAct) bool { return a.Act.String() == p.slot.Op.Call.String() }
	if i := slices.IndexFunc(p.slot.Acts, making); i >= 0 && p.meeting.key.kind == collective {
		return &p.slot.Acts[i]
	}
	return nil
}

// countsWith tells whether all messages of a slot's rank with another one are counted.
func (s *Slot) countsWith(rank int) bool {
	_, known := s.Messages[int32(rank)]
	return s.countsMessages() && (known || len(s.Messages) < model.MaxPeers)
}

// lack is the messages that a rank has not called for, and its peer has.
type lack struct {
	actor   *actor
	sends   bool   // the rank is to send them; else, to receive them
	number  uint64 // of the first one
	by      uint64 // how many they are; 0: none
	certain bool   // the peer waits for the first one
}

// lacks returns what s's rank lacks of p's messages. The message that p is in counts even if p had no room to count it.
func (s *Slot) lacks(p *Slot) (l lack) {
	theirs, own := p.Messages[int32(s.Rank)], s.Messages[int32(p.Rank)]
	if (p.InFlight > 0 || p.Unproven) && int(p.Op.Peer) == s.Rank {
		switch p.Op.Call {
		case lifecycle.CallSend:
			theirs.Sent, l.certain = max(theirs.Sent, p.Seq), own.Received < p.Seq
		case lifecycle.CallRecv:
			theirs.Received, l.certain = max(theirs.Received, p.Seq), own.Sent < p.Seq
		default:
		}
	}
	if theirs.Received > own.Sent {
		l.sends, l.number, l.by = true, own.Sent+1, theirs.Received-own.Sent
	}
	if theirs.Sent > own.Received+l.by && (!p.Unproven || !l.sends) {
		l.sends, l.number, l.by = false, own.Received+1, theirs.Sent-own.Received
	}
	if p.Unproven { // its sends may be in flight; its receives have not arrived
		l.certain = l.sends
	}
	return l
}

// text completes "has not …" for the rank that lacks a message with another one.
func (l *lack) text(other Rank, s *Slot) Text {
	if l.sends {
		return say("sent message %d to %s on %s", l.number, other, commText(s))
	}
	return say("called recv for message %d from %s on %s", l.number, other, commText(s))
}

// unmatched lists the messages that ranks of a collective's communicator have called for, and their peers have not.
func (m *meeting) unmatched() (evidence []Text) {
	for p := range m.members() {
		for _, peer := range slices.Sorted(maps.Keys(p.slot.Messages)) {
			q := m.at(int(peer))
			if q == nil || !q.slot.countsWith(p.slot.Rank) {
				continue
			}
			if l := q.slot.lacks(p.slot); l.by > 0 {
				if len(evidence) == maxEvidence {
					return evidence
				}
				evidence = append(evidence, say("%s has not %s", rankOf(q.actor, m.key.comm),
					l.text(rankOf(p.actor, m.key.comm), m.slot)))
			}
		}
	}
	return evidence
}

// likeOthers reports whether a rank has called for as many messages with a third rank as with the rank that lacks some,
// and whether it has any with a third rank.
func (s *Slot) likeOthers(rank int, l lack) (asMany, some bool) {
	count := func(m model.Messages) uint64 {
		if l.sends {
			return m.Received
		}
		return m.Sent
	}
	for r, m := range s.Messages {
		if n := count(m); int(r) != rank && n > 0 {
			asMany, some = asMany || n >= count(s.Messages[int32(rank)]), true
		}
	}
	return asMany, some
}

// expectMessages adds the ranks that p waits for to those that a meeting waits for: the ranks that lack the message
// that p's slot shows, or more messages than p's program has launched since. If there are none, it adds those that lack
// most; the others may lack only later messages. If no rank lacks any, p waits for ranks that earlier messages hold
// back. Else p may wait, in this order, for ranks that have not launched their messages, whose stream has not come to
// them, that aborted the communicator before completing them, or whose messages are not counted.
func (g *graph) expectMessages(m *meeting, p *participant) {
	var lacking []lack
	var unlaunched, queued, aborted, uncounted []int
	ranks := slices.Sorted(maps.Keys(p.slot.Messages))
	if peer := p.slot.Op.Peer; int(peer) != p.slot.Rank && !slices.Contains(ranks, peer) {
		ranks = append(ranks, peer)
	}
	for _, peer := range ranks {
		rank := int(peer)
		q := m.at(rank)
		if q == nil || !q.slot.countsWith(p.slot.Rank) {
			if q == nil || peer == p.slot.Op.Peer { // nothing says that p waits for the other ranks
				uncounted = append(uncounted, rank)
			}
			continue
		}
		l := q.slot.lacks(p.slot)
		l.actor, l.certain = q.actor, l.certain || !p.slot.Unproven && l.by >= p.slot.InFlight
		switch {
		case l.by > 0:
			lacking = append(lacking, l)
			if asMany, _ := p.slot.likeOthers(rank, l); q.slot.Left != nil && !asMany {
				m.guessed = true // p may have called for one too many
			}
		case q.slot.InFlight > 0 && q.actor.note.Fate != Alive && q.actor.note.FateAge >= m.until:
			m.addMissing(q.actor)
		case q.slot.unlaunched() && !p.slot.unlaunched(): // else NCCL may be connecting both
			unlaunched = append(unlaunched, rank)
		case q.slot.queued() && q.slot.inMessage():
			queued = append(queued, rank)
		case q.slot.Left != nil && q.slot.Left.Act == tape.ActAbort:
			aborted = append(aborted, rank)
		}
	}
	certain := func(l lack) bool { return l.certain }
	if !slices.ContainsFunc(lacking, certain) {
		most := uint64(0)
		for _, l := range lacking {
			most, m.guessed = max(most, l.by), true
		}
		certain = func(l lack) bool { return l.by == most }
	}
	for _, l := range lacking {
		if certain(l) {
			m.addMissing(l.actor)
		}
	}
	for _, unbuffered := range []bool{false, true} {
		if len(m.missing) > 0 || unbuffered && !p.slot.Reached {
			break
		}
		for _, rank := range g.heldBack(p.slot, unbuffered) {
			in := g.meetings[meetingKey{comm: m.key.comm, kind: exchange, from: rank}]
			if in != nil && (!unbuffered || in.slot.Reached) { // else it is not known to have come so far
				g.expect(m, rank)
				m.guessed = m.guessed || unbuffered
			}
		}
	}
	for _, some := range [][]int{unlaunched, queued, aborted, uncounted} {
		if len(m.missing) == 0 {
			for _, rank := range some {
				g.expect(m, rank)
				m.guessed = true
			}
		}
	}
}

// calledTooOften reports whether the rank of counted messages has called for more of them with each missing rank than
// with any other rank.
func (m *meeting) calledTooOften() bool {
	like := func(a *actor) bool {
		q := a.slotIn(m.key.comm)
		if q == nil { // nothing is known of what it called for
			return true
		}
		asMany, some := m.slot.likeOthers(q.Rank, q.lacks(m.slot))
		return asMany || !some
	}
	return m.key.kind == exchange && m.slot.inCountedMessages() && !slices.ContainsFunc(m.missing, like)
}

// openGroups is the verdict on ranks of a meeting that have not launched an operation that others have launched or wait
// for; false if there are none. These are the ranks whose groups have not ended or, if there are none, those for which
// NCCL may still be launching. A rank that was in another call before may have to wait for that: its device's queue may
// be full. If all ranks are in open groups, they may be about to end them, until missingTime has passed.
func (w *walk) openGroups(m *meeting) (Verdict, bool) {
	var culprits []*actor
	var since time.Duration
	confidence, why, in := Certain, "its group has not ended", (*participant).grouped
	if !slices.ContainsFunc(m.present, in) {
		confidence, why, in = Likely, "its group has not ended, or NCCL is still at it", (*participant).unlaunched
	}
	for _, p := range m.present {
		before := func(q *participant) bool { return q.until == 0 && q.since > p.since }
		switch {
		case !in(p) || slices.ContainsFunc(p.actor.in, before):
		case p.since < m.age/2: // it has just come
			w.moving = true
			return Verdict{}, false
		default:
			culprits, since = append(culprits, p.actor), max(since, p.since)
		}
	}
	held := m.key.kind == exchange && len(m.waiters) > 0 || m.key.kind == leaving && len(m.present) < m.slot.Size
	if n := len(culprits); n == 0 || n == len(m.present) && !held && (m.age < missingTime || confidence != Certain) {
		return Verdict{}, false
	}
	v := m.verdict(UnfinishedGroup, confidence, m.ranksOf(culprits), victims([]*meeting{m}, culprits))
	v.Text = say("%s began %s %s ago, and it is not launched: %s%s",
		culpritsText(v.Culprits), m.text(), Age(since), why, waiting(v.Victims))
	v.Evidence = append(v.Evidence, attendance(m))
	return v, true
}

// stalledMessages are the verdicts on communicators whose ranks have long been in messages although no rank is known to
// lack any.
func (w *walk) stalledMessages() (verdicts []Verdict) {
	for _, m := range w.seen {
		known := func(v Verdict) bool { return v.Comm == m.key.comm }
		if m.key.kind != exchange || !m.slot.inCountedMessages() || len(m.missing) > 0 || !m.trouble ||
			slices.ContainsFunc(verdicts, known) || m.age < m.undecided(m.members()) {
			continue
		}
		var here []*meeting
		v := w.unknown(m, "no rank is known to have called for fewer messages than the others, and "+m.standstill())
		for _, o := range w.order {
			if o.key.comm == m.key.comm && o.key.kind == exchange && o.slot.inCountedMessages() {
				here = append(here, o)
				v.Evidence = append(v.Evidence, o.waiting()...)
			}
		}
		v.Victims = waits(here...)
		verdicts = append(verdicts, v)
	}
	return verdicts
}
