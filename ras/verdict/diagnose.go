package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Diagnose says what holds the job up: one verdict for each cause, the longest wait first; none if all is well. It
// needs a note of each process of the job, or of as many as can be had: the verdicts say what is missing. It neither
// keeps nor changes notes; the same notes, in any order, give the same verdicts.
//
// soon is true if a rank that others wait for made a call a moment ago: another look soon may find the cause.
func Diagnose(notes []Note) (verdicts []Verdict, soon bool) {
	notes = slices.Clone(notes)
	slices.SortFunc(notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Member, b.Member))
	})
	identify(notes)
	w := &walk{graph: newGraph(notes)}
	w.run()

	all := w.processes()
	var disconnected []*meeting
	for _, m := range w.seen {
		if m.connectionLost() {
			disconnected = append(disconnected, m)
		} else if v, ok := w.verdictOn(m); ok {
			all = append(all, v)
		}
	}
	if len(disconnected) > 0 {
		all = append(all, w.connectionsLost(disconnected))
	}
	all = append(all, w.absentRanks()...)
	for _, knot := range w.knots {
		if ring := shortest(knot); ring != nil && !afterLeaving(ring) {
			all = append(all, w.cycle(knot, fromLowest(ring)))
		}
	}
	all = append(all, w.unfinishedGroups()...)
	if len(all) == 0 {
		all = append(w.stalledMessages(), w.standstills()...)
	}
	if slow := w.lateAgain(all); len(slow) > 0 {
		all = slow
	} else if len(all) > 0 {
		if m := w.misplaced(); m != nil {
			all = []Verdict{w.wrongColor(m, all)}
		}
	} else if all, _ = w.stragglers(); len(all) == 0 {
		all = w.leftOpen()
	}
	slices.SortStableFunc(all, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(waited(&b), waited(&a)), cmp.Compare(len(b.Victims), len(a.Victims)),
			cmp.Compare(a.ID, b.ID))
	})
	all = unique(all)
	addStacks(all, notes)
	return all, w.moving
}

// identify gives a communicator its final id in the notes of ranks that are still in its init, if other ranks have
// learned the id: notes are not all of the same moment.
func identify(notes []Note) {
	ids := map[lifecycle.CommID]lifecycle.CommID{}
	for i := range notes {
		for k := range notes[i].Slots {
			if s := &notes[i].Slots[k]; !s.Was.IsZero() {
				ids[s.Was] = s.Comm
			}
		}
	}
	for i := range notes {
		early := func(s Slot) bool { return !ids[s.Comm].IsZero() && s.open(tape.ActInit) != nil }
		if n := &notes[i]; slices.ContainsFunc(n.Slots, early) {
			n.Slots = slices.Clone(n.Slots)
			for k := range n.Slots {
				if s := &n.Slots[k]; early(*s) {
					s.Comm = ids[s.Comm]
				}
			}
		}
	}
}

// addStacks adds the stacks of suspects that have not ended to the evidence, where they were read.
func addStacks(verdicts []Verdict, notes []Note) {
	stacks := map[string][]string{}
	for i := range notes {
		if n := &notes[i]; n.Fate == Alive || n.Fate == Stopped {
			stacks[n.Member] = n.Stack
		}
	}
	for i := range verdicts {
		v := &verdicts[i]
		for _, r := range v.Suspects() {
			for _, line := range stacks[r.Member] {
				v.Evidence = append(v.Evidence, say("at the time of the verdict: %s %s", r, line))
			}
		}
	}
}

// waited is the longest wait of a verdict's victims.
func waited(v *Verdict) Age {
	if len(v.Victims) == 0 {
		return 0
	}
	return v.Victims[0].Age
}

// unique drops each verdict whose ID an earlier verdict has.
func unique(all []Verdict) []Verdict {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(v Verdict) bool {
		again := seen[v.ID]
		seen[v.ID] = true
		return again
	})
}

// edge is a wait of one meeting for another: a rank that is missing from the first is in the second.
type edge struct {
	via *actor
	to  *meeting
}

