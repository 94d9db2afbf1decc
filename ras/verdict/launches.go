package verdict

import (
	"iter"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A device performs a rank's launches on a communicator in their order, and the messages of a group together. So ranks
// can wait for each other although each has called for all its messages, if each receives before it sends. And no rank
// gets past a collective that needs all ranks, if they have called for different ones.

// simulation is how far the ranks of a communicator get with the messages that they have launched, if no data is lost.
type simulation struct {
	runners map[int]*runner // by rank
	order   []*runner       // the same, in the order of the ranks
	differ  map[uint64]bool // the numbers of collectives for which ranks have made different calls
	proven  map[made]bool   // the calls for collectives that a rank's device is known to have completed
	// unbuffered means that a send completes only when it is received; otherwise, NCCL's buffers take small messages.
	unbuffered bool
}

// made is a call for a collective.
type made struct {
	seq uint64
	op  tape.Signature
}

// simulationKey names a simulation.
type simulationKey struct {
	comm       lifecycle.CommID
	unbuffered bool
}

// runner is a rank that performs its launches, one after the other.
type runner struct {
	slot     *Slot
	launches [][]Mark        // the calls of a group are one launch
	at       int             // the current launch; the number of launches if all are done
	shown    int             // the launch that its slot shows, or the first
	came     map[flow]uint64 // the number of the last message that is done or in progress
	waiters  []*runner       // they go on when this runner comes to its next launch
	met      int             // how many of the ranks, in their order, are known to have come to its collective
}

// flow is the messages to a peer or from it.
type flow struct {
	call uint8
	peer int
}

func (m *Mark) flow() flow { return flow{m.Call, int(m.Peer)} }

// otherSide is the flow of the peer that a rank's message belongs to.
func (m *Mark) otherSide(rank int) flow {
	if m.Call == countSend {
		return flow{countReceive, rank}
	}
	return flow{countSend, rank}
}

// simulate simulates the launches on a slot's communicator, as far back as the trails of its ranks go.
func (g *graph) simulate(s *Slot, unbuffered bool) *simulation {
	key := simulationKey{s.Comm, unbuffered}
	if sim := g.simulations[key]; sim != nil {
		return sim
	}
	sim := &simulation{runners: map[int]*runner{}, unbuffered: unbuffered}
	g.simulations[key] = sim
	for p := range g.members(s) {
		r := newRunner(p)
		sim.runners[p.slot.Rank] = r
		sim.order = append(sim.order, r)
	}
	sim.differ, sim.proven = g.differ(s)
	for order := slices.Clone(sim.order); len(order) > 0; {
		r := order[0]
		order = order[1:]
		for !r.done() {
			if on := sim.blockers(r); on != nil {
				on[0].waiters = append(on[0].waiters, r)
				break
			}
			r.enter(r.at + 1)
			order = append(order, r.waiters...)
			r.waiters = nil
		}
	}
	return sim
}

// newRunner returns a rank at the first launch that it may be in. Messages that are not known to have been launched
// later count as done, so that no rank waits without need: messages before the trail or before a gap in it, and flows
// whose last message the trail lacks, as in an open group.
func newRunner(p *participant) *runner {
	s := p.slot
	r := &runner{slot: s, came: map[flow]uint64{{call: countCollective}: s.Begun}}
	for peer, m := range s.Messages {
		r.came[flow{countSend, int(peer)}] = m.Sent
		r.came[flow{countReceive, int(peer)}] = m.Received
	}
	if s.InFlight == 0 && !s.Unproven {
		return r
	}
	type run struct{ first, last uint64 } // messages without a gap
	runs := map[flow]run{}
	for m := range p.calls() {
		f := m.flow()
		if n := runs[f]; m.Seq == n.last+1 {
			runs[f] = run{max(n.first, 1), m.Seq}
		} else {
			runs[f] = run{m.Seq, m.Seq}
		}
		if n := len(r.launches); n > 0 && m.Together {
			r.launches[n-1] = append(r.launches[n-1], *m)
		} else {
			r.launches = append(r.launches, []Mark{*m})
		}
		if s.shows(m) {
			r.shown = len(r.launches) - 1
		}
	}
	for f, n := range runs {
		if n.last == r.came[f] {
			r.came[f] = n.first - 1
		}
	}
	at := 1 + last(r.launches, func(m *Mark) bool { return m.Call == countCollective && m.Seq <= s.Proven })
	if s.Reached || s.Phase == tape.PhaseNetwork || s.Phase == tape.PhaseTransfer { // the launches before are done
		at = r.shown
	}
	for i := range at + 1 {
		r.enter(i)
	}
	return r
}

// shows tells whether the operation of a slot is a call of its rank's trail.
func (s *Slot) shows(m *Mark) bool {
	return m.Call == countOf(s.Op.Call) && m.Seq == s.Seq && (m.Call == countCollective || m.Peer == s.Op.Peer)
}

// calls yields the collectives and messages of the participant's slot in its rank's trail.
func (p *participant) calls() iter.Seq[*Mark] {
	return func(yield func(*Mark) bool) {
		if p.actor.habit == nil {
			return
		}
		trail, slots := p.actor.habit.Trail, p.actor.note.Slots
		for i := range trail {
			m := &trail[i]
			if m.Slot < len(slots) && slots[m.Slot].Comm == p.slot.Comm && slots[m.Slot].Rank == p.slot.Rank &&
				m.Call != countGroup && !yield(m) {
				return
			}
		}
	}
}

// hasLast reports whether the trail of the participant's rank has the last collective of its slot, so that Begun is
// right: for a communicator that was ended, only records have the number.
func (p *participant) hasLast() bool {
	for m := range p.calls() {
		if m.Call == countCollective && m.Seq == p.slot.Begun {
			return true
		}
	}
	return false
}

func (r *runner) done() bool { return r.at >= len(r.launches) }

// enter moves the runner to a launch, or past the last one.
func (r *runner) enter(at int) {
	if r.at, r.met = at, 0; r.done() {
		return
	}
	for _, m := range r.launches[at] {
		r.came[m.flow()] = max(r.came[m.flow()], m.Seq)
	}
}

// blockers returns the ranks that have not come to the other side of the messages that a runner is in, or the first
// rank that has not come to its collective.
func (sim *simulation) blockers(r *runner) (on []*runner) {
	if r == nil || r.done() {
		return nil
	}
	for _, m := range r.launches[r.at] {
		if m.Call == countCollective {
			for ; m.Meets && r.met < len(sim.order); r.met++ {
				p := sim.order[r.met]
				if p.came[m.flow()] < m.Seq && p.slot.countsMessages() || p != r && sim.stops(&m) {
					on = append(on, p)
					break
				}
			}
			continue
		}
		other := m.otherSide(r.slot.Rank)
		p := sim.runners[int(m.Peer)]
		if p == nil || p == r || m.Call == countSend && !sim.unbuffered || p.came[other] >= m.Seq ||
			!p.slot.countsWith(r.slot.Rank) || slices.Contains(on, p) {
			continue
		}
		on = append(on, p)
	}
	return on
}

// heldBack lists the ranks that a slot's rank waits for and that have launched the awaited operation behind one on
// which they wait themselves.
func (g *graph) heldBack(s *Slot, unbuffered bool) (ranks []int) {
	sim := g.simulate(s, unbuffered)
	for _, r := range sim.blockers(sim.runners[s.Rank]) {
		if !r.done() {
			ranks = append(ranks, r.slot.Rank)
		}
	}
	return ranks
}

// showLaunched corrects slots that show an operation launched behind the one that the rank is in, by the order of the
// launches: the rank is in messages before a collective, or in a collective for which ranks have made different calls.
func (g *graph) showLaunched() {
	for _, a := range g.actors {
		for i, s := range a.slots {
			if s.Captured > 0 || s.Reached || s.queued() || s.InFlight == 0 && !s.Unproven {
				continue
			}
			sim := g.simulate(s, false)
			c := *s
			if !sim.show(sim.runners[s.Rank], &c) {
				continue
			}
			c.InFlight, c.Phase, c.Wait = max(s.InFlight, 1), tape.PhaseStream, -1
			c.Age, c.Took, c.Stalled, c.Unproven = s.Age+s.Took, 0, s.Stalled || s.Unproven, false
			a.slots[i] = &c
			g.ranks[commRank{s.Comm, s.Rank}] = &participant{actor: a, slot: &c}
		}
	}
}

// show makes a runner's current launch the operation of its slot. It returns false if the slot has it already, or it is
// not known.
func (sim *simulation) show(r *runner, s *Slot) bool {
	if len(sim.blockers(r)) == 0 {
		return false
	}
	launch := r.launches[r.at]
	m := launch[len(launch)-1]
	i := slices.IndexFunc(launch, func(m Mark) bool { return m.Call == countCollective && sim.stops(&m) })
	switch {
	case i >= 0:
		m = launch[i]
		if !s.Stalled && !s.Unproven || s.InFlight > 0 && s.shows(&m) || r.at > last(r.launches, s.shows) {
			return false
		}
		s.Op = m.Op
	case !s.countsMessages() || !m.isMessage() || s.inMessage() || r.at >= r.shown:
		return false
	case m.Call == countSend:
		s.Op = tape.Signature{Call: lifecycle.CallSend, Peer: m.Peer}
	default:
		s.Op = tape.Signature{Call: lifecycle.CallRecv, Peer: m.Peer}
	}
	s.Seq = m.Seq
	return true
}

// stops reports whether no rank gets past its call for a collective: others have made a different call, and no device
// is known to have completed this one.
func (sim *simulation) stops(m *Mark) bool {
	return sim.differ[m.Seq] && !sim.proven[made{m.Seq, m.Op}]
}

// differ returns the numbers of the collectives of a slot's communicator for which ranks that can use it have made
// different calls, by their trails, and the calls that devices are known to have completed.
func (g *graph) differ(s *Slot) (differ map[uint64]bool, proven map[made]bool) {
	first, differ, proven := map[uint64]tape.Signature{}, map[uint64]bool{}, map[made]bool{}
	for p := range g.members(s) {
		if !p.slot.usable() {
			continue
		}
		for m := range p.calls() {
			if m.Call != countCollective {
				continue
			}
			if op, known := first[m.Seq]; known && op != m.Op {
				differ[m.Seq] = true
			}
			first[m.Seq] = m.Op
			if m.Seq <= p.slot.Proven {
				proven[made{m.Seq, m.Op}] = true
			}
		}
	}
	return differ, proven
}

// last is the index of the last launch that contains such a call; -1 if there is none.
func last(launches [][]Mark, is func(*Mark) bool) int {
	for i, launch := range slices.Backward(launches) {
		if slices.ContainsFunc(launch, func(m Mark) bool { return is(&m) }) {
			return i
		}
	}
	return -1
}

// launch is the launch that a slot's rank is in, by the order of the launches or else by the slot's operation; nil if
// it is not known.
func (g *graph) launch(s *Slot) []Mark {
	sim := g.simulate(s, false)
	r := sim.runners[s.Rank]
	if r == nil || s.unlaunched() { // a group may not have ended
		return nil
	}
	if len(sim.blockers(r)) > 0 {
		return r.launches[r.at]
	}
	i := slices.IndexFunc(r.launches, func(launch []Mark) bool {
		return slices.ContainsFunc(launch, func(m Mark) bool { return s.shows(&m) })
	})
	if i < 0 {
		return nil
	}
	return r.launches[i]
}
