package verdict

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// findMissing finds the ranks that a meeting waits for.
func (g *graph) findMissing(m *meeting) {
	joins := m.key.kind == joining || m.key.kind == broken && m.slot.notMade()
	m.contradicted = joins && g.claimsOf(m).contradict()
	if m.contradicted || m.differ || m.mismatched() {
		return // it fails even if all come
	}
	if _, _, unequal := m.unequal(); unequal {
		return // it does not end even if both have come
	}
	if m.engine != nil && m.key.kind != broken && m.engineTells() {
		return
	}
	if g.canceledEarly(m) {
		m.missing = slices.Clone(m.gaveUp)
		return
	}
	if m.key.kind == joining && g.earlier(m) {
		g.moving = true
		return
	}
	switch m.key.kind {
	case collective, joining, leaving:
		for r := range m.slot.Size {
			g.expect(m, r)
		}
	case message:
		g.expect(m, m.key.from)
		g.expect(m, m.key.to)
	case exchange:
		for _, p := range m.present {
			if p.slot.inCountedMessages() {
				g.expectMessages(m, p)
				continue
			}
			wait := p.slot.Wait
			if p.until > 0 && p.slot.Failure != nil {
				wait = p.slot.Failure.Wait
				if wait < 0 {
					wait = p.slot.Failure.Peer
				}
			}
			if wait >= 0 && wait != p.slot.Rank {
				g.expect(m, wait)
			}
		}
	case broken:
		g.expect(m, m.slot.Failure.Peer)
	}
	if m.key.kind == joining {
		m.firstFailed()
	}
	if never := func(a *actor) bool { return !m.waitedIn(a) }; slices.ContainsFunc(m.missing, never) {
		m.missing = slices.DeleteFunc(m.missing, m.waitedIn)
	}
	for _, p := range m.present {
		if wait := p.slot.Wait; wait >= 0 && p.until == 0 {
			g.expectCarrier(m, wait, p.slot.Rank)
			g.expectCarrier(m, p.slot.Rank, wait)
		}
	}
}

// firstFailed drops from the missing ranks those whose init may have failed because of another rank: that rank's init
// failed earlier, or its process ended, or it never came, as the engine says.
func (m *meeting) firstFailed() {
	first := time.Duration(0) // how long ago
	for _, a := range m.missing {
		switch s := a.slotIn(m.key.comm); {
		case s != nil && s.notMade():
			first = max(first, s.Left.Age)
		case s != nil && a.ended():
			first = max(first, a.note.FateAge)
		}
	}
	others := len(m.absent) > 0 || slices.ContainsFunc(m.missing, func(a *actor) bool { return !m.failedFor(a) })
	m.missing = slices.DeleteFunc(m.missing, func(a *actor) bool {
		return m.failedFor(a) && (a.slotIn(m.key.comm).Left.Age+skew < first || others && m.blamesOther(a))
	})
}

// failedFor tells whether the init of a rank failed.
func (m *meeting) failedFor(a *actor) bool {
	s := a.slotIn(m.key.comm)
	return s != nil && s.notMade()
}

// blamesOther tells whether a rank's init failed because of another rank, as the engine says.
func (m *meeting) blamesOther(a *actor) bool {
	f := a.slotIn(m.key.comm).Failure
	return f.lost() || f.is(lifecycle.CodeTimeout, lifecycle.CodePeerAborted)
}

// leftIn returns a rank's part in a meeting if its process left in order in the middle of it; else nil.
func (m *meeting) leftIn(a *actor) *participant {
	i := slices.IndexFunc(m.present, func(p *participant) bool { return p.actor == a })
	if i < 0 || a.note.Fate != Departed {
		return nil
	}
	return m.present[i]
}

// waitedIn reports whether a process left in order in the middle of a meeting after waiting in it for a while. It is no
// cause if another rank never came.
func (m *meeting) waitedIn(a *actor) bool {
	p := m.leftIn(a)
	return p != nil && p.since-a.note.FateAge >= settleTime
}

// earlier reports whether a meeting is the init of a child, and a rank of the parent has a note from before it came to
// the split: no rank is in the init before all have come to the split.
func (g *graph) earlier(m *meeting) bool {
	for _, p := range m.present {
		parent := p.actor.slotIn(m.slot.Parent)
		if parent == nil || parent.open(tape.ActSplit) == nil {
			continue
		}
		for q := range g.members(parent) {
			if n := q.actor.note; n.Fate == Alive && !n.Stale && q.slot.open(tape.ActSplit) == nil &&
				q.slot.Splits < parent.open(tape.ActSplit).Seq {
				return true
			}
		}
	}
	return false
}

// expectCarrier adds the rank whose proxy carries the data from one rank to another to a meeting's missing ranks,
// unless its process runs.
func (g *graph) expectCarrier(m *meeting, from, to int) {
	p := g.carrier(m.slot, from, to)
	if p == nil || p.actor.note.Fate == Alive || p.slot.Rank == from || slices.Contains(m.missing, p.actor) {
		return
	}
	m.addMissing(p.actor)
	m.carried = append(m.carried, carried{p.actor, from, to})
}

