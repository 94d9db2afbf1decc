package verdict

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Advice for a program with nonblocking calls, on Carillon's communicators and on NCCL's.
const (
	askForError   = "call AsyncError (ncclCommGetAsyncError)"
	completeGroup = "call Wait or AsyncError (ncclCommGetAsyncError)"
)

// maxEvidence is how many ranks a verdict's evidence describes individually.
const maxEvidence = 8

// absentRanks returns the verdicts on living ranks that have not come: one for each meeting and reason. A rank that may
// still be in counted messages, or wait as another rank of its process, is left out if there is another cause.
func (w *walk) absentRanks() []Verdict {
	type group struct {
		key    meetingKey
		reason Reason
		why    ending
	}
	first := map[*actor]*leaf{}
	var order []*actor
	free := func(l *leaf) bool {
		s := l.actor.slotIn(l.at.key.comm)
		return (s == nil || !s.Unproven || !s.inCountedMessages()) && !w.mayWait(l)
	}
	known := len(w.knots) > 0 || slices.ContainsFunc(w.leaves, free)
	for _, l := range w.leaves {
		if l.why == notAlive || known && !free(l) {
			continue
		}
		old := first[l.actor]
		if old == nil {
			order = append(order, l.actor)
		}
		if old == nil || l.before(old) {
			first[l.actor] = l
		}
	}
	leaves := map[group][]*leaf{}
	var groups []group
	for _, a := range order {
		l := first[a]
		key := group{l.at.key, l.reason(), l.why}
		if leaves[key] == nil {
			groups = append(groups, key)
		}
		leaves[key] = append(leaves[key], l)
	}
	var verdicts []Verdict
	for _, key := range groups {
		if m := leaves[key][0].at; m.mostLeft() {
			verdicts = append(verdicts, w.lateCall(m)...)
		} else {
			verdicts = append(verdicts, w.absent(leaves[key]))
		}
	}
	return verdicts
}

// mayWait reports whether an idle rank may wait in a call all the same: its process has another rank that has come to
// another meeting since the idle rank's last call, and as one of them has no number in the job, one goroutine may make
// the calls of both.
func (g *graph) mayWait(l *leaf) bool {
	a := l.actor
	return l.why == idle && slices.ContainsFunc(g.actors, func(o *actor) bool {
		maybeSame := o != a && o.note == a.note && (a.job < 0 || o.job < 0)
		return maybeSame && slices.ContainsFunc(o.in, func(p *participant) bool {
			return p.meeting != l.at && p.until == 0 && p.since <= a.idleFor
		})
	})
}

// skew is how much the ages of two notes may differ because they were made at different moments.
const skew = 100 * time.Millisecond

// before reports whether the verdict on a rank that is missing at the meetings of l and o is about l's meeting. In this
// order, it is about the call in a group that has not ended, the call that the program makes next if that is known, the
// meeting that failed first, the meeting that has waited longest, and the smaller communicator.
func (l *leaf) before(o *leaf) bool {
	next := l.actor.wouldCall(l.at.key.comm, agreed(l.at.slot.Op))
	switch age := l.at.age - o.at.age; {
	case l.open() != o.open():
		return l.open()
	case next != l.actor.wouldCall(o.at.key.comm, agreed(o.at.slot.Op)):
		return next
	case l.at.until != o.at.until:
		return l.at.until > o.at.until
	case age.Abs() >= skew:
		return age > 0
	default:
		return cmp.Or(cmp.Compare(l.at.slot.Size, o.at.slot.Size),
			bytes.Compare(l.at.key.comm[:], o.at.key.comm[:])) < 0
	}
}

// reason returns why a living rank that is in no meeting has not come to l's.
func (l *leaf) reason() Reason {
	m := l.at
	switch {
	case l.why == leftComm && l.left.Act != tape.ActInit:
		return NotEntered
	case l.actor.openGroup(m) != nil:
		return UnfinishedGroup
	case m.until == 0 && l.actor.queued(m) != nil:
		return StreamBlocked
	case m.key.kind == joining, m.slot.Op.Call == lifecycle.CallSplit, m.slot.Op.Call == lifecycle.CallShrink,
		m.slot.Op.Call == lifecycle.CallGrow:
		return NotJoined
	default:
		return NotEntered
	}
}