// leaf is an end of the walk: a rank that others wait for and that waits for no other rank.
type leaf struct {
	actor     *actor
	why       ending
	at        *meeting     // the meeting that waits for it
	left      *Left        // how it ended the communicator, if why is leftComm
	elsewhere bool         // it keeps making other calls
	in        *participant // its part in an act that waits for no rank; nil if there is none
}

// ending is why a rank waits for no other.
type ending uint8

const (
	idle     ending = iota // it is alive, and in no call
	leftComm               // it has ended the communicator
	notAlive               // its process ended, stopped or is out of reach
)

// walk follows the graph from all meetings in trouble to where it ends.
type walk struct {
	*graph
	seen   []*meeting // in the order in which they were found
	leaves []*leaf
	stack  []*meeting
	still  []*meeting    // collectives whose data does not move
	knots  [][]*meeting  // strongly connected components of more than one meeting: these wait for each other
	least  time.Duration // half the age of the youngest stall; 0 without one
}

func (w *walk) run() {
	for _, m := range w.order {
		if m.until == 0 && m.stalledBefore() && (w.least == 0 || m.age/2 < w.least) {
			w.least = m.age / 2
		}
	}
	for _, m := range w.order {
		if m.trouble && m.index == 0 {
			w.connect(m)
		}
	}
}

// Notes are not all of the same moment. So the walk follows a chain only through ranks that have been in their call for
// half the wait of the rank before them, or half the age of the youngest stall if that is more, but never more than
// settleTime. A rank in no call that made one more recently may still come. After missingTime it counts as missing all
// the same: it keeps making other calls, but never this one.
const (
	settleTime  = time.Second
	missingTime = 2 * time.Minute
	endingTime  = 100 * time.Millisecond // others cancel their calls this soon, too, if the job was told to end
	hastyTime   = 100 * time.Millisecond // if a call times out this soon, other ranks may have been on their way
)

// follow finds what a meeting waits for.
func (w *walk) follow(m *meeting) {
	if w.followErrors(m); m.outOfStep {
		return
	}
	for _, a := range m.missing {
		if !m.lostRank() || m.engineNames(a) {
			w.explain(m, a)
		}
	}
}

// followErrors finds the ranks of a meeting, or of the mismatch by which it failed, whose programs went on after an
// earlier call failed, and so are out of step. The cause of the earlier error is then the meeting's, too. A call of
// another goroutine does not count as going on, nor does a call in a communicator made since: programs make one to
// begin anew.
func (w *walk) followErrors(m *meeting) {
	there := slices.Clone(m.present)
	if m.mismatched() {
		for _, p := range w.disagree(m) {
			for _, q := range p.actor.in {
				if q.slot == p.slot && !slices.Contains(there, q) {
					there = append(there, q)
				}
			}
		}
	}
	for _, p := range there {
		for _, q := range p.actor.in {
			if q.until > p.since && q.slot != p.slot && q.slot.Lane == p.slot.Lane && q.meeting.key.kind != broken &&
				q.slot.Failure.unintended() && !p.slot.madeSince(q.until) && !p.actor.past(q.slot) {
				m.outOfStep = true
				m.edges = append(m.edges, edge{p.actor, q.meeting})
				q.meeting.waiters = append(q.meeting.waiters, m)
			}
		}
	}
}