// engineTells tells whether the engine names the rank that caused a failure, and adds it to the missing: a rank that
// died, is out of reach, or ended the communicator before it came.
func (m *meeting) engineTells() bool {
	f := m.engine
	if f.Peer < 0 {
		return false
	}
	p := m.at(f.Peer)
	switch f.Code {
	case lifecycle.CodeRankDead:
	case lifecycle.CodeUnreachable:
		if p != nil && (!p.actor.gone() || p.actor.note.FateAge < f.Age) {
			return true // the process ran: the network failed
		}
	case lifecycle.CodePeerAborted:
		if m.stalledBefore() && (p == nil || p.slot.Begun >= m.key.seq) {
			return false // it may have come too, and aborted an operation that stalled
		}
	default:
		return false
	}
	if p != nil {
		m.addMissing(p.actor)
	} else {
		m.absent = append(m.absent, f.Peer)
	}
	return true
}

// stalledBefore tells whether a meeting that failed had stalled by then.
func (m *meeting) stalledBefore() bool {
	return slices.ContainsFunc(m.present, func(p *participant) bool { return p.stalled })
}

// expect adds a rank to those that a meeting waits for, unless the rank is in it, has passed it, or takes no part.
func (g *graph) expect(m *meeting, rank int) {
	p := m.at(rank)
	if m.key.kind == collective && m.slot.Op.Call == lifecycle.CallShrink && m.slot.shrinksWithout(rank) {
		return
	}
	if p == nil {
		m.absent = append(m.absent, rank)
		return
	}
	if m.key.kind == broken || m.key.kind == exchange {
		m.addMissing(p.actor)
		return
	}
	if passed(m, p.slot) {
		if m.cameLate(p.slot) {
			m.addMissing(p.actor)
		}
		return
	}
	here := slices.ContainsFunc(m.present, func(q *participant) bool { return q.actor == p.actor && q.slot == p.slot })
	if !here || p.actor.note.Fate != Alive && p.slot.Failure == nil && p.actor.note.FateAge >= m.until {
		m.addMissing(p.actor)
	}
}

func (m *meeting) addMissing(a *actor) {
	if !slices.Contains(m.missing, a) {
		m.missing = append(m.missing, a)
	}
}

// cameLate reports whether others waited for a rank when the meeting failed, and the rank came only then. It may have
// completed the call all the same: the other ranks had posted what it needed.
func (m *meeting) cameLate(s *Slot) bool {
	return m.engine != nil && m.engine.Wait == s.Rank && m.key.kind == collective && s.Seq == m.key.seq &&
		s.Age+s.Took+skew < m.until
}

// passed tells whether the rank of a slot has completed the meeting, or gone beyond it.
func passed(m *meeting, s *Slot) bool {
	switch m.key.kind {
	case joining:
		return s.open(tape.ActInit) == nil && s.State != lifecycle.StateInitializing && !s.notMade()
	case leaving:
		return s.Left != nil
	case collective:
		return s.Begun > m.key.seq && (s.InFlight == 0 || s.Seq > m.key.seq) || s.Done >= m.key.seq
	case message:
		sends := s.Rank == m.key.from
		own := sends && s.Op.Call == lifecycle.CallSend && int(s.Op.Peer) == m.key.to ||
			!sends && s.Op.Call == lifecycle.CallRecv && int(s.Op.Peer) == m.key.from
		return own && (s.Seq > m.key.seq || s.Seq == m.key.seq && s.InFlight == 0 && !s.Failed)
	default:
		return false
	}
}

// spansJob reports whether a communicator's ranks are the job's, by number: no known rank has another number in the
// job.
func (g *graph) spansJob(s *Slot) bool {
	return s.Parent.IsZero() && s.Size == g.size && !g.renumbered[s.Comm]
}

// rankAt is a rank of a communicator as the verdict names it, whether or not a process is known to have it.
func (g *graph) rankAt(s *Slot, rank int) Rank {
	if p := g.ranks[commRank{s.Comm, rank}]; p != nil {
		return rankOf(p.actor, s.Comm)
	}
	r := Rank{Job: -1, Comm: rank, comm: commText(s)}
	if g.spansJob(s) {
		r.Job = rank
	}
	return r
}

// assignAbsent looks for the actors of ranks without a slot. In a communicator that spans the job, ranks are the job's;
// in one made by a shrink, ranks keep the parent's order; else they may be the processes that can't answer.
func (g *graph) assignAbsent(m *meeting) {
	whole := g.spansJob(m.slot)
	var still []int
	for _, r := range m.absent {
		a := g.byJob[r]
		if !whole {
			a = g.shrunk(m, r)
		}
		if a != nil {
			if a.due == nil {
				a.due = map[lifecycle.CommID]int{}
			}
			a.due[m.key.comm] = r
			m.addMissing(a)
			m.guessed = m.guessed || m.key.kind != joining
		} else {
			still = append(still, r)
		}
	}
	m.absent = still
	if makers := g.makers(m); len(makers) == len(m.absent) {
		for _, a := range makers {
			m.addMissing(a)
		}
		m.absent = nil
	}
	if len(m.absent) == 0 {
		return
	}
	candidates := g.hidden
	if m.key.kind == joining {
		late := g.lateMembers(m)
		if joins := len(late) > 0 && m.slot.joins(); joins || len(late) == len(m.absent) {
			candidates = late
		} else if rest := g.outside(m); len(rest) == len(m.absent) {
			candidates = rest
		} else if rest = m.inOrder(rest); len(rest) == len(m.absent) {
			candidates, m.byOrder = rest, true
		}
	}
	for _, a := range candidates {
		m.addMissing(a)
	}
	if len(candidates) > 0 {
		m.absent, m.guessed = nil, true
	}
}

