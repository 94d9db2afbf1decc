package jobsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Delays of the runtime.
const (
	spinTime   = 200 * time.Microsecond // that a rank spins before its slot names the rank that it waits for
	settleTime = 200 * time.Millisecond // from a mismatch until it fails, so that the other ranks can make their calls
	noticeTime = 100 * time.Microsecond // of a notice between ranks
	errorTime  = 10 * time.Microsecond  // from the end of a call that failed until its error is on the tape
	deathTime  = 20 * time.Millisecond  // until the others detect the death of a process
)

// meetingKey identifies a collective by its number, or a message by its ranks and number.
type meetingKey struct {
	message  bool
	seq      uint64
	from, to int
}

// meeting is a collective, or the two sides of a message.
type meeting struct {
	comm    *comm
	key     meetingKey
	entered []*operation
	size    int
	first   int  // all ranks below it have entered the collective
	odd     bool // the calls differ
	done    bool
	lastAt  int64 // when the last rank but one entered
	last    int   // the rank that entered last
}

// operation is a rank's part in one or more meetings.
type operation struct {
	member    *membership
	sig       tape.Signature
	group     []tape.Signature // sends and receives that progress together; nil for other calls
	timeout   time.Duration
	behind    time.Duration // earlier work on its stream
	launched  bool          // the tape records its launch only
	done      func(*Fault)
	learning  bool // it will fail soon, as a rank that it needs is gone
	seq       uint64
	started   bool
	ended     bool
	start     int64
	meetings  []*meeting // those that have not ended
	waitSince int64
	firstWait int32
}

// collective tells whether the call is a collective.
func collective(call lifecycle.Call) bool {
	return call != lifecycle.CallSend && call != lifecycle.CallRecv && call != lifecycle.CallSendRecv
}

// launch queues an operation; one that is only launched begins at once.
func (member *membership) launch(o *operation) {
	o.member = member
	if o.launched {
		o.begin()
		return
	}
	member.queue = append(member.queue, o)
	if len(member.queue) == 1 {
		o.begin()
	}
}

// running is the operation that has begun and not ended; nil: none.
func (member *membership) running() *operation {
	if len(member.queue) == 0 || !member.queue[0].started {
		return nil
	}
	return member.queue[0]
}

func (o *operation) begin() {
	member, j := o.member, o.member.rank.Process.job
	if member.ended {
		member.pop(o, &Fault{Code: lifecycle.CodeDestroyed, Peer: -1, Text: "used after destroy"})
		return
	}
	if member.fault != nil {
		member.pop(o, &Fault{
			Code: lifecycle.CodeFailed, Peer: -1, Text: "the communicator has failed: " + member.fault.Text,
		})
		return
	}
	s := &member.slot
	o.started, o.start, o.firstWait = true, j.now, -1
	s.Launched++
	switch {
	case collective(o.sig.Call):
		s.Begun++
		o.seq = s.Begun
		o.join(meetingKey{seq: o.seq}, len(member.comm.members))
	case o.group != nil:
		member.groups++
		o.seq = member.groups
		for _, sig := range o.group {
			o.message(sig)
		}
	default:
		o.seq = o.message(o.sig)
	}
	s.Seq, s.Op, s.OpStart, s.Phase, s.Wait, s.WaitSince = o.seq, o.sig, j.now, tape.PhaseAgree, -1, 0
	if o.launched {
		s.Done, s.Marked = s.Begun, true
		o.record(nil, lifecycle.CodeOK)
		o.ended = false
		o.meet()
		return
	}
	if n := member.comm.notice; n != nil {
		o.fail(n)
		return
	}
	if o.behind > 0 {
		s.Phase = tape.PhaseQueued
		member.rank.Process.later(o.behind, o.reach)
	} else {
		o.meet()
	}
	if o.timeout > 0 {
		member.rank.Process.later(o.timeout, func() {
			peer := int(o.waitsFor())
			o.fail(&Fault{
				Code: lifecycle.CodeTimeout, Peer: peer,
				Text: fmt.Sprintf("%s %d on %s: its context ended while it waited for rank %d",
					o.sig.Call, o.seq, member.comm.info.Name, peer),
			})
		})
	}
}

// reach continues the operation when its stream has reached it.
func (o *operation) reach() {
	if !o.ended {
		o.member.slot.Phase = tape.PhaseAgree
		o.meet()
	}
}

