package jobsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// How long the runtime takes to notice things.
const (
	restTime   = 200 * time.Microsecond // that a rank spins before it tells for which rank it waits
	hearOut    = 200 * time.Millisecond // to hear the other ranks after a mismatch
	noticeTime = 100 * time.Microsecond // for a rank's notice to reach the others
	deathTime  = 20 * time.Millisecond  // to learn that a process has ended
)

// meetingKey is a collective's number, or a message's ranks and number.
type meetingKey struct {
	message  bool
	seq      uint64
	from, to int
}

// meeting is a call that several ranks make together.
type meeting struct {
	comm   *comm
	key    meetingKey
	came   []*operation
	size   int
	first  int  // all ranks before it have come to a collective
	odd    bool // the calls differ
	done   bool
	lastAt int64 // when the last but one came, and which rank came last
	last   int
}

// operation is a rank's part in one or more meetings.
type operation struct {
	part      *Part
	sig       tape.Signature
	group     []tape.Signature // sends and receives that progress together; nil for other calls
	timeout   time.Duration
	behind    time.Duration // other work of its stream
	launched  bool          // that is all that the tape tells
	done      func(*Fault)
	seq       uint64
	started   bool
	ended     bool
	start     int64
	meetings  []*meeting // those that have not ended
	waitSince int64
	firstWait int32
}

// collective tells whether all ranks make the call together.
func collective(call lifecycle.Call) bool {
	return call != lifecycle.CallSend && call != lifecycle.CallRecv && call != lifecycle.CallSendRecv
}

// launch makes an operation of the part. done is called when it has ended.
func (part *Part) launch(o *operation) {
	o.part = part
	if o.launched {
		o.begin()
		return
	}
	part.queue = append(part.queue, o)
	if len(part.queue) == 1 {
		o.begin()
	}
}