// absent is the verdict on ranks that have not come to a meeting.
func (w *walk) absent(leaves []*leaf) Verdict {
	m := leaves[0].at
	var culprits []*actor
	var ends []*meeting
	for _, l := range leaves {
		culprits = append(culprits, l.actor)
		for _, o := range l.actor.leaves {
			ends = append(ends, o.at)
		}
	}
	v := m.verdict(leaves[0].reason(), Certain, m.ranksOf(culprits), victims(ends, culprits))
	who, have := culpritsText(v.Culprits), haveText(v.Culprits)
	switch first := leaves[0]; {
	case slices.Contains(m.gaveUp, first.actor):
		s := first.actor.slotIn(m.key.comm)
		v.Text = say("%s canceled %s %s ago", who, callText(s.Op.Call.String(), s.Seq, s), Age(first.left.Age))
	case first.why == leftComm && first.left.Act == tape.ActInit:
		v.Text = say("%s failed on %s %s ago", m.text(), who, Age(first.left.Age))
		if len(leaves) == 1 && first.left.Text != "" {
			v.Text.add(": %s", first.left.Text)
		}
	case first.why == leftComm:
		verb := map[tape.Act]string{
			abort: "aborted", tape.ActRevoke: "revoked", tape.ActFinalize: "finalized",
		}[first.left.Act]
		v.Text = say("%s %s %s %s ago", who, cmp.Or(verb, "destroyed"), commText(m.slot), Age(first.left.Age))
		if first.left.Site != "" {
			v.Text.add(" (at %s)", first.left.Site)
		}
		own, counted := first.actor.slotIn(m.key.comm), m.slot.inCountedMessages()
		in := m.key.kind == collective && own.Begun >= m.key.seq || counted && own.lacks(m.slot).by == 0
		switch {
		case first.left.Act == abort && in:
			v.Text.add(", before %s was done", m.text())
		case counted:
			v.Text.add(", and %s not %s", have, m.entered(v.Culprits))
		default:
			v.Text.add(", and never %s", m.entered(v.Culprits))
		}
		if first.left.Text != "" {
			v.Evidence = append(v.Evidence, say("the cause of that: %s", first.left.Text))
		}
	case v.Reason == UnfinishedGroup:
		group := first.actor.openGroup(m)
		v.Age = Age(group.Age)
		if v.Text = openGroupText(v.Culprits, group); group.Unended {
			v.Text.add(", and %s %s not %s", they(v.Culprits), have, m.entered(v.Culprits))
		} else {
			v.Text = say("%s %s a group job that has been open for %s: %s; until then %s cannot enter %s",
				who, have, v.Age, completeGroup, they(v.Culprits), m.text())
		}
	case v.Reason == StreamBlocked:
		v.Text = blockedText(v.Culprits, leaves)
	case m.key.kind == broken:
		v.Text = say("%s caused %s to fail on other ranks: %s", who, commText(m.slot), m.slot.Failure.Text)
	default:
		v.Text = m.notEntered(who, v.Culprits, v.Reason == NotJoined)
		if len(leaves) == 1 && first.in != nil {
			v.Text.add("; it is still in %s, which others have completed: if it does not block, %s until it has ended",
				first.in.meeting.text(), askForError)
		} else if len(leaves) == 1 {
			v.Text.add("%s", lastCall(m, first.actor))
		}
	}
	v.Text.add("%s", waiting(v.Victims))
	v.weigh(m, leaves)
	v.addFates(m, culprits)
	if m.key.kind != broken {
		v.Evidence = append(v.Evidence, attendance(m))
	}
	return v
}

// notEntered says that ranks have not entered (or joined) a meeting, or had not done so when it failed.
func (m *meeting) notEntered(who string, ranks []Rank, joining bool) Text {
	what := m.entered(ranks)
	if joining {
		what = say("joined %s", m.text())
	} else if first := m.firstMissing(ranks); first < m.key.seq {
		what.add(", nor any collective from number %d on", first)
	}
	if m.until > 0 {
		return say("%s had not %s when it failed, %s ago", who, what, Age(m.until))
	}
	return say("%s %s not %s", who, haveText(ranks), what)
}

