package verdict

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// graph is what all notes together say: which ranks there are, and which meetings they are in.
type graph struct {
	notes    []*Note
	actors   []*actor
	ranks    map[commRank]*participant
	meetings map[meetingKey]*meeting
	order    []*meeting // as they were found: a graph must not have a map's order
	byJob    map[int]*actor
	size     int      // ranks of the job
	hidden   []*actor // processes that don't answer and whose slots are not known
	moving   bool     // a rank that others may wait for made a call a moment ago

	renumbered map[lifecycle.CommID]bool // communicators in which a rank has another number than in the job
	reordered  bool                      // any communicator has its ranks in another order than the job

	programs map[string]int // number of ranks by actor.program; filled in by common, like oddCalls
	oddCalls map[oddKind]int

	simulations map[simulationKey]*simulation
}

// commRank is a rank of a communicator. participant is the actor with that rank, in the communicator or in a meeting.
type (
	commRank struct {
		comm lifecycle.CommID
		rank int
	}
	participant struct {
		actor   *actor
		slot    *Slot
		meeting *meeting
		// since is how long ago the actor came to the meeting, until how long ago its call failed; 0 if it goes on.
		since, until time.Duration
		stalled      bool
		launched     bool // the call has returned, and its operation is pending on the stream; see pending
	}
)

// meetingKind tells what ranks meet for.
type meetingKind uint8

const (
	collective meetingKind = iota // all ranks of a communicator, under a number
	message                       // two ranks, the n-th message from one to the other
	exchange                      // messages that progress together: one rank, and the peers that it waits for
	joining                       // all ranks of a communicator that begins
	leaving                       // all ranks of a communicator that ends
	broken                        // a communicator that failed while the rank was in no operation
)

type meetingKey struct {
	comm     lifecycle.CommID
	kind     meetingKind
	seq      uint64
	from, to int // of a message; from is the rank of an exchange, or of a broken communicator
}

// meeting is a call that several ranks make together.
type meeting struct {
	g       *graph
	key     meetingKey
	slot    *Slot // of a rank that is present: describes the communicator
	present []*participant
	age     time.Duration // of the rank that came first
	until   time.Duration // how long ago it failed on the first rank; 0 if it goes on
	trouble bool          // it takes too long, or failed
	differ  bool          // those present make different calls
	// contradicted means that ranks gave different sizes of the new communicator, or claimed the same rank in it.
	contradicted bool
	engine       *Failure // the most specific error that the engine reported; nil if it goes on

	missing   []*actor  // that have not come, or can't go on; each once
	absent    []int     // ranks of the communicator that belong to no known actor
	guessed   bool      // missing has actors that only may be the absent ranks
	byOrder   bool      // they are guessed by the order of the job's ranks
	outOfStep bool      // a program came here though an earlier call of it had failed
	gaveUp    []*actor  // their programs canceled their calls before any had stalled, and so made this one fail
	carried   []carried // the data for which missing has ranks that only carry it

	edges   []edge
	leaves  []*leaf
	waiters []*meeting // that wait for this one

	index, low int // of Tarjan's algorithm; index 0: not seen
	onStack    bool
}

// carried is the data between two ranks that another rank's proxy carries.
type carried struct {
	by       *actor
	from, to int
}

// newGraph finds the meetings and the ranks that they wait for.
func newGraph(notes []Note) *graph {
	g := &graph{
		ranks: map[commRank]*participant{}, meetings: map[meetingKey]*meeting{}, byJob: map[int]*actor{},
		simulations: map[simulationKey]*simulation{}, renumbered: map[lifecycle.CommID]bool{},
	}
	launched := map[int]bool{} // the launcher's numbers
	for i := range notes {
		launched[notes[i].Rank] = true
	}
	for i := range notes {
		g.addNote(&notes[i], launched)
		g.size = max(g.size, notes[i].JobSize) // which counts processes
	}
	processes := g.size
	g.size = max(g.size, g.largest())
	g.numberUnseen(processes)
	g.compareNumbers()
	g.showLaunched()
	for _, a := range g.actors {
		for _, s := range a.slots {
			g.addSlot(a, s)
		}
	}
	for _, m := range g.order {
		m.engine = m.mostSpecific()
		if g.findMissing(m); len(m.absent) > 0 {
			g.assignAbsent(m)
		}
	}
	return g
}