func (o *operation) begin() {
	part, j := o.part, o.part.rank.Process.job
	if part.ended {
		part.pop(o, &Fault{Code: lifecycle.CodeDestroyed, Peer: -1, Text: "used after destroy"})
		return
	}
	if part.fault != nil {
		part.pop(o, &Fault{
			Code: lifecycle.CodeFailed, Peer: -1, Text: "the communicator has failed: " + part.fault.Text,
		})
		return
	}
	s := &part.slot
	o.started, o.start, o.firstWait = true, j.now, -1
	s.Launched++
	switch {
	case collective(o.sig.Call):
		s.Begun++
		o.seq = s.Begun
		o.join(meetingKey{seq: o.seq}, len(part.comm.parts))
	case o.group != nil:
		part.groups++
		o.seq = part.groups
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
	if n := part.comm.notice; n != nil {
		o.fail(n)
		return
	}
	if o.behind > 0 {
		s.Phase = tape.PhaseQueued
		part.rank.Process.later(o.behind, o.reach)
	} else {
		o.meet()
	}
	if o.timeout > 0 {
		part.rank.Process.later(o.timeout, func() {
			peer := int(o.waitsFor())
			o.fail(&Fault{
				Code: lifecycle.CodeTimeout, Peer: peer,
				Text: fmt.Sprintf("%s %d on %s: its context ended while it waited for rank %d",
					o.sig.Call, o.seq, part.comm.info.Name, peer),
			})
		})
	}
}

// reach lets the stream come to the operation.
func (o *operation) reach() {
	if !o.ended {
		o.part.slot.Phase = tape.PhaseAgree
		o.meet()
	}
}

// message numbers one of the operation's messages, and takes it for one of its meetings.
func (o *operation) message(sig tape.Signature) (seq uint64) {
	peer := int(sig.Peer)
	key, count := meetingKey{message: true, from: o.part.slot.Rank, to: peer}, o.part.sent
	if sig.Call == lifecycle.CallRecv {
		key.from, key.to, count = key.to, key.from, o.part.recvd
	}
	count[peer]++
	key.seq = count[peer]
	o.join(key, 2)
	return key.seq
}

func (o *operation) join(key meetingKey, size int) {
	open := o.part.comm.open
	if open[key] == nil {
		open[key] = &meeting{comm: o.part.comm, key: key, size: size}
	}
	o.meetings = append(o.meetings, open[key])
}

// meet comes to the operation's meetings.
func (o *operation) meet() {
	o.waitSince = o.part.rank.Process.job.now + int64(restTime)
	for _, m := range slices.Clone(o.meetings) {
		m.arrive(o)
	}
	if o.ended {
		return
	}
	o.part.rank.Process.job.After(restTime, func() {
		if !o.ended {
			o.firstWait = o.waitsFor()
		}
	})
	for rank := range o.part.comm.parts {
		if o.part.comm.gone[rank] != nil && o.needs(rank) {
			o.learn(rank)
		}
	}
}

// arrive lets a rank come to the meeting.
func (m *meeting) arrive(o *operation) {
	j := o.part.rank.Process.job
	if n := len(m.came); n > 0 {
		m.lastAt = max(m.lastAt, m.came[n-1].start)
		m.odd = m.odd || !m.key.message && agreed(m.came[0].sig) != agreed(o.sig)
	}
	m.came = append(m.came, o)
	m.last = o.part.slot.Rank
	if m.odd && j.Blind {
		return
	}
	if m.odd {
		d := hearOut
		if len(m.came) == m.size {
			d = noticeTime
		}
		j.After(d, m.mismatch)
		return
	}
	if len(m.came) == m.size {
		j.After(j.Latency, m.complete)
	}
}

// agreed is what the ranks of a collective must agree on.
func agreed(sig tape.Signature) tape.Signature {
	switch sig.Call {
	case lifecycle.CallBarrier, lifecycle.CallSplit:
		return tape.Signature{Call: sig.Call}
	default:
		return sig
	}
}

// mismatch fails those that have come: the ranks of the smallest side are at fault.
func (m *meeting) mismatch() {
	if m.done {
		return
	}
	m.done = true
	sides := map[tape.Signature][]*operation{}
	for _, o := range m.came {
		sides[agreed(o.sig)] = append(sides[agreed(o.sig)], o)
	}
	for _, o := range m.came {
		o.part.rank.Process.Do(func() {
			peer, least := -1, len(m.came)+1
			for sig, side := range sides {
				if sig != agreed(o.sig) && len(side) < least {
					peer, least = side[0].part.slot.Rank, len(side)
				}
			}
			if own := sides[agreed(o.sig)]; len(own) < least && len(own) > 1 {
				peer = own[0].part.slot.Rank
			}
			text := fmt.Sprintf("the call of rank %d does not match", peer)
			o.fail(&Fault{Code: lifecycle.CodeMismatch, Peer: peer, Text: text})
		})
	}
}

// complete ends the meeting for all that came, if the network lets it.
func (m *meeting) complete() {
	if m.done || len(m.came) < m.size {
		return
	}
	j := m.came[0].part.rank.Process.job
	for _, o := range m.came {
		if o.ended { // it was given up meanwhile
			return
		}
		if !j.Reach(m.came[0].part.rank.Process, o.part.rank.Process) {
			j.held = append(j.held, m)
			return
		}
	}
	m.done = true
	delete(m.comm.open, m.key)
	for _, o := range m.came {
		o.part.rank.Process.Do(func() { o.passed(m) })
	}
}

// passed tells an operation that one of its meetings has ended well.
func (o *operation) passed(m *meeting) {
	o.meetings = slices.DeleteFunc(o.meetings, func(other *meeting) bool { return other == m })
	if o.ended || len(o.meetings) > 0 {
		return
	}
	if o.launched {
		o.ended = true
		return
	}
	s := &o.part.slot
	if collective(o.sig.Call) {
		s.Done = max(s.Done, o.seq)
	}
	o.record(m, lifecycle.CodeOK)
	o.part.pop(o, nil)
}

// record writes what the tape says of an operation that ended.
func (o *operation) record(m *meeting, code lifecycle.Code) {
	s, now := &o.part.slot, o.part.rank.Process.job.now
	o.ended, s.Unproven = true, o.launched
	s.Completed, s.LastEnd, s.Phase, s.Wait = s.Launched, now, tape.PhaseNone, -1
	r := tape.OpRecord{
		Time: now, Stage: tape.StageEnd, Seq: o.seq, Signature: o.sig, Wait: -1, Code: code, Start: o.start,
	}
	r.Tallied = code == lifecycle.CodeOK
	r.Ordinary = r.Tallied && now < o.waitSince+int64(time.Millisecond)
	if !r.Ordinary {
		o.tellWaits(m, now, &r)
	}
	o.part.write(tape.Event{Op: r})
}

// tellWaits writes the start of an operation that waited, and the ranks that it waited for: the first that was missing,
// and in the end the last.
func (o *operation) tellWaits(m *meeting, now int64, r *tape.OpRecord) {
	start := *r
	start.Stage, start.Time, start.Code, start.Tallied = tape.StageStart, o.start, lifecycle.CodeOK, false
	o.part.write(tape.Event{Op: start})
	if o.firstWait < 0 || o.waitSince >= now {
		return
	}
	wait := start
	wait.Stage, wait.Phase, wait.Time, wait.Wait = tape.StageWait, tape.PhaseAgree, o.waitSince, o.firstWait
	o.part.write(tape.Event{Op: wait})
	if r.Code != lifecycle.CodeOK {
		return
	}
	last := int32(m.last)
	if !m.key.message && m.last != o.part.slot.Rank && last != o.firstWait && m.lastAt > o.waitSince && m.lastAt < now {
		wait.Time, wait.Wait = m.lastAt, last
		o.part.write(tape.Event{Op: wait})
	}
	wait.Time, wait.Wait = now, -1
	o.part.write(tape.Event{Op: wait})
}

// waitsFor is the rank without which the operation can't go on; -1 if there is none.
func (o *operation) waitsFor() int32 {
	for _, m := range o.meetings {
		if m.key.message {
			if len(m.came) < 2 || m.came[0].ended {
				if m.key.from == o.part.slot.Rank {
					return int32(m.key.to)
				}
				return int32(m.key.from)
			}
			continue
		}
		for m.first < m.size &&
			slices.ContainsFunc(m.came, func(c *operation) bool { return c.part.slot.Rank == m.first }) {
			m.first++
		}
		if m.first < m.size {
			return int32(m.first)
		}
		for _, c := range m.came { // all have come, and the network holds it up
			if !o.part.rank.Process.job.Reach(o.part.rank.Process, c.part.rank.Process) {
				return int32(c.part.slot.Rank)
			}
		}
	}
	return -1
}

// needs tells whether the operation can't end without a rank that is gone.
func (o *operation) needs(rank int) bool {
	return slices.ContainsFunc(o.meetings, func(m *meeting) bool {
		if m.key.message {
			return m.key.from == rank || m.key.to == rank
		}
		return true
	})
}

// fail ends the operation with an error, and with it the communicator on this rank; the others are told.
func (o *operation) fail(f *Fault) {
	if o.ended {
		return
	}
	for _, m := range o.meetings {
		m.came = slices.DeleteFunc(m.came, func(c *operation) bool { return c == o && !m.odd })
	}
	o.record(nil, f.Code)
	o.part.fail(o.sig.Call, o.seq, f)
	o.part.pop(o, f)
}

// fail makes the communicator fail on this rank.
func (part *Part) fail(call lifecycle.Call, seq uint64, f *Fault) {
	if part.fault != nil || part.ended {
		return
	}
	part.fault = f
	part.slot.State = lifecycle.StateFailed
	if f.Code != lifecycle.CodeAborted {
		part.life(tape.LifeRecord{
			Call: call, Stage: tape.StageEnd, Seq: seq, Code: f.Code, State: lifecycle.StateFailed, Peer: int32(f.Peer),
			Text: f.Text,
		})
	}
	part.notify(f)
}

// notify tells the other ranks of the communicator why this one can't go on.
func (part *Part) notify(f *Fault) {
	c, j := part.comm, part.rank.Process.job
	if c.notice != nil || j.Blind {
		return
	}
	n := *f
	others := map[lifecycle.Code]lifecycle.Code{
		lifecycle.CodeTimeout: lifecycle.CodeAbandoned, lifecycle.CodeAborted: lifecycle.CodePeerAborted,
	}
	if code, own := others[f.Code]; own {
		n.Code, n.Peer = code, part.slot.Rank
	}
	c.notice = &n
	for _, other := range c.parts {
		if other == nil || other == part || !j.Reach(part.rank.Process, other.rank.Process) {
			continue
		}
		other.rank.Process.later(noticeTime, func() {
			if len(other.queue) > 0 && other.queue[0].started && !other.queue[0].mismatched() {
				other.queue[0].fail(&n)
			}
		})
	}
}

// mismatched tells whether the operation is in a mismatch that is being settled.
func (o *operation) mismatched() bool {
	return slices.ContainsFunc(o.meetings, func(m *meeting) bool { return m.odd && !m.done })
}

// pop ends the running operation, and begins the next.
func (part *Part) pop(o *operation, f *Fault) {
	part.queue = slices.DeleteFunc(part.queue, func(other *operation) bool { return other == o })
	if len(part.queue) > 0 && !part.queue[0].started {
		part.rank.Process.later(0, part.queue[0].begin)
	}
	if o.done != nil {
		o.done(f)
	}
}

// learn fails an operation that needs a rank which is gone.
func (o *operation) learn(rank int) {
	p := o.part.rank.Process
	p.later(noticeTime, func() {
		if o.needs(rank) {
			o.fail(o.part.comm.gone[rank])
		}
	})
}

// lose lets the other ranks learn that one is gone.
func (c *comm) lose(rank int, f *Fault) {
	if c.gone[rank] != nil || c.parts[rank] != nil && c.parts[rank].rank.Process.job.Blind {
		return
	}
	c.gone[rank] = f
	for _, p := range c.parts {
		if p != nil && p.slot.Rank != rank && len(p.queue) > 0 && p.queue[0].started && p.queue[0].needs(rank) {
			p.queue[0].learn(rank)
		}
	}
}