// explain finds why a rank has not come to a meeting: either the rank waits in other meetings, or the walk ends at it.
func (w *walk) explain(m *meeting, a *actor) {
	gaveUp := slices.Contains(m.gaveUp, a)
	named := m.engineNames(a) || gaveUp
	left := m.leftBy(a, named)
	gone := a.gone() && (a.note.FateAge >= m.until || named) || named && m.engine.is(lifecycle.CodeRankDead)
	if gaveUp {
		left = &Left{Age: a.slotIn(m.key.comm).Failure.Age}
		if left.Age < endingTime {
			w.moving = true
			return
		}
	}
	if m.canceled(a) && !gaveUp || a.note.Fate == Alive && (a.note.Stale || left == nil && m.hasty()) ||
		a.gone() && !gone && !a.note.tapeKnown() {
		return // it may have come since, or have come and failed before its process ended
	}
	waited := m.age - m.until
	still := min(max(waited/2, w.least), settleTime)
	followed, moving := false, false
	var lingers *participant
	for _, p := range w.elsewhere(m, a, gone, left) {
		if m.until == 0 && m.key.kind != joining && p.lingers() {
			lingers = p
			continue
		}
		if own := a.slotIn(m.key.comm); own != nil && m.until == 0 && p.aside(own) {
			continue
		}
		if p.until == 0 && m.until == 0 && p.since < still {
			moving = moving || !m.inOtherLane(p.slot)
			continue
		}
		followed = true
		m.edges = append(m.edges, edge{p.actor, p.meeting})
		p.meeting.waiters = append(p.meeting.waiters, m)
	}
	idleFor := a.idleFor
	if slices.ContainsFunc(a.slots, m.inOtherLane) {
		idleFor = a.idleWithout(m.inOtherLane)
	}
	recent := max(waited/2, still)
	if s := a.queued(m); s != nil {
		idleFor, recent = s.Age, max(3*waited/4, still) // later calls don't count, and its stream may go on
	}
	leaf := &leaf{actor: a, at: m, left: left, in: lingers}
	switch {
	case a.note.Fate == Stopped:
		leaf.why = notAlive
	case followed:
		return
	case gone:
		leaf.why = notAlive
		// A process that closes its runtime aborts its remaining communicators; the program has not called that abort.
		closed := a.note.Fate == Departed || a.note.LeftFailing()
		aborted := left != nil && left.Act == abort && (!closed || left.Site != "")
		if aborted || left != nil && (left.Age > a.note.FateAge+settleTime || w.failedFirst(a.note)) {
			leaf.why = leftComm
		}
	case left != nil:
		leaf.why = leftComm
	case a.wasIn(m.until):
		return
	case moving || m.until == 0 && idleFor >= 0 && idleFor < recent:
		if waited < missingTime && !m.overtakenBy(a) && !leaf.open() {
			w.moving = true
			return
		}
		leaf.elsewhere = true
	}
	w.add(leaf)
}

// lingers reports whether a rank is in an act that makes a communicator and that another rank has completed. No rank
// completes such an act before all have come, so the rank waits for no other one there; NCCL may be waiting for the
// program to ask whether the act has ended.
func (p *participant) lingers() bool {
	if p.until > 0 || p.act() == nil {
		return false
	}
	for q := range p.meeting.g.members(p.slot) {
		if q.actor != p.actor && q.slot.Failure == nil && passed(p.meeting, q.slot) {
			return true
		}
	}
	return false
}

func (w *walk) add(l *leaf) {
	w.leaves, l.at.leaves, l.actor.leaves = append(w.leaves, l), append(l.at.leaves, l), append(l.actor.leaves, l)
}

// elsewhere lists the other meetings that a rank is in, or was in when they failed, that may be why it has not come to
// a meeting. For a rank that is gone or has ended the communicator, these are all earlier failures in its process.
func (w *walk) elsewhere(m *meeting, a *actor, gone bool, left *Left) (found []*participant) {
	if a.note.Fate == Stopped {
		return nil // what it waited for may have come since
	}
	in := a.in
	if gone || left != nil {
		in = nil
		for _, other := range w.actors {
			if other.note == a.note {
				in = append(in, other.in...)
			}
		}
	}
	for _, p := range in {
		cause := false
		switch to := p.meeting; {
		case to == m, to.key.comm == m.key.comm && to.key.kind == broken:
		case p.actor != a && p.until <= m.until:
		case slices.Contains(m.gaveUp, a):
			cause = p.until > left.Age && !p.slot.gaveUp()
		case left != nil: // a failure after it had left is no reason for leaving
			cause = p.until > 0 && p.until >= left.Age
		case gone:
			cause = p.until > 0 && !p.actor.recovered(p.slot)
		default: // a call that began after the meeting had failed is no reason for the failure
			cause = p.since >= m.until && (p.until == 0 || !a.recovered(p.slot) && !m.begunSince(p))
		}
		if cause {
			found = append(found, p)
		}
	}
	return found
}