func haveText(ranks []Rank) string {
	if len(ranks) == 1 {
		return "has"
	}
	return "have"
}

func they(ranks []Rank) string {
	if len(ranks) == 1 {
		return "it"
	}
	return "they"
}

// weigh adds the evidence for and against a verdict on missing ranks, and lowers the verdict's confidence to match.
func (v *Verdict) weigh(m *meeting, leaves []*leaf) {
	if m.guessed || m.key.kind == leaving { // an engine may end a communicator without waiting for other ranks
		v.Confidence = Likely
	}
	if m.byOrder {
		v.Evidence = append(v.Evidence,
			say("who is absent is a guess by the job's order, in which the known ranks of %s are", commText(m.slot)))
	}
	for _, l := range leaves {
		r := rankOf(l.actor, m.key.comm)
		if l.elsewhere {
			most := Possible
			if m.overtakenBy(l.actor) || l.open() {
				most = Likely
			}
			v.Confidence = min(v.Confidence, most)
			v.Evidence = append(v.Evidence, say("%s keeps making other calls, but not this one", r))
		}
		if m.g.mayWait(l) {
			v.Confidence = Possible
			v.Evidence = append(v.Evidence, say("%s may wait as another rank of its process, which is in a call", r))
		}
		if v.Reason == UnfinishedGroup && l.in != nil {
			v.Evidence = append(v.Evidence, say("%s has gone on to %s", r, l.in.meeting.text()))
		}
		if at := l.actor.note.Terminated; at > 0 {
			v.Evidence = append(v.Evidence, say("%s was told to end by SIGTERM %s ago", r, Age(at)))
		}
		inFlight := func(s *Slot) bool { return s.InFlight > 0 }
		inCall := m.until > 0 && slices.ContainsFunc(l.actor.slots, inFlight) // entered after the meeting failed
		if l.actor.note.Where != "" && !l.actor.ended() && !inCall && (l.in == nil || v.Reason != UnfinishedGroup) {
			is := "is between its calls"
			if v.Reason == StreamBlocked { // its last call has returned, but counts as in progress
				is = "has returned from the call"
			}
			v.Evidence = append(v.Evidence, say("%s %s: %s", r, is, l.actor.note.Where))
		}
		for _, s := range l.actor.slots {
			if s.Captured > 0 && (s.Comm == m.key.comm || v.Reason == StreamBlocked) {
				v.Evidence = append(v.Evidence, capturedBy(r, s))
				v.Confidence = min(v.Confidence, Likely)
			}
		}
	}
	odd := 0
	for _, p := range m.present {
		if o := m.g.oddText(p, m); o != nil && len(v.Evidence) < maxEvidence {
			v.Evidence = append(v.Evidence, o...)
			odd++
		}
	}
	if odd > 0 && odd == len(m.present) { // the ranks that are present may be the wrong ones
		v.Confidence = min(v.Confidence, Likely)
	}
	if n, size := m.arrived(), m.slot.Size; v.Reason == NotEntered && m.key.kind == collective && n < size-n {
		v.Evidence = append(v.Evidence,
			say("only %d of %d ranks are in the call: it may be one call too many", n, size))
		v.Confidence = min(v.Confidence, Likely)
	}
}

// addFates adds the error with which each rank's init, or its last act, failed, and how its process has ended. It omits
// the error if there is only one rank and the verdict's sentence has that error.
func (v *Verdict) addFates(m *meeting, some []*actor) {
	for _, a := range some {
		r := rankOf(a, m.key.comm)
		who := r.String()
		if v.ambiguous(r) {
			who = r.Process()
		}
		f := a.failed()
		if m.failedFor(a) {
			f = &FailedAct{Act: tape.ActInit, Comm: m.key.comm, Name: m.slot.Name, Text: a.slotIn(m.key.comm).Left.Text}
		}
		said := v.Reason != Mismatch && len(some) == 1 && m.failedFor(a)
		if f != nil && f.Text != "" && !said {
			v.Evidence = append(v.Evidence,
				say("the %s of %s on %s failed: %s", f.Act, quoted(f.Name, f.Comm), who, f.Text))
		}
		if a.ended() {
			verb := fateVerbs[a.note.Fate]
			ended := say("the process of %s %s %s ago", r, verb, Age(a.note.FateAge))
			if v.ambiguous(r) {
				ended = say("process %s %s %s ago", who, verb, Age(a.note.FateAge))
			}
			if a.note.Cause != "" {
				ended.add(": %s", a.note.Cause)
			}
			v.Evidence = append(v.Evidence, ended)
		}
	}
}