// largest is the size of the largest communicator without a parent in which ranks have the same numbers as in the job.
// If there are several of that size, one of them must contain all known ranks of the others; else largest is 0.
func (g *graph) largest() (size int) {
	ranks := map[lifecycle.CommID][]*actor{}
	var most lifecycle.CommID
	for _, a := range g.actors {
		for _, s := range a.slots {
			if !s.Parent.IsZero() || s.Rank < 0 || s.Rank != a.job || s.Size < size {
				continue
			}
			if s.Size > size {
				size = s.Size
				clear(ranks)
			}
			if ranks[s.Comm] = append(ranks[s.Comm], a); len(ranks[s.Comm]) > len(ranks[most]) {
				most = s.Comm
			}
		}
	}
	for _, some := range ranks {
		if slices.ContainsFunc(some, func(a *actor) bool { return !slices.Contains(ranks[most], a) }) {
			return 0
		}
	}
	return size
}

// addSlot puts an actor into the meeting that its slot is in, or was in when the communicator failed.
func (g *graph) addSlot(a *actor, s *Slot) {
	if g.pending(s) {
		key := meetingKey{comm: s.Comm, seq: s.Seq}
		if s.inCountedMessages() {
			key = meetingKey{comm: s.Comm, kind: exchange, from: s.Rank}
		}
		g.enter(key, &participant{actor: a, slot: s, since: s.Age + s.Took, stalled: true, launched: true})
		return
	}
	if key, in := meetingOf(s); in {
		p := &participant{actor: a, slot: s, since: s.Age, stalled: s.Stalled}
		switch {
		case key.kind == joining:
			init := s.open(tape.ActInit)
			p.since, p.stalled = init.Age, init.Stalled
		case key.kind == leaving:
			p.since, p.stalled = s.ending().Age, s.ending().Stalled
		case s.InFlight == 0:
			p.since, p.until = s.Age+s.Took, max(s.Age, 1)
		}
		g.enter(key, p)
		return
	}
	if f := s.Failure; f != nil && f.Peer >= 0 && f.Peer != s.Rank && !a.past(s) {
		g.enter(meetingKey{comm: s.Comm, kind: broken, from: s.Rank},
			&participant{actor: a, slot: s, since: f.Age, until: max(f.Age, 1)})
	}
}

// pending reports whether the last call of a slot, whose completion is never reported, is certainly not complete: other
// ranks of the communicator have not made or launched it, or sent its messages, or can't yet, and make no calls there.
// Only a call that no rank can complete alone proves that.
func (g *graph) pending(s *Slot) bool {
	messages := s.inCountedMessages()
	if !s.Unproven || !s.usable() || !messages && (s.Seq > s.Begun || !s.Op.Meets()) {
		return false
	}
	behind := false
	var held []int
	if messages {
		held = g.heldBack(s, false)
	}
	for p := range g.members(s) {
		awaited := p.slot.Begun < s.Seq ||
			p.slot.unlaunched() && p.slot.Op.Call.IsCollective() && p.slot.Seq <= s.Seq
		if messages {
			awaited = p.slot.countsWith(s.Rank) &&
				(p.slot.lacks(s).sends || p.slot.withholds(s) || slices.Contains(held, p.slot.Rank))
		}
		if !awaited {
			continue
		}
		if (p.slot.Left != nil && p.slot.Failure == nil || p.slot.endsWell()) && p.hasLast() { // it makes no more calls
			behind = true
			continue
		}
		if !p.slot.counts() || p.actor.note.Stale {
			return false
		}
		if p.slot.Op.Call != lifecycle.CallNone && p.slot.Age < s.Age/2 {
			g.moving = true
			return false
		}
		behind = true
	}
	return behind
}

// counts tells whether Begun covers all calls of a rank on a communicator that it can still use.
func (s *Slot) counts() bool {
	uncounted := func(a OpenAct) bool { return a.Act != tape.ActGroup } // a group's calls are counted while it is open
	return s.healthy() && !s.Failed && s.Captured == 0 && !slices.ContainsFunc(s.Acts, uncounted)
}

// endsWell reports the same for a rank that is ending the communicator.
func (s *Slot) endsWell() bool {
	return s.ending() != nil && s.Failure == nil && !s.Failed && s.Captured == 0
}