// message numbers one of the operation's messages, and adds it to its meetings.
func (o *operation) message(sig tape.Signature) (seq uint64) {
	peer := int(sig.Peer)
	key, count := meetingKey{message: true, from: o.member.slot.Rank, to: peer}, o.member.sent
	if sig.Call == lifecycle.CallRecv {
		key.from, key.to, count = key.to, key.from, o.member.recvd
	}
	count[peer]++
	key.seq = count[peer]
	o.member.countMessages(peer)
	o.join(key, 2)
	return key.seq
}

// countMessages puts the number of messages with another rank into the slot, if there is room for it.
func (member *membership) countMessages(peer int) {
	for i := range member.slot.Messages {
		m := &member.slot.Messages[i]
		if int(m.Rank) == peer && m.Sent+m.Received > 0 || m.Sent+m.Received == 0 {
			m.Rank, m.Sent, m.Received = int32(peer), uint32(member.sent[peer]), uint32(member.recvd[peer])
			return
		}
	}
}

func (o *operation) join(key meetingKey, size int) {
	open := o.member.comm.open
	if open[key] == nil {
		open[key] = &meeting{comm: o.member.comm, key: key, size: size}
	}
	o.meetings = append(o.meetings, open[key])
}

// meet enters the operation's meetings.
func (o *operation) meet() {
	o.waitSince = o.member.rank.Process.job.now + int64(spinTime)
	for _, m := range slices.Clone(o.meetings) {
		m.arrive(o)
	}
	if o.ended {
		return
	}
	o.member.rank.Process.job.After(spinTime, func() {
		if !o.ended {
			o.firstWait = o.waitsFor()
		}
	})
	if peer := o.member.comm.members[max(o.sig.Peer, 0)]; o.point() && peer != nil && !o.member.rank.Process.job.Blind {
		o.member.rank.Process.later(settleTime, func() { o.collide(peer.running()) })
	}
	for rank := range o.member.comm.members {
		if o.member.comm.gone[rank] != nil && o.needs(rank) {
			o.learn(rank)
		}
	}
}

// point tells whether the operation is one message, not a group of them.
func (o *operation) point() bool { return o.group == nil && !collective(o.sig.Call) }

// collide fails the operation, a message, if its peer's operation can't meet it: that is a collective, or the same call
// in the other direction, so that each waits for the other. A peer's operation that has met all it needs doesn't count:
// it only waits for its process.
func (o *operation) collide(with *operation) {
	if o.ended || with == nil || with.group != nil ||
		!slices.ContainsFunc(with.meetings, func(m *meeting) bool { return !m.done }) {
		return
	}
	own, peer := o.member.slot.Rank, with.member.slot.Rank
	if collective(with.sig.Call) || with.sig.Call == o.sig.Call && int(with.sig.Peer) == own {
		o.fail(&Fault{
			Code: lifecycle.CodeMismatch, Peer: peer,
			Text: fmt.Sprintf("the call of rank %d does not match: rank %d says %s, rank %d says %s", peer, own,
				o.sig.Call, peer, with.sig.Call),
		})
	}
}

// arrive adds an operation to the meeting.
func (m *meeting) arrive(o *operation) {
	j := o.member.rank.Process.job
	if n := len(m.entered); n > 0 {
		m.lastAt = max(m.lastAt, m.entered[n-1].start)
		first := m.entered[0]
		m.odd = m.odd || !m.key.message && agreed(first.sig) != agreed(o.sig) || !j.Blind && unequal(first, o)
	}
	m.entered = append(m.entered, o)
	m.last = o.member.slot.Rank
	if m.odd && j.Blind {
		return
	}
	if m.odd {
		d := settleTime
		if len(m.entered) == m.size {
			d = noticeTime
		}
		j.After(d, m.mismatch)
		return
	}
	if len(m.entered) == m.size {
		j.After(j.Latency, m.complete)
	}
}

// unequal tells whether the operations are both sides of one message, and have different sizes or types.
func unequal(a, b *operation) bool {
	return a.point() && b.point() && (a.sig.Bytes != b.sig.Bytes || a.sig.DataType != b.sig.DataType)
}

// agreed is the part of a signature in which all ranks of a collective must agree.
func agreed(sig tape.Signature) tape.Signature {
	switch sig.Call {
	case lifecycle.CallBarrier, lifecycle.CallSplit:
		return tape.Signature{Call: sig.Call}
	default:
		return sig
	}
}