// firstMissing is the number of the first collective of the communicator that one of the missing ranks has not made.
func (m *meeting) firstMissing(ranks []Rank) uint64 {
	first := m.key.seq
	for _, r := range ranks {
		if p := m.at(r.Comm); p != nil && m.key.kind == collective && p.slot.counts() {
			first = min(first, p.slot.Begun+1)
		}
	}
	return first
}

// arrived returns how many ranks have made a meeting's call. It counts ranks whose later calls are pending behind the
// call, and ranks that aborted the communicator in the call.
func (m *meeting) arrived() int {
	n := len(m.present)
	for p := range m.members() {
		if s := p.slot; m.key.kind == collective && s.Left != nil && s.Left.Act == abort && s.Seq == m.key.seq {
			n++
		}
	}
	for _, later := range m.g.order {
		if later.key.comm != m.key.comm || later.key.seq <= m.key.seq {
			continue
		}
		for _, p := range later.present {
			if p.launched {
				n++
			}
		}
	}
	return n
}

// blockedText says which streams are busy with earlier work, and what was launched behind it.
func blockedText(culprits []Rank, leaves []*leaf) Text {
	s := leaves[0].actor.queued(leaves[0].at)
	streams := "stream of its device is"
	if len(culprits) > 1 {
		streams = "streams of their devices are"
	}
	return say("%s launched %s %s ago, and the %s busy with earlier work", culpritsText(culprits),
		callText(s.Op.Call.String(), s.Seq, s), Age(s.Age), streams)
}

// entered completes "has not …" for ranks that are missing at the meeting.
func (m *meeting) entered(ranks []Rank) Text {
	r := ranks[0]
	l := lack{sends: r.Comm == m.key.from, number: m.key.seq}
	if p := m.at(r.Comm); m.slot.inCountedMessages() && p != nil && len(ranks) == 1 {
		l = p.slot.lacks(m.slot)
	} else if m.key.kind != message || r.Comm != m.key.from && r.Comm != m.key.to {
		l.number = 0
	}
	other := rankOf(m.present[0].actor, m.key.comm)
	if l.number == 0 {
		return say("entered %s", m.text())
	}
	return l.text(other, m.slot)
}

// lateCall is the verdict on ranks that are in a call after a larger number of ranks has left in order; none while the
// exit code of one of these, which may have failed, may still become known.
func (w *walk) lateCall(m *meeting) []Verdict {
	for p := range m.members() {
		if p.actor.note.Leaves && m.leftBefore(p) {
			w.moving = true
			return nil
		}
	}
	v := m.verdict(Mismatch, Likely, m.ranksOf(actorsOf(m.present)), waits(m))
	v.Text = say("%s made a call that no other rank makes: %s, for %s; most others have left in order",
		culpritsText(v.Culprits), m.text(), Age(m.age-m.until))
	v.Text.add("%s", waiting(v.Victims))
	for _, p := range m.present {
		v.Evidence = append(v.Evidence, w.oddText(p, m)...)
	}
	v.Evidence = append(v.Evidence, attendance(m))
	return []Verdict{v}
}

// oddText says what a rank's program had always called where it now made the meeting's call, if that call is odd.
func (g *graph) oddText(p *participant, m *meeting) []Text {
	o := g.odd(p.actor)
	if o == nil || o.Did.Comm != m.key.comm || o.Did.Seq != p.slot.Seq {
		return nil
	}
	return []Text{o.text(rankOf(p.actor, m.key.comm).String())}
}