// usable tells whether all calls of a slot's rank are known, and it has not lost the communicator.
func (s *Slot) usable() bool { return s.counts() || s.endsWell() }

// meetingOf is the meeting that a slot's rank is in, or was in when the communicator failed; false if in none.
func meetingOf(s *Slot) (meetingKey, bool) {
	key := meetingKey{comm: s.Comm, seq: s.Seq}
	inFlight := s.InFlight > 0
	switch {
	case s.Rank >= 0 && s.open(tape.ActInit) != nil:
		return meetingKey{comm: s.Comm, kind: joining}, true
	case s.queued():
		return meetingKey{}, false
	case inFlight && s.Left == nil:
	case s.ending() != nil && s.Failure == nil && s.groupJob() == nil && // else it waits for its own group
		s.ending().Phase != tape.PhaseInProgress: // else it may have ended
		return meetingKey{comm: s.Comm, kind: leaving}, true
	case !s.Failed || !s.Failure.unintended():
		return meetingKey{}, false
	}
	switch call := s.Op.Call; {
	case call == lifecycle.CallSendRecv, call == lifecycle.CallGroupEnd, s.inCountedMessages():
		key.kind, key.from, key.seq = exchange, s.Rank, 0
	case call == lifecycle.CallSend:
		key.kind, key.from, key.to = message, s.Rank, int(s.Op.Peer)
	case call == lifecycle.CallRecv:
		key.kind, key.from, key.to = message, int(s.Op.Peer), s.Rank
	default:
		key.kind = collective
	}
	return key, true
}

// canceled reports whether a rank's program canceled an earlier collective than the one that failed, and with it the
// communicator. The other ranks could begin the later collective because the earlier one had completed for them.
func (m *meeting) canceled(a *actor) bool {
	s := a.slotIn(m.key.comm)
	return m.until > 0 && s != nil && s.gaveUp() && s.Op.Call.IsCollective() && s.Seq < m.key.seq
}

// canceledEarly reports whether programs canceled their calls on the communicator before the meeting stalled, so that
// the others would have come. It puts the ranks that did so first into gaveUp; none if the job was being ended.
func (g *graph) canceledEarly(m *meeting) bool {
	if m.until == 0 || m.stalledBefore() {
		return false
	}
	var canceled []*participant
	first := time.Duration(0)
	for p := range g.members(m.slot) {
		if p.slot.gaveUp() {
			canceled, first = append(canceled, p), max(first, p.slot.Failure.Age)
		}
	}
	if first > 0 && !g.ending() {
		for _, p := range canceled {
			if first-p.slot.Failure.Age < skew {
				m.gaveUp = append(m.gaveUp, p.actor)
			}
		}
	}
	return first > 0
}

// gaveUp tells whether the program canceled its call on the communicator.
func (s *Slot) gaveUp() bool { return s.Failure.is(lifecycle.CodeCanceled) }

// ending reports whether the job was ended from outside: most processes left it in order and without an error, or
// canceled their calls; or several canceled calls at about the same time, which no process does because of another one.
func (g *graph) ending() bool {
	n := 0
	var canceled []time.Duration // the first of each process
	for _, note := range g.notes {
		first := time.Duration(-1)
		for _, s := range note.Slots {
			if s.gaveUp() {
				first = max(first, s.Failure.Age)
			}
		}
		if first >= 0 {
			canceled = append(canceled, first)
		}
		if first >= 0 || note.Fate == Departed && !g.failedFirst(note) {
			n++
		}
	}
	slices.Sort(canceled)
	together := false
	for i := 1; i < len(canceled); i++ {
		together = together || canceled[i]-canceled[i-1] < skew
	}
	return together || 2*n > len(g.notes)
}

// is tells whether there is a failure, and it has one of these codes.
func (f *Failure) is(codes ...lifecycle.Code) bool { return f != nil && slices.Contains(codes, f.Code) }

// lost tells whether a process died or is out of reach, as the engine says.
func (f *Failure) lost() bool { return f.is(lifecycle.CodeRankDead, lifecycle.CodeUnreachable) }

// unintended tells whether the communicator failed, and the program itself did not end it.
func (f *Failure) unintended() bool {
	return f != nil && !f.is(lifecycle.CodeRevoked, lifecycle.CodeAborted, lifecycle.CodeDestroyed,
		lifecycle.CodeUnfinished)
}

