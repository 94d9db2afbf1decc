package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// graph is who waits for whom.
type graph struct {
	notes    []Note
	actors   []*actor
	seats    map[seat]*place
	meetings map[meetingKey]*meeting
	order    []*meeting // as they were found: a graph has no map's order
	lost     []*actor   // processes that can't speak and of whose slots nothing is known
	byJob    map[int]*actor
}

// actor is one rank with all the communicators that it is in.
type actor struct {
	note  *Note
	slots []*Slot
	in    []*meeting // those that it is in and waits for
	quiet time.Duration
}

// seat is a rank of a communicator, place who sits there.
type (
	seat struct {
		comm lifecycle.CommID
		rank int
	}
	place struct {
		actor *actor
		slot  *Slot
	}
)

// meetingKind tells what ranks meet for.
type meetingKind uint8

const (
	collective meetingKind = iota // all ranks of a communicator, under a number
	message                       // two ranks, the n-th message from one to the other
	exchange                      // messages that progress together: one rank, and the one that it waits for
	joining                       // all ranks of a communicator that begins
)

type meetingKey struct {
	comm     lifecycle.CommID
	kind     meetingKind
	seq      uint64
	from, to int // of a message; from is the rank of an exchange
}

// meeting is a call that several ranks make together.
type meeting struct {
	key     meetingKey
	slot    *Slot // of one who is there: what the communicator is
	present []*place
	age     time.Duration // of the one who has waited longest
	stalled bool
	missing []*actor // who has not come, or has come and can't go on; each once
	awaited map[*actor]bool
	absent  []int // ranks of the communicator of which nothing is known
	guessed bool  // missing has actors of whom it isn't sure that they are the absent ones
	differ  bool  // those present make different calls
}

// newGraph finds who is in which meeting, and whom the meetings wait for.
func newGraph(notes []Note) *graph {
	g := &graph{notes: notes, seats: map[seat]*place{}, meetings: map[meetingKey]*meeting{}, byJob: map[int]*actor{}}
	for i := range notes {
		g.addNote(&notes[i])
	}
	for _, a := range g.actors {
		for _, s := range a.slots {
			g.attend(a, s)
		}
	}
	for _, m := range g.order {
		g.lookForMissing(m)
	}
	return g
}

// addNote makes the actors of one process.
func (g *graph) addNote(n *Note) {
	byRoot := map[uint32]*actor{}
	for i := range n.Slots {
		s := &n.Slots[i]
		if !s.sane() {
			continue
		}
		a := byRoot[s.Root]
		if a == nil {
			a = &actor{note: n, quiet: -1}
			byRoot[s.Root] = a
			g.actors = append(g.actors, a)
		}
		a.slots = append(a.slots, s)
		if quiet := s.Age; s.Op.Call != lifecycle.CallNone && (a.quiet < 0 || quiet < a.quiet) {
			a.quiet = quiet
		}
		if s.Rank >= 0 {
			g.seats[seat{s.Comm, s.Rank}] = &place{a, s}
		}
	}
	if n.Rank < 0 && len(n.Slots) > 0 {
		return
	}
	var only *actor
	switch len(byRoot) {
	case 0:
		only = &actor{note: n, quiet: -1}
		g.actors = append(g.actors, only)
		if n.Fate != Alive {
			g.lost = append(g.lost, only)
		}
	case 1:
		only = g.actors[len(g.actors)-1]
	default: // a process with several ranks
		return
	}
	if n.Rank >= 0 {
		g.byJob[n.Rank] = only
	}
}

// attend puts an actor into the meeting that its slot says it is in.
func (g *graph) attend(a *actor, s *Slot) {
	if key, in := attends(s); !in {
		return
	} else if init := s.open(tape.ActInit); key.kind == joining {
		g.enter(key, a, s, init.Age, init.Stalled)
	} else {
		g.enter(key, a, s, s.Age, s.Stalled)
	}
}

// attends is the meeting that a slot says its rank is in; false if in none.
func attends(s *Slot) (meetingKey, bool) {
	key := meetingKey{comm: s.Comm, seq: s.Seq}
	switch {
	case s.Parent.IsZero() && s.Rank >= 0 && s.open(tape.ActInit) != nil:
		return meetingKey{comm: s.Comm, kind: joining}, true
	case s.InFlight == 0 || s.Failure != nil:
		return meetingKey{}, false
	case s.Op.Call == lifecycle.CallSend:
		key.kind, key.from, key.to = message, s.Rank, int(s.Op.Peer)
	case s.Op.Call == lifecycle.CallRecv:
		key.kind, key.from, key.to = message, int(s.Op.Peer), s.Rank
	case s.Op.Call == lifecycle.CallSendRecv, s.Op.Call == lifecycle.CallGroupEnd:
		key.kind, key.from = exchange, s.Rank
	default:
		key.kind = collective
	}
	return key, true
}

func (g *graph) enter(key meetingKey, a *actor, s *Slot, age time.Duration, stalled bool) {
	m := g.meetings[key]
	if m == nil {
		m = &meeting{key: key, slot: s}
		g.meetings[key] = m
		g.order = append(g.order, m)
	}
	m.present = append(m.present, &place{a, s})
	m.age, m.stalled = max(m.age, age), m.stalled || stalled
	if key.kind == collective && !sameCall(&m.slot.Op, &s.Op) {
		m.differ = true
	}
	a.in = append(a.in, m)
}

// sameCall tells whether ranks that make these calls together agree.
func sameCall(a, b *tape.Signature) bool { return agreed(*a) == agreed(*b) }

