package verdict

import (
	"iter"
	"slices"
)

// A device does what a rank launches on a communicator in that order, and the messages of a group together. So ranks
// can wait for each other although each has called for all its messages: where each is to receive before it sends.

// launches are those of a communicator's ranks, and how far their devices come with them if no data is lost.
type launches struct {
	runners map[int]*runner // by rank
	// unbuffered tells that a message is sent when it is received, and no sooner: NCCL's buffers take small ones.
	unbuffered bool
}

// runner does the launches of one rank, one after the other.
type runner struct {
	slot     *Slot
	launches [][]Mark        // messages; those of a group are one launch
	at       int             // the launch that it is in; the number of launches if it has done all
	came     map[flow]uint64 // the number of the last message that it has done, or is in
	waiters  []*runner       // are to go on when it comes to its next launch
}

// flow is the messages to or from a rank.
type flow struct {
	call uint8
	peer int
}

// launchesOf are the launches on a slot's communicator, as far as the trails of its ranks go back. What was launched
// before is taken for done, so that no rank is found to wait that doesn't.
func (g *graph) launchesOf(s *Slot, unbuffered bool) *launches {
	l := &launches{runners: map[int]*runner{}, unbuffered: unbuffered}
	var order []*runner
	for p := range g.members(s) {
		r := newRunner(p)
		l.runners[p.slot.Rank] = r
		order = append(order, r)
	}
	for len(order) > 0 {
		r := order[0]
		order = order[1:]
		for r.at < len(r.launches) {
			if on := l.waitsFor(r); on != nil {
				on[0].waiters = append(on[0].waiters, r)
				break
			}
			r.at++
			r.enter()
			order = append(order, r.waiters...)
			r.waiters = nil
		}
	}
	return l
}

func newRunner(p *participant) *runner {
	r := &runner{slot: p.slot, came: map[flow]uint64{}}
	for peer, m := range p.slot.Messages {
		r.came[flow{countSend, int(peer)}] = m.Sent
		r.came[flow{countReceive, int(peer)}] = m.Received
	}
	seen := map[flow]bool{}
	for m := range p.messages() {
		if f := m.flow(); !seen[f] {
			seen[f], r.came[f] = true, m.Seq-1
		}
		if n := len(r.launches); n > 0 && m.Together {
			r.launches[n-1] = append(r.launches[n-1], *m)
		} else {
			r.launches = append(r.launches, []Mark{*m})
		}
	}
	r.enter()
	return r
}

// messages yields those of the participant's slot in its rank's trail.
func (p *participant) messages() iter.Seq[*Mark] {
	return func(yield func(*Mark) bool) {
		if p.actor.habit == nil {
			return
		}
		trail, slots := p.actor.habit.Trail, p.actor.note.Slots
		for i := range trail {
			m := &trail[i]
			if m.Slot < len(slots) && &slots[m.Slot] == p.slot && (m.Call == countSend || m.Call == countReceive) &&
				!yield(m) {
				return
			}
		}
	}
}

func (m *Mark) flow() flow { return flow{m.Call, int(m.Peer)} }

// enter records that the runner has come to its launch.
func (r *runner) enter() {
	if r.at < len(r.launches) {
		for _, m := range r.launches[r.at] {
			r.came[m.flow()] = max(r.came[m.flow()], m.Seq)
		}
	}
}

// waitsFor lists those that have not come to the other side of the messages that a runner is in.
func (l *launches) waitsFor(r *runner) (on []*runner) {
	if r == nil || r.at >= len(r.launches) {
		return nil
	}
	for _, m := range r.launches[r.at] {
		other := flow{countSend, r.slot.Rank}
		if m.Call == countSend {
			other.call = countReceive
		}
		p := l.runners[int(m.Peer)]
		if p == nil || p == r || m.Call == countSend && !l.unbuffered || p.came[other] >= m.Seq ||
			!p.slot.countsWith(r.slot.Rank) || slices.Contains(on, p) {
			continue
		}
		on = append(on, p)
	}
	return on
}

// played is how far the ranks of a slot's communicator come with what they launched there.
func (g *graph) played(s *Slot, unbuffered bool) *launches {
	key := launchesKey{s.Comm, unbuffered}
	l := g.launches[key]
	if l == nil {
		l = g.launchesOf(s, unbuffered)
		g.launches[key] = l
	}
	return l
}

// heldBack lists the ranks for which a slot's rank waits, and that have launched what it waits for behind something for
// which they wait themselves. Guessed tells that they do if NCCL does not buffer the messages.
func (g *graph) heldBack(s *Slot) (ranks []int, guessed bool) {
	for _, unbuffered := range []bool{false, true} {
		l := g.played(s, unbuffered)
		for _, r := range l.waitsFor(l.runners[s.Rank]) {
			if r.at < len(r.launches) {
				ranks = append(ranks, r.slot.Rank)
			}
		}
		if len(ranks) > 0 {
			return ranks, unbuffered
		}
	}
	return nil, false
}

// waitsFor tells whether a slot's rank can't do a message that it has launched before another one has launched, or
// done, something.
func (g *graph) waitsFor(s, other *Slot) bool {
	l := g.played(s, false)
	return slices.ContainsFunc(l.waitsFor(l.runners[s.Rank]), func(r *runner) bool { return r.slot == other })
}

// lone is the message that a slot's rank is in, if it was launched alone; nil if it is one of a group, or not known.
func (g *graph) lone(s *Slot) *Mark {
	l := g.played(s, false)
	r := l.runners[s.Rank]
	if r == nil {
		return nil
	}
	if len(l.waitsFor(r)) > 0 && len(r.launches[r.at]) == 1 {
		return &r.launches[r.at][0]
	}
	shown := func(m Mark) bool {
		return m.Call == countOf(s.Op.Call) && m.Peer == s.Op.Peer && m.Seq == s.Seq
	}
	for _, launch := range r.launches {
		if len(launch) == 1 && shown(launch[0]) {
			return &launch[0]
		}
	}
	return nil
}