// makers are the ranks that are in the act which makes a meeting's communicator, and don't have it yet.
func (g *graph) makers(m *meeting) (some []*actor) {
	for _, a := range g.actors {
		makes := func(s *Slot) bool {
			return slices.ContainsFunc(s.Acts, func(o OpenAct) bool { return o.Child == m.key.comm })
		}
		if a.slotIn(m.key.comm) == nil && slices.ContainsFunc(a.slots, makes) {
			some = append(some, a)
		}
	}
	return some
}

// lateMembers are the parent's ranks that have no slot in a meeting's communicator yet, or don't know their rank in it,
// and that either don't run or are in a split or grow of the parent. A rank that joins by a grow knows no parent: for
// it, they are all ranks that are in a grow.
func (g *graph) lateMembers(m *meeting) []*actor {
	var late []*actor
	for _, a := range g.actors {
		if m.slot.joins() {
			if slices.ContainsFunc(a.slots, func(s *Slot) bool { return s.open(tape.ActGrow) != nil }) {
				late = append(late, a)
			}
			continue
		}
		s, own := a.slotIn(m.slot.Parent), a.slotIn(m.key.comm)
		if s == nil || own != nil && own.Rank >= 0 {
			continue
		}
		if a.note.Fate != Alive || s.open(tape.ActSplit) != nil || s.open(tape.ActGrow) != nil {
			late = append(late, a)
		}
	}
	return late
}

// outside are the ranks that have not left the job and are not in a meeting's communicator; none if a process of the
// job has no note.
func (g *graph) outside(m *meeting) (rest []*actor) {
	if n := g.notes[0].JobSize; n == 0 || len(g.notes) < n {
		return nil
	}
	for _, a := range g.actors {
		if a.note.Fate != Departed && a.slotIn(m.key.comm) == nil {
			rest = append(rest, a)
		}
	}
	return rest
}

// inOrder are those of some ranks that can be absent ranks of a meeting if its communicator has the order of the job's
// ranks; none if fewer than two of its ranks are known, or any communicator of the job has another order. It is a guess
// all the same: a program may order each communicator as it likes.
func (m *meeting) inOrder(some []*actor) []*actor {
	known := slices.Collect(m.members())
	if len(known) < 2 || m.g.reordered {
		return nil
	}
	return slices.DeleteFunc(some, func(a *actor) bool {
		return a.job < 0 || !slices.ContainsFunc(m.absent, func(rank int) bool {
			return !slices.ContainsFunc(known, func(p *participant) bool {
				return (p.slot.Rank < rank) != (p.actor.job < a.job)
			})
		})
	})
}

// shrunk returns the parent's rank that becomes rank r of a communicator, if a shrink makes it, which keeps the order
// of ranks. If it isn't known which ranks the shrink leaves out, this is the only rank of the parent that can become
// rank r; nil if there is none, or more than one.
func (g *graph) shrunk(m *meeting, r int) (found *actor) {
	parent := m.slot.Parent
	low, high := -1, maxSize
	shrinks := false
	for _, p := range m.present {
		s := p.actor.slotIn(parent)
		if s == nil {
			continue
		}
		if a := s.open(tape.ActShrink); a != nil && p.slot.Created <= a.Age { // else the child was there before
			if rank, known := a.keeps(r, s.Size); known {
				p := g.ranks[commRank{parent, rank}]
				if p == nil {
					return nil
				}
				return p.actor
			}
			shrinks = true
		}
		if p.slot.Rank < r {
			low = max(low, s.Rank)
		} else if p.slot.Rank > r {
			high = min(high, s.Rank)
		}
	}
	if m.key.kind != joining || !shrinks {
		return nil
	}
	for key, p := range g.ranks {
		if key.comm != parent || key.rank <= low || key.rank >= high || p.actor.note.Fate == Dead {
			continue
		}
		if found != nil {
			return nil
		}
		found = p.actor
	}
	return found
}

// keeps returns which of size ranks becomes rank r of the communicator that a shrink makes; false if that isn't known.
func (a *OpenAct) keeps(r, size int) (rank int, known bool) {
	if len(a.Without) == 0 || slices.Contains(a.Without, model.OtherRanks) {
		return 0, false
	}
	for rank := range size {
		if slices.Contains(a.Without, rank) {
			continue
		}
		if r--; r < 0 {
			return rank, true
		}
	}
	return 0, false
}
