package verdict

import (
	"maps"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A device does the messages of a group together, so that the operation in flight doesn't tell which of them its rank
// waits for. The counts of both sides do: it waits for ranks that have called for fewer of their messages.

// inCountedMessages tells whether the rank of a slot is in messages that are counted.
func (s *Slot) inCountedMessages() bool {
	_, known := s.Messages[s.Op.Peer]
	return s.Counted && (known || len(s.Messages) >= model.MaxPeers) && s.InFlight > 0 && !s.queued() &&
		(s.Op.Call == lifecycle.CallSend || s.Op.Call == lifecycle.CallRecv)
}

// unlaunched tells whether the rank of a slot has called for operations that a stream is to do, and not launched them:
// they are in a group that has not ended, or NCCL has not returned.
func (s *Slot) unlaunched() bool { return s.Counted && s.InFlight > 0 && s.Phase == tape.PhaseNone }

// countsWith tells whether all messages of a slot's rank with another one are counted.
func (s *Slot) countsWith(rank int) bool {
	_, known := s.Messages[int32(rank)]
	return s.Counted && (known || len(s.Messages) < model.MaxPeers)
}

// lack is what a rank has not called for of its messages with another one, which has.
type lack struct {
	actor  *actor
	sends  bool   // it is to send them, or else to receive
	number uint64 // of the first one
	by     uint64 // how many they are; 0: none
}

// lacks compares the counts of two ranks.
func (s *Slot) lacks(p *Slot) (l lack) {
	theirs, own := p.Messages[int32(s.Rank)], s.Messages[int32(p.Rank)]
	if theirs.Received > own.Sent {
		l = lack{sends: true, number: own.Sent + 1, by: theirs.Received - own.Sent}
	}
	if theirs.Sent > own.Received+l.by {
		l = lack{number: own.Received + 1, by: theirs.Sent - own.Received}
	}
	return l
}

// expectMessages adds the ranks that p waits for to those that a meeting waits for. If p has launched more since, a
// rank may lack later messages alone; then those that lack most are taken. If none lacks any, p may wait for those
// that have not launched theirs, or for those whose stream has not come to them, or for those that are not counted.
func (g *graph) expectMessages(m *meeting, p *participant) {
	var lacking []lack
	var unlaunched, queued, uncounted []int
	most := p.slot.InFlight - 1 // what was launched since
	for _, rank := range slices.Sorted(maps.Keys(p.slot.Messages)) {
		q := m.at(int(rank))
		if q == nil || !q.slot.countsWith(p.slot.Rank) {
			uncounted = append(uncounted, int(rank))
			continue
		}
		l := q.slot.lacks(p.slot)
		switch {
		case q.slot == p.slot:
		case l.by > 0:
			l.actor = q.actor
			lacking = append(lacking, l)
		case q.slot.InFlight > 0 && q.actor.note.Fate != Alive && q.actor.note.FateAge >= m.until:
			m.addMissing(q.actor)
		case q.slot.unlaunched():
			unlaunched = append(unlaunched, int(rank))
		case q.slot.queued() && q.slot.inMessage():
			queued = append(queued, int(rank))
		}
	}
	certain := slices.ContainsFunc(lacking, func(l lack) bool { return l.by > most })
	if !certain {
		most = 0
		for _, l := range lacking {
			most, m.guessed = max(most, l.by-1), true
		}
	}
	for _, l := range lacking {
		if l.by > most {
			m.addMissing(l.actor)
		}
	}
	for _, some := range [][]int{unlaunched, queued, uncounted} {
		if len(m.missing) == 0 {
			for _, rank := range some {
				g.expect(m, rank)
				m.guessed = true
			}
		}
	}
}

// openGroups is the verdict on ranks of a meeting that have not launched what others have, or wait for; false if there
// are none. A rank that was in something else before may have to wait for that: its device's queue may be full.
func (w *walk) openGroups(m *meeting) (Verdict, bool) {
	var culprits []*actor
	for _, p := range m.present {
		before := func(q *participant) bool { return q.until == 0 && q.since > p.since }
		if p.slot.unlaunched() && !slices.ContainsFunc(p.actor.in, before) {
			culprits = append(culprits, p.actor)
		}
	}
	if n := len(culprits); n == 0 || n == len(m.present) && (m.key.kind != exchange || len(m.waiters) == 0) {
		return Verdict{}, false
	}
	v := m.verdict(UnfinishedGroup, Likely, m.ranksOf(culprits), victims([]*meeting{m}, culprits))
	v.Text = say("%s called for %s %s ago, and did not launch it: a group that was begun is not ended, or NCCL has "+
		"not returned%s", culpritsText(v.Culprits), m.text(), Age(m.age), waiting(v.Victims))
	v.Evidence = append(v.Evidence, attendance(m))
	return v, true
}

// stalledMessages are the verdicts on communicators whose ranks have long been in messages of which none is known to
// lack any.
func (w *walk) stalledMessages() (verdicts []Verdict) {
	var stalled []*meeting
	for _, m := range w.seen {
		waits := m.key.kind == exchange && m.slot.inCountedMessages() && len(m.missing) == 0
		if waits && m.trouble && m.age >= missingTime {
			stalled = append(stalled, m)
		}
	}
	for len(stalled) > 0 {
		first := stalled[0]
		other := func(m *meeting) bool { return m.key.comm != first.key.comm }
		here := slices.DeleteFunc(slices.Clone(stalled), other)
		stalled = slices.DeleteFunc(stalled, func(m *meeting) bool { return !other(m) })
		v := w.unknown(first, "no rank is known to have called for fewer messages than the others; what was launched "+
			"on a stream before may go on, or data does not move")
		v.Victims = waits(here...)
		v.Evidence = []Text{say("%d of %d ranks are in groups of messages", len(here), first.slot.Size)}
		for _, m := range here {
			v.Evidence = append(v.Evidence, m.waiting()...)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}