// mostLeft reports whether more ranks have left in order before the meeting's call, all at the same point of their
// programs, than are in the meeting. Ranks of other communicators count as well: by their calls, they left where a rank
// of this one did. Ranks that left after the meeting had failed don't count.
func (m *meeting) mostLeft() bool {
	if m.key.kind != collective && m.key.kind != message && !m.calledTooOften() {
		return false
	}
	left, most := map[uint64]int{}, 0 // by the number of collectives
	for p := range m.members() {
		if m.leftBefore(p) {
			left[p.slot.Begun]++
			most = max(most, left[p.slot.Begun]+m.leftLike(p.actor))
		}
	}
	return most > len(m.present)
}

// leftBefore reports whether a rank left in order before the meeting's call, and before the meeting had failed.
func (m *meeting) leftBefore(p *participant) bool {
	ago, inOrder := p.leftInOrder(m.key.kind)
	return inOrder && ago+skew >= m.until && (m.key.kind != collective || p.slot.Begun < m.key.seq)
}

// leftLike is how many ranks outside of the meeting's communicator left all of theirs in order, after the same calls as
// a rank that has left the meeting's.
func (m *meeting) leftLike(a *actor) (n int) {
	if m.slot.Size >= len(m.g.actors) {
		return 0
	}
	made := a.made()
	for _, o := range m.g.actors {
		stays := func(s *Slot) bool {
			ago, inOrder := (&participant{actor: o, slot: s}).leftInOrder(collective)
			return !inOrder || ago+skew < m.until
		}
		if o.slotIn(m.key.comm) == nil && len(made) > 0 && maps.Equal(made, o.made()) &&
			!slices.ContainsFunc(o.slots, stays) {
			n++
		}
	}
	return n
}

// leftInOrder reports whether a rank ended the communicator in order, and how long ago: the communicator hadn't failed,
// and the process did not exit with a failure. For collectives, whose number is known, it is enough that the process
// ended in order between two of them: that aborts the remaining communicators.
func (p *participant) leftInOrder(kind meetingKind) (ago time.Duration, inOrder bool) {
	s, n := p.slot, p.actor.note
	switch {
	case s.Failure.unintended(), n.Failed:
		return 0, false
	case s.Left != nil && s.Left.Act != abort:
		return s.Left.Age, true
	default:
		between := kind == collective && s.idle() && !s.Failed
		return n.FateAge, n.Fate == Departed && between && (s.Left == nil || s.Left.Age <= n.FateAge+settleTime)
	}
}

// verdictOn is the verdict on a meeting itself, not on ranks that are missing there; false if there is none.
func (w *walk) verdictOn(m *meeting) (Verdict, bool) {
	switch {
	case m.outOfStep:
		return Verdict{}, false
	case m.contradicted:
		v, _ := w.contradiction(m)
		return v, m.trouble
	case m.differ:
		return w.mismatch(m), true
	case m.mismatched() && w.unheard(m):
		w.moving = true
		return Verdict{}, false
	case m.mismatched():
		return w.reportedMismatch(m), !w.secondary(m)
	case len(m.absent) > 0 && m.engine != nil && w.troubleBefore(m.until, func(s *Slot) bool {
		return s.Comm != m.key.comm
	}):
		return Verdict{}, false
	case len(m.absent) > 0 && !m.engine.lost() && w.unheard(m):
		w.moving = true
		return Verdict{}, false
	case len(m.absent) > 0 && (m.key.kind == joining || m.engine != nil && len(m.missing) == 0):
		return w.neverSeen(m), true
	case len(m.absent) > 0 && m.engine != nil: // others are known to have been missing
		return Verdict{}, false
	case len(m.absent) > 0:
		return w.unknown(m, fmt.Sprintf("nothing is known of %s of %s", words.Ranks(m.absent), commText(m.slot))), true
	case len(m.missing) == 0 && (m.key.kind != exchange || m.slot.inCountedMessages()) && m.trouble:
		return w.stuck(m)
	case m.hasty() && len(m.edges) == 0 && len(m.leaves) == 0 && m.trouble:
		return w.engineFailed(m)
	case len(m.edges) == 0 && len(m.leaves) == 0 && m.trouble && len(m.missing) > 0 &&
		!slices.ContainsFunc(m.missing, (*actor).seen):
		return w.unknown(m, fmt.Sprintf("the tape of %s cannot be read", ranksText(m.ranksOf(m.missing)))), true
	default:
		return Verdict{}, false
	}
}