// at is the participant with a rank of the meeting's communicator; nil if none is known.
func (m *meeting) at(rank int) *participant { return m.g.ranks[commRank{m.key.comm, rank}] }

// members are the known ranks of the meeting's communicator.
func (m *meeting) members() iter.Seq[*participant] { return m.g.members(m.slot) }

// members are the known ranks of a slot's communicator.
func (g *graph) members(s *Slot) iter.Seq[*participant] {
	return func(yield func(*participant) bool) {
		for r := range s.Size {
			if p := g.ranks[commRank{s.Comm, r}]; p != nil && !yield(p) {
				return
			}
		}
	}
}

func (g *graph) enter(key meetingKey, p *participant) {
	m := g.meetings[key]
	if m == nil {
		m = &meeting{g: g, key: key, slot: p.slot}
		g.meetings[key] = m
		g.order = append(g.order, m)
	}
	p.meeting = m
	m.present = append(m.present, p)
	p.actor.in = append(p.actor.in, p)
	m.age = max(m.age, p.since)
	if p.until > 0 {
		m.until = max(m.until, p.until)
		m.trouble = m.trouble || !p.actor.past(p.slot)
	}
	m.trouble = m.trouble || p.stalled && p.until == 0 && p.actor.note.Fate != Dead // a dead rank doesn't wait
	if key.kind == collective && !m.slot.agrees(p.slot) {
		m.differ, m.trouble = true, true // it can't end well
	}
}

// mostSpecific returns the failure of a meeting's ranks whose code says most about the cause, the oldest one of equals;
// nil if none failed.
func (m *meeting) mostSpecific() (best *Failure) {
	for _, p := range m.present {
		f := p.slot.Failure
		if p.until == 0 || f == nil {
			continue
		}
		if best == nil || cmp.Or(m.vagueness(f)-m.vagueness(best), cmp.Compare(best.Age, f.Age)) < 0 {
			best = f
		}
	}
	return best
}

// failedBefore reports whether the rank that a failure names had failed in the meeting before. Mismatches don't count:
// they are reported to all ranks, also to the rank that they name.
func (m *meeting) failedBefore(f *Failure) bool {
	return f.Code != lifecycle.CodeMismatch && slices.ContainsFunc(m.present, func(p *participant) bool {
		return p.slot.Rank == f.Peer && p.slot.Failure != nil && p.slot.Failure.Age > f.Age
	})
}

// vagueness is lower for a failure whose code says more about the cause. A failure that names a rank which had failed
// before is a consequence.
func (m *meeting) vagueness(f *Failure) int {
	switch {
	case m.failedBefore(f):
		return 4
	case f.is(lifecycle.CodeMismatch):
		return 0
	case f.lost():
		return 1
	case f.is(lifecycle.CodePeerAborted):
		return 2
	default:
		return 3
	}
}

// agreed is the part of a call that is the same on all ranks.
func agreed(sig tape.Signature) tape.Signature {
	switch sig.Call {
	case lifecycle.CallGather, lifecycle.CallScatter: // the root's buffer is as large as all others' together
		sig.Bytes = 0
	case lifecycle.CallBarrier, lifecycle.CallSplit, lifecycle.CallShrink, lifecycle.CallGrow:
		sig = tape.Signature{Call: sig.Call}
	default:
	}
	return sig
}

// agrees reports whether the calls of two ranks agree, as far as is known. All ranks must give a shrink the same ranks
// to leave out; the end of a long list of these is not known.
func (s *Slot) agrees(o *Slot) bool {
	if agreed(s.Op) != agreed(o.Op) {
		return false
	}
	a, b := s.open(tape.ActShrink), o.open(tape.ActShrink)
	if s.Op.Call != lifecycle.CallShrink || a == nil || b == nil ||
		slices.Contains(slices.Concat(a.Without, b.Without), model.OtherRanks) {
		return true
	}
	without := func(a *OpenAct) []int { return slices.Sorted(slices.Values(a.Without)) }
	return slices.Equal(without(a), without(b))
}

// longest orders waits by age, the longest first.
func longest(a, b Wait) int {
	return cmp.Or(cmp.Compare(b.Age, a.Age), byRank(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
}