// mismatch fails the operations that have entered. Their errors name a rank of the smallest side.
func (m *meeting) mismatch() {
	if m.done {
		return
	}
	m.done = true
	sides := map[tape.Signature][]*operation{}
	for _, o := range m.entered {
		sides[agreed(o.sig)] = append(sides[agreed(o.sig)], o)
	}
	for _, o := range m.entered {
		o.member.rank.Process.Do(func() {
			peer, least := -1, len(m.entered)+1
			for sig, side := range sides {
				if sig != agreed(o.sig) && len(side) < least {
					peer, least = side[0].member.slot.Rank, len(side)
				}
			}
			if own := sides[agreed(o.sig)]; len(own) < least && len(own) > 1 {
				peer = own[0].member.slot.Rank
			}
			text := fmt.Sprintf("the call of rank %d does not match", peer)
			o.fail(&Fault{Code: lifecycle.CodeMismatch, Peer: peer, Text: text})
		})
	}
}

// complete ends the meeting for all its operations, unless the network is cut between them.
func (m *meeting) complete() {
	if m.done || len(m.entered) < m.size {
		return
	}
	j := m.entered[0].member.rank.Process.job
	for _, o := range m.entered {
		if o.ended { // it failed meanwhile
			return
		}
		if !j.Reach(m.entered[0].member.rank.Process, o.member.rank.Process) {
			j.held = append(j.held, m)
			return
		}
	}
	m.done = true
	delete(m.comm.open, m.key)
	for _, o := range m.entered {
		o.member.rank.Process.Do(func() { o.passed(m) })
	}
}

// passed removes a meeting that has completed, and ends the operation after its last one.
func (o *operation) passed(m *meeting) {
	o.meetings = slices.DeleteFunc(o.meetings, func(other *meeting) bool { return other == m })
	if o.ended || len(o.meetings) > 0 {
		return
	}
	s := &o.member.slot
	if collective(o.sig.Call) {
		s.Done, s.Proven = max(s.Done, o.seq), max(s.Proven, o.seq)
	}
	if o.launched {
		o.ended = true
		return
	}
	o.record(m, lifecycle.CodeOK)
	o.member.pop(o, nil)
}

// record writes the end of the operation to the tape.
func (o *operation) record(m *meeting, code lifecycle.Code) {
	s, now := &o.member.slot, o.member.rank.Process.job.now
	o.ended, s.Unproven = true, o.launched
	s.Completed, s.LastEnd, s.Phase, s.Wait = s.Launched, now, tape.PhaseNone, -1
	r := tape.OpRecord{
		Time: now, Stage: tape.StageEnd, Seq: o.seq, Signature: o.sig, Wait: -1, Code: code, Start: o.start,
	}
	r.Tallied = code == lifecycle.CodeOK
	r.Ordinary = r.Tallied && now < o.waitSince+int64(time.Millisecond)
	if !r.Ordinary {
		o.recordWaits(m, now, &r)
	}
	o.member.write(tape.Event{Op: r})
}

// recordWaits writes the start of an operation that waited, and the ranks that it waited for: the first that was
// missing, and the last.
func (o *operation) recordWaits(m *meeting, now int64, r *tape.OpRecord) {
	start := *r
	start.Stage, start.Time, start.Code, start.Tallied = tape.StageStart, o.start, lifecycle.CodeOK, false
	o.member.write(tape.Event{Op: start})
	if o.firstWait < 0 || o.waitSince >= now {
		return
	}
	wait := start
	wait.Stage, wait.Phase, wait.Time, wait.Wait = tape.StageWait, tape.PhaseAgree, o.waitSince, o.firstWait
	o.member.write(tape.Event{Op: wait})
	if r.Code != lifecycle.CodeOK {
		return
	}
	last := int32(m.last)
	if !m.key.message && m.last != o.member.slot.Rank && last != o.firstWait &&
		m.lastAt > o.waitSince && m.lastAt < now {
		wait.Time, wait.Wait = m.lastAt, last
		o.member.write(tape.Event{Op: wait})
	}
	wait.Time, wait.Wait = now, -1
	o.member.write(tape.Event{Op: wait})
}