// troubleBefore reports whether a process ended, or a communicator failed for which counts is true, shortly before an
// event that long ago, and so may be its cause. A program that exits because a call failed may leave no tape.
func (g *graph) troubleBefore(ago time.Duration, counts func(*Slot) bool) bool {
	return slices.ContainsFunc(g.notes, func(n *Note) bool {
		return n.Fate.ended() && shortlyBefore(n.FateAge, ago) || slices.ContainsFunc(n.Slots, func(s Slot) bool {
			return s.Failure.unintended() && shortlyBefore(s.Failure.Age, ago) && counts(&s)
		})
	})
}

// shortlyBefore reports whether an event of one age came less than pastTime before an event of the other age.
func shortlyBefore(age, other time.Duration) bool { return age > other && age-other < pastTime }

// seen tells whether anything is known of what an actor's process does.
func (a *actor) seen() bool { return a.note.Fate != Alive || !a.note.Stale || len(a.note.Slots) > 0 }

// neverSeen is the verdict on ranks of a communicator that belong to no known process: they never came, or the engine
// reports what happened to them.
func (w *walk) neverSeen(m *meeting) Verdict {
	if m.key.kind == joining && m.engine == nil && m.slot.Parent.IsZero() && len(w.notes) == 1 && len(m.present) == 1 &&
		len(m.absent) > 1 {
		return w.alone(m)
	}
	var ranks []Rank
	for _, r := range m.absent {
		ranks = append(ranks, w.rankAt(m.slot, r))
	}
	who := ranksText(ranks)
	reason, text := NotJoined, m.notEntered(who, ranks, true)
	if f := m.engine; f != nil {
		switch f.Code {
		case lifecycle.CodeRankDead:
			reason, text = RankDead, say("%s died, as the other ranks report: %s", who, f.Text)
		case lifecycle.CodeUnreachable:
			reason, text = RankUnreachable, say("%s stopped answering, as the other ranks report: %s", who, f.Text)
		default:
			reason, text = NotEntered, say("%s had not entered %s: %s", who, m.text(), f.Text)
		}
	}
	v := m.verdict(reason, Likely, ranks, waits(m))
	v.Text = text
	v.Text.add("%s", waiting(v.Victims))
	why := say("no known process has these ranks: theirs may not have started")
	if !m.slot.Parent.IsZero() { // its ranks exist in the parent
		why = say("no process is known to have called for it as these ranks")
	}
	v.Evidence = append(v.Evidence, attendance(m), why)
	return v
}

// alone is the verdict on the one rank of several that has come and hears of no other: either these have not come, or
// they meet without it. Nobody is accused, as it can't know which.
func (w *walk) alone(m *meeting) Verdict {
	v := m.verdict(NotJoined, Possible, nil, waits(m))
	r := rankOf(m.present[0].actor, m.key.comm)
	v.Text = say("%s has come to %s, and hears of none of the other %d ranks: they have not come, or can't meet it",
		culpritsText([]Rank{r}), m.text(), len(m.absent))
	v.Evidence = []Text{
		attendance(m), say("ranks meet if they have the same job name, the same secret, and a network between them"),
	}
	return v
}

func (w *walk) unknown(m *meeting, why string) Verdict {
	v := m.verdict(Unknown, Possible, nil, waits(m))
	v.Text = say("%s does not complete, and the cause is not known: %s", m.text(), why)
	v.Evidence = []Text{attendance(m)}
	return v
}

// wouldCall tells whether an idle rank's program has always made this call next.
func (a *actor) wouldCall(comm lifecycle.CommID, sig tape.Signature) bool {
	return a.habit != nil && a.habit.Next != nil && a.habit.Next.Comm == comm && agreed(a.habit.Next.Op) == sig
}