// begunSince reports whether a rank that failed elsewhere has joined the meeting's communicator since, or another rank
// with the same failure has. Then that failure is no reason not to come to the meeting.
func (m *meeting) begunSince(failed *participant) bool {
	if own := failed.actor.slotIn(m.key.comm); own != nil && own.madeSince(failed.until) {
		return true
	}
	return slices.ContainsFunc(m.present, func(p *participant) bool {
		return slices.ContainsFunc(p.actor.slots, func(s *Slot) bool {
			return s.Failure.unintended() && p.slot.madeSince(s.Failure.Age) && m.g.sameFailure(s, failed.slot)
		})
	})
}

// sameFailure tells whether two slots' failures are of one communicator, or name the same rank as lost.
func (g *graph) sameFailure(a, b *Slot) bool {
	if a.Comm == b.Comm {
		return true
	}
	p, q := g.lostBy(a), g.lostBy(b)
	return p != nil && q != nil && p.actor == q.actor
}

// lostBy returns the rank that a slot's failure reports as lost; nil if it reports none, or that rank is not known.
func (g *graph) lostBy(s *Slot) *participant {
	if !s.Failure.lost() {
		return nil
	}
	return g.ranks[commRank{s.Comm, s.Failure.Peer}]
}

// hasty reports whether a deadline passed so early that the ranks that were missing then need not be late.
func (m *meeting) hasty() bool {
	return m.engine.is(lifecycle.CodeTimeout) && m.age-m.until < hastyTime
}

// queued returns the actor's slot whose operation is queued on its stream, if possible the one in the meeting's
// communicator; nil if there is none.
func (a *actor) queued(m *meeting) (found *Slot) {
	for _, s := range a.slots {
		if s.queued() && (found == nil || s.Comm == m.key.comm) {
			found = s
		}
	}
	return found
}

// gone tells whether an actor's process has ended or is out of reach.
func (a *actor) gone() bool { return a.ended() || a.note.Fate == Unreachable }

// ended tells whether an actor's process is known to have ended.
func (a *actor) ended() bool { return a.note.Fate.ended() }

// wasIn reports whether an actor was, that long ago, in a call that has ended since.
func (a *actor) wasIn(ago time.Duration) bool {
	return ago > 0 && slices.ContainsFunc(a.slots, func(s *Slot) bool {
		return s.InFlight == 0 && s.Op.Call != lifecycle.CallNone && s.Age < ago && s.Age+s.Took > ago
	})
}

// leftBy returns how a rank that a meeting waits for has ended the communicator, or revoked it before; nil if it has
// not, or only after the meeting had failed. If the engine names this rank, the order doesn't matter: other ranks may
// learn of an end before it is done. The ranks of a revoked communicator make new ones of it, and destroy it.
func (m *meeting) leftBy(a *actor, named bool) *Left {
	s := a.slotIn(m.key.comm)
	if s == nil {
		return nil
	}
	makes := []lifecycle.Call{lifecycle.CallSplit, lifecycle.CallShrink, lifecycle.CallGrow}
	remains := m.key.kind == joining || m.key.kind == leaving || slices.Contains(makes, m.slot.Op.Call)
	for _, left := range []*Left{s.Revoked, s.Left} {
		if left != nil && (left.Age >= m.until || named) && (left != s.Revoked || !remains) {
			return left
		}
	}
	return nil
}

// engineNames tells whether the engine says that the meeting failed because this rank is gone. If no known process has
// the rank that the engine names, any actor without a slot in the communicator may be it.
func (m *meeting) engineNames(a *actor) bool {
	if !m.lostRank() {
		return false
	}
	if p := m.at(m.engine.Peer); p != nil {
		return p.actor == a
	}
	return a.slotIn(m.key.comm) == nil
}