// agreed is the part of a call that is the same on all ranks.
func agreed(sig tape.Signature) tape.Signature {
	switch sig.Call {
	case lifecycle.CallGather, lifecycle.CallScatter: // the root's buffer is as large as all others'
		sig.Bytes = 0
	case lifecycle.CallBarrier, lifecycle.CallSplit, lifecycle.CallShrink, lifecycle.CallGrow:
		sig = tape.Signature{Call: sig.Call}
	default:
	}
	return sig
}

// lookForMissing finds whom a meeting waits for.
func (g *graph) lookForMissing(m *meeting) {
	switch m.key.kind {
	case collective, joining:
		if m.differ {
			return
		}
		for r := range m.slot.Size {
			g.expect(m, r)
		}
	case message:
		g.expect(m, m.key.from)
		g.expect(m, m.key.to)
	case exchange:
		for _, p := range m.present {
			if p.slot.Wait >= 0 {
				g.expect(m, p.slot.Wait)
			}
		}
	}
	if len(m.absent) > 0 {
		g.guess(m)
	}
}

// expect notes that a meeting waits for a rank, if it does.
func (g *graph) expect(m *meeting, rank int) {
	p := g.seats[seat{m.key.comm, rank}]
	if p == nil {
		m.absent = append(m.absent, rank)
		return
	}
	if p.actor.note.Fate != Alive {
		if !passed(m, p.slot) {
			m.wait(p.actor)
		}
		return
	}
	key, in := attends(p.slot)
	here := in && key == m.key
	if m.key.kind == exchange {
		if !here {
			m.wait(p.actor)
		}
		return
	}
	if !here && !passed(m, p.slot) {
		m.wait(p.actor)
	}
}

func (m *meeting) wait(a *actor) {
	if m.awaited[a] {
		return
	}
	if m.awaited == nil {
		m.awaited = map[*actor]bool{}
	}
	m.awaited[a] = true
	m.missing = append(m.missing, a)
}

// passed tells whether the rank of a slot has the meeting behind it.
func passed(m *meeting, s *Slot) bool {
	switch m.key.kind {
	case joining:
		return s.open(tape.ActInit) == nil
	case collective:
		switch s.Op.Call {
		case lifecycle.CallSend, lifecycle.CallRecv, lifecycle.CallSendRecv, lifecycle.CallGroupEnd:
			// Numbered otherwise: only a rank that waits for it tells.
			return !slices.ContainsFunc(m.present, func(p *place) bool { return p.slot.Wait == s.Rank })
		default:
			return s.Seq > m.key.seq || s.Seq == m.key.seq && s.InFlight == 0
		}
	case message:
		sends := s.Rank == m.key.from
		own := sends && s.Op.Call == lifecycle.CallSend && int(s.Op.Peer) == m.key.to ||
			!sends && s.Op.Call == lifecycle.CallRecv && int(s.Op.Peer) == m.key.from
		return own && (s.Seq > m.key.seq || s.Seq == m.key.seq && s.InFlight == 0)
	default:
		return false
	}
}

// guess looks for the processes behind ranks that nobody has spoken for: in a communicator of the whole job a rank is
// the job's; else they may be those that can't speak.
func (g *graph) guess(m *meeting) {
	whole := m.slot.Parent.IsZero() && slices.ContainsFunc(g.notes, func(n Note) bool { return n.JobSize == m.slot.Size })
	var still []int
	for _, r := range m.absent {
		a := g.byJob[r]
		switch {
		case whole && a != nil:
			m.wait(a)
			m.guessed = m.guessed || m.key.kind != joining
		default:
			still = append(still, r)
		}
	}
	m.absent = still
	if len(m.absent) == 0 {
		return
	}
	before := len(m.missing)
	for _, a := range g.lost {
		m.wait(a)
	}
	if len(m.missing) > before {
		m.absent, m.guessed = nil, true
	}
}

// rankOf is an actor as the verdict names it, seen from a communicator.
func rankOf(a *actor, comm lifecycle.CommID) Rank {
	r := Rank{Job: a.note.Rank, Comm: -1, Member: a.note.Member, Host: a.note.Host, PID: a.note.PID}
	for _, s := range a.slots {
		if s.Comm == comm {
			r.Comm = s.Rank
		}
	}
	if len(a.slots) > 0 && manyRanks(a.note) { // the process's rank in the job says nothing then
		r.Job = -1
		if r.Comm < 0 {
			r.Comm = a.slots[0].Rank
		}
	}
	return r
}

// manyRanks tells whether a process has several ranks.
func manyRanks(n *Note) bool {
	return slices.ContainsFunc(n.Slots, func(s Slot) bool { return s.Root != n.Slots[0].Root })
}

// patience is how long a rank that moves, and doesn't come, is waited for: one that is needed elsewhere for a minute is
// late; one that makes other calls for ever and never this one is lost.
const patience = 2 * time.Minute

// busy tells whether an actor did something a short while ago, in comparison with how long others wait for it, and is
// in nothing that stalls.
func (a *actor) busy(waited time.Duration) bool {
	return a.note.Fate == Alive && a.quiet >= 0 && a.quiet < waited/2 &&
		!slices.ContainsFunc(a.in, func(m *meeting) bool { return m.stalled })
}

// longest orders waits by age, the longest first.
func longest(a, b Wait) int {
	return cmp.Or(cmp.Compare(b.Age, a.Age), byRank(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
}