// waitsFor is the first rank that the operation waits for; -1: none.
func (o *operation) waitsFor() int32 {
	for _, m := range o.meetings {
		if m.key.message {
			if len(m.entered) < 2 || m.entered[0].ended {
				if m.key.from == o.member.slot.Rank {
					return int32(m.key.to)
				}
				return int32(m.key.from)
			}
			continue
		}
		for m.first < m.size &&
			slices.ContainsFunc(m.entered, func(c *operation) bool { return c.member.slot.Rank == m.first }) {
			m.first++
		}
		if m.first < m.size {
			return int32(m.first)
		}
		for _, c := range m.entered { // all have entered: the network is cut
			if !o.member.rank.Process.job.Reach(o.member.rank.Process, c.member.rank.Process) {
				return int32(c.member.slot.Rank)
			}
		}
	}
	return -1
}

// needs tells whether the operation can't complete without the rank.
func (o *operation) needs(rank int) bool {
	return slices.ContainsFunc(o.meetings, func(m *meeting) bool {
		if m.key.message {
			return m.key.from == rank || m.key.to == rank
		}
		return true
	})
}

// fail fails the operation and its communicator on this rank, and notifies the other ranks.
func (o *operation) fail(f *Fault) {
	if o.ended {
		return
	}
	for _, m := range o.meetings {
		m.entered = slices.DeleteFunc(m.entered, func(c *operation) bool { return c == o && !m.odd })
	}
	o.record(nil, f.Code)
	o.member.fail(o.sig.Call, o.seq, f)
	o.member.pop(o, f)
}

// fail fails the communicator on this rank.
func (member *membership) fail(call lifecycle.Call, seq uint64, f *Fault) {
	if member.fault != nil || member.ended {
		return
	}
	member.fault = f
	member.slot.State = lifecycle.StateFailed
	if f.Code != lifecycle.CodeAborted {
		member.rank.Process.later(errorTime, func() {
			member.life(tape.LifeRecord{
				Call: call, Stage: tape.StageEnd, Seq: seq, Code: f.Code, Peer: int32(f.Peer), Text: f.Text,
			})
		})
	}
	member.notify(f)
}

// notify sends this rank's error to the other ranks of the communicator.
func (member *membership) notify(f *Fault) {
	c, j := member.comm, member.rank.Process.job
	if c.notice != nil || j.Blind {
		return
	}
	n := *f
	others := map[lifecycle.Code]lifecycle.Code{
		lifecycle.CodeTimeout: lifecycle.CodeAbandoned, lifecycle.CodeCanceled: lifecycle.CodeAbandoned,
		lifecycle.CodeAborted: lifecycle.CodePeerAborted,
	}
	if code, own := others[f.Code]; own {
		n.Code, n.Peer = code, member.slot.Rank
	}
	c.notice = &n
	for _, other := range c.members {
		if other == nil || other == member || !j.Reach(member.rank.Process, other.rank.Process) {
			continue
		}
		other.rank.Process.later(noticeTime, func() {
			if o := other.running(); o != nil && !o.mismatched() {
				o.fail(&n)
			}
		})
	}
}

// mismatched tells whether the operation is in a mismatch that has not failed yet.
func (o *operation) mismatched() bool {
	return slices.ContainsFunc(o.meetings, func(m *meeting) bool { return m.odd && !m.done })
}

// pop removes an operation that has ended from the queue, and begins the next.
func (member *membership) pop(o *operation, f *Fault) {
	member.queue = slices.DeleteFunc(member.queue, func(other *operation) bool { return other == o })
	if len(member.queue) > 0 && !member.queue[0].started {
		member.rank.Process.later(0, member.queue[0].begin)
	}
	if o.done != nil {
		o.done(f)
	}
}

// learn fails an operation that needs a rank that is gone.
func (o *operation) learn(rank int) {
	p := o.member.rank.Process
	o.learning = true
	p.later(noticeTime, func() {
		if o.needs(rank) {
			o.fail(o.member.comm.gone[rank])
		}
	})
}

// lose makes a rank known as gone to the other ranks.
func (c *comm) lose(rank int, f *Fault) {
	if c.gone[rank] != nil || c.members[rank] != nil && c.members[rank].rank.Process.job.Blind {
		return
	}
	c.gone[rank] = f
	for _, p := range c.members {
		if p == nil || p.slot.Rank == rank {
			continue
		}
		if o := p.running(); o != nil && !o.learning && o.needs(rank) {
			o.learn(rank)
		}
	}
}