// lostRank reports whether a meeting failed because a rank was gone, as the engine says. Then it doesn't matter whether
// the other ranks would have come.
func (m *meeting) lostRank() bool { return m.engine.lost() || m.engine.is(lifecycle.CodePeerAborted) }

// connect is Tarjan's algorithm for strongly connected components. The longest chain, and so the stack depth, grows
// with the number of ranks.
func (w *walk) connect(m *meeting) {
	w.seen, w.stack = append(w.seen, m), append(w.stack, m)
	m.index, m.low, m.onStack = len(w.seen), len(w.seen), true
	w.follow(m)
	for _, e := range m.edges {
		if e.to.index == 0 {
			w.connect(e.to)
			m.low = min(m.low, e.to.low)
		} else if e.to.onStack {
			m.low = min(m.low, e.to.index)
		}
	}
	if m.low == m.index {
		w.pop(m)
	}
}

// pop takes a component off the stack.
func (w *walk) pop(m *meeting) {
	i := slices.Index(w.stack, m)
	knot := slices.Clone(w.stack[i:])
	w.stack = w.stack[:i]
	for _, k := range knot {
		k.onStack = false
	}
	knot = slices.DeleteFunc(knot, func(k *meeting) bool { return k.lostRank() || k.outOfStep })
	if len(knot) > 1 && !w.ungrouped(knot) && !w.unblocked(knot) {
		w.knots = append(w.knots, knot)
	}
}

// unblocked finds the ranks of a knot that are part of it only by a call that they have launched. Such a rank can still
// make the call that the others wait for, on another communicator, unless its later launches are queued behind the
// first. It returns false if there are none.
func (w *walk) unblocked(knot []*meeting) (found bool) {
	for _, m := range knot {
		for _, e := range m.edges {
			launched := func(p *participant) bool {
				return p.meeting == e.to && p.launched && e.to.key.comm != m.key.comm
			}
			if e.via.queued(m) != nil || !slices.Contains(knot, e.to) || !slices.ContainsFunc(e.via.in, launched) {
				continue
			}
			found = true
			if e.via.idleFor < m.age/2 {
				w.moving = true
				continue
			}
			w.add(&leaf{actor: e.via, at: m})
		}
	}
	return found
}

// victims lists the ranks that wait for any of the meetings, directly or not, longest first, without the culprits.
func victims(ends []*meeting, culprits []*actor) []Wait {
	reached, guilty := map[*meeting]bool{}, map[*actor]bool{}
	for _, a := range culprits {
		guilty[a] = true
	}
	queue := slices.Clone(ends)
	for _, m := range queue {
		reached[m] = true
	}
	var waits []Wait
	for i := 0; i < len(queue); i++ {
		for _, p := range queue[i].present {
			if !guilty[p.actor] {
				waits = append(waits, waitOf(p))
			}
		}
		for _, waiter := range queue[i].waiters {
			if !reached[waiter] {
				reached[waiter] = true
				queue = append(queue, waiter)
			}
		}
	}
	slices.SortFunc(waits, longest)
	return slices.CompactFunc(waits, func(a, b Wait) bool { return a == b })
}

// waits lists all ranks that wait for any of the meetings.
func waits(ends ...*meeting) []Wait { return victims(ends, nil) }

// ended reports whether the process ended while it was in the call, and not because the call had failed: a process that
// a signal ended would have waited on.
func (p *participant) ended() bool {
	signaled := p.actor.note.Killed || p.actor.note.Told
	return p.actor.ended() && (p.slot.Failure == nil || signaled)
}

// waitOf is one rank's part in a meeting.
func waitOf(p *participant) Wait {
	m := p.meeting
	return Wait{
		Rank: rankOf(p.actor, m.key.comm), Comm: m.key.comm, Name: p.slot.Name, Call: m.call(p.slot), Seq: m.key.seq,
		Age: Age(p.since), Ended: p.ended(),
	}
}
