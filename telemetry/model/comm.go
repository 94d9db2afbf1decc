package model

import (
	"cmp"
	"iter"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Comm is one rank of a communicator.
type Comm struct {
	tape.CommInfo
	Generation uint32 // as tape.Slot's
	Of         *Rank  // the rank of the job that it belongs to
	State      lifecycle.State
	Slot       *tape.Slot // its slot at the last Look; nil if it had none
	Device

	Acts   []*Act // begun and not ended, oldest first
	Latest *Act   // the act that began last, ended or not; nil if there was none
	Ops    []*Op  // known to be in flight, oldest first

	Created     int64              // when this rank began to make it; 0: unknown
	Begun, Done uint64             // numbers of the last collectives that this rank began, and completed
	refused     uint64             // number of the last collective that NCCL refused
	Messages    map[int32]Messages // by the other rank; of MaxPeers at most
	Counted     bool               // Messages counts all messages, with at most MaxPeers ranks
	Groups      uint64             // sends and receives that progress together, begun
	Captured    uint64             // operations known to have ended in tape.PhaseCaptured
	Last        Op                 // that ended last or, of those that failed, first; its End is 0 if there was none
	Failure     *Failure
	End         *Act             // how this rank ended the communicator, finalized it, or failed to make it; else nil
	Revoked     *Act             // how this rank revoked the communicator; else nil
	Splits      uint64           // the number of its last split that this rank took part in
	Made        uint64           // the number of its parent's split that made it; 0: none or unknown
	Was         lifecycle.CommID // its id before it got its own, as a world's in its run; zero if it had no other

	was      lifecycle.CommID // its id before the last step, if that changed it
	root     uint32           // as tape.Slot.Root
	joined   bool             // it grew, and this rank joined it
	cut      []*Act           // acts that were open when this rank ended the communicator
	ended    int64            // when the operation ended whose end was recorded last
	wentOn   bool             // it began an operation after the moment of Until
	changed  bool             // a record changed Ops since the last Look
	progress uint64           // tape.Slot.Progress at the last Watch
	staying  staying
	seen     uint64 // the number of the last Look that found it in the table, or of the Look before it was made

	wait      int32 // the rank that the running operation waits for; -1 for none
	waitSince int64
	waiting   int64     // the start of that operation
	windows   [2]window // sums of waits: the current window and the one before
}

// OpenActs lists the acts that have begun and not ended. Of a communicator that failed and has ended, these are the
// groups that the program had not ended: their calls may be why it failed.
func (c *Comm) OpenActs() []*Act {
	if c.Failure == nil {
		return c.Acts
	}
	groups := slices.DeleteFunc(slices.Clone(c.cut), func(a *Act) bool { return !a.Unended() })
	return append(groups, c.Acts...)
}

// Progress is how far an operation or an act has come.
type Progress struct {
	Start int64
	Moved int64 // the device reached it after this time; 0: unknown
	Phase tape.Phase
	End   int64 // 0 while it is in progress
	Code  lifecycle.Code

	Stalls int  // how often it was reported as stalled
	Slow   bool // it was reported as slow
}

// Op is one operation.
type Op struct {
	Progress
	Seq       uint64
	Signature tape.Signature
	Algorithm uint8
	Caller    tape.SpanContext

	Wait      int32 // the rank that it waits for, or waited for when it ended; -1 for none
	WaitSince int64
	Longest   Wait // the longest of its waits that have ended

	past   bool // it has left the table: the record of its end will come, or was missed
	unread bool // it is known only from the table: there may be no record of its end
}

// Captured tells whether the operation was captured in a graph: its call is known, but not when or how often it ran.
func (o *Op) Captured() bool { return o.End > 0 && o.Phase == tape.PhaseCaptured }

// Refused tells whether NCCL ended the operation without doing anything, so that other ranks don't know its number.
func (o *Op) Refused() bool { return o.End > 0 && o.Phase == tape.PhaseRefused }

// failed tells whether the operation ended with an error.
func (o *Op) failed() bool { return o.End > 0 && o.Code != lifecycle.CodeOK && !o.Refused() }

// Wait is how long operations waited for a rank.
type Wait struct {
	Rank int32 // -1: for none
	Time int64
	Ops  int
	// In a sum of waits, Long is how many of Ops waited for longer than counts, and LongTime is their total time.
	Long     int   `json:",omitempty"`
	LongTime int64 `json:",omitempty"`
}

// Whole is the total time waited, including the part of long waits that doesn't count in Time.
func (w *Wait) Whole() int64 { return w.Time - int64(w.Long)*longestWait + w.LongTime }

// Messages counts the messages with another rank that were begun.
type Messages struct{ Sent, Received uint64 }

// MaxPeers bounds the ranks of a communicator with which messages are counted.
const MaxPeers = len(tape.Messages{})

// count records the number of a message or of a group of messages.
func (c *Comm) count(sig *tape.Signature, seq uint64) {
	if sig.Call == lifecycle.CallSendRecv || sig.Call == lifecycle.CallGroupEnd {
		c.Groups = max(c.Groups, seq)
		return
	}
	m, known := c.Messages[sig.Peer]
	if !known && len(c.Messages) >= MaxPeers {
		return
	}
	switch sig.Call {
	case lifecycle.CallSend:
		m.Sent = max(m.Sent, seq)
	case lifecycle.CallRecv:
		m.Received = max(m.Received, seq)
	default:
		return
	}
	if c.Messages == nil {
		c.Messages = make(map[int32]Messages)
	}
	c.Messages[sig.Peer] = m
}

// countAll takes over counts of all messages, including those without a record.
func (c *Comm) countAll(counted bool, all []tape.PeerMessages) {
	if c.Counted = counted; !counted {
		return
	}
	clear(c.Messages)
	for _, m := range all {
		if m.Sent == 0 && m.Received == 0 {
			continue
		}
		if c.Messages == nil {
			c.Messages = make(map[int32]Messages)
		}
		c.Messages[m.Rank] = Messages{uint64(m.Sent), uint64(m.Received)}
	}
}

// Failure is why a communicator failed.
type Failure struct {
	Time int64
	Code lifecycle.Code
	Call lifecycle.Call
	Seq  uint64
	Peer int32 // the rank at fault, as far as this rank knows; -1 for none
	// Wait is the rank that the operation waited for when it failed; -1 for none.
	Wait int32
	Text string
}

func (p *Process) applyLife(s *Step, r *tape.LifeRecord) {
	c := s.Comm
	if r.Act == tape.ActInit {
		c.Created = cmp.Or(c.Created, r.Start, r.Time)
	}
	if r.State != lifecycle.StateNone {
		c.State = r.State
	}
	switch {
	case r.Stage == tape.StageMisuse:
	case r.Act == tape.ActNone && r.Code != lifecycle.CodeOK:
		s.Failed = c.fail(r)
		if r.Messages != nil {
			c.countAll(true, r.Messages)
		}
	case r.Act == tape.ActNone || r.Act == tape.ActLeak:
	case r.Stage == tape.StageEnd:
		s.Act, s.Began = p.endAct(c, r)
		c.Of.LastAct = s.Act
		if r.Code == lifecycle.CodeOK && s.Act.Start < r.Time {
			s.Act.normal(&p.normal).learn(r.Time - s.Act.Start)
		}
		switch r.Act {
		case tape.ActDestroy, tape.ActAbort:
			if c.End == nil || c.End.Kind != tape.ActInit {
				c.End = s.Act
			}
			c.countAll(r.Messages != nil, r.Messages)
			p.end(c)
		case tape.ActFinalize:
			c.End = s.Act
		case tape.ActRevoke:
			c.Revoked = s.Act
		case tape.ActInit:
			if r.Code != lifecycle.CodeOK {
				s.Failed = c.fail(r)
				c.End = s.Act
				p.end(c)
			}
		case tape.ActSplit:
			p.split(c, r)
		default:
		}
	case r.Stage == tape.StageStart:
		s.Act, s.Began = p.beginAct(c, r, s.Slot), true
	case r.Stage == tape.StagePhase:
		if s.Act = c.act(r.Act, r.Seq); s.Act == nil { // its start was overwritten before it was read
			s.Act, s.Began = p.beginAct(c, r, s.Slot), true
		}
		s.Act.enter(r.Phase, r.Text, r.Time)
	}
}

// split records the end of a split of the communicator.
func (p *Process) split(c *Comm, r *tape.LifeRecord) {
	if r.Code != lifecycle.CodeOK {
		return
	}
	c.Splits = max(c.Splits, r.Seq)
	for _, child := range p.comms {
		if child.ID == r.Child && child.root == c.root && !r.Child.IsZero() {
			child.Made = r.Seq
		}
	}
}

// fail records why the communicator failed, unless it has failed before.
func (c *Comm) fail(r *tape.LifeRecord) bool {
	if c.Failure != nil {
		return false
	}
	c.Failure = &Failure{Time: r.Time, Code: r.Code, Call: r.Call, Seq: r.Seq, Peer: r.Peer, Wait: -1, Text: r.Text}
	if c.Last.End > 0 && c.Last.Code != lifecycle.CodeOK && c.Last.Signature.Call == r.Call {
		c.Failure.Wait = c.Last.Wait
	}
	return true
}

func (p *Process) applyOp(s *Step, r *tape.OpRecord) {
	c := s.Comm
	if r.IsPart() { // its times, and perhaps its ranks, are not the operation's
		of := func(o *Op) bool { return o.Seq == r.Seq && o.Signature.Call == r.Signature.Call }
		if i := slices.IndexFunc(c.Ops, of); i >= 0 {
			s.Op = c.Ops[i]
		}
		return
	}
	refused := r.Stage == tape.StageEnd && r.Phase == tape.PhaseRefused
	if r.Signature.Call.IsCollective() && !refused {
		c.Begun = max(c.Begun, r.Seq)
	}
	c.count(&r.Signature, r.Seq)
	i := slices.IndexFunc(c.Ops, func(o *Op) bool { return o.is(r) })
	if i >= 0 {
		s.Op = c.Ops[i]
	} else {
		p.scratch = newOp(r.Seq, r.Signature, r.Algorithm, cmp.Or(r.Start, r.Time))
		s.Op = &p.scratch
	}
	switch r.Stage {
	case tape.StageStart, tape.StagePhase, tape.StageWait:
		if i < 0 {
			o := p.scratch
			s.Op = &o
			c.beginOp(s.Op)
			c.limitDone()
			p.oldest = min(p.oldest, o.Start)
		}
		c.changed, s.Op.unread = true, false
		s.Op.follow(r)
		if r.Stage == tape.StageWait {
			c.waitFor(s.Op, r.Wait, r.Time)
		}
	case tape.StageEnd:
		if i >= 0 {
			c.Ops = slices.Delete(c.Ops, i, i+1)
			c.changed = true // a device may go on with it, as the slot showed before this record was read
		}
		c.endOp(s.Op, r)
		if refused {
			c.takeBack(s.Op)
			return
		}
		c.Of.History.add(c, s.Op)
		if s.Op.Captured() {
			c.Captured++
			return
		}
		// Tallies have the durations of ordinary operations.
		asked := r.Phase != tape.PhaseInProgress // else the operation may have ended long before
		if took := r.Time - r.Start; r.Code == lifecycle.CodeOK && r.Start > 0 && took > 0 && !r.Ordinary && asked {
			s.Op.normal(&p.normal).learn(took)
		}
	case tape.StageDevice:
		p.scratch = newOp(r.Seq, r.Signature, r.Algorithm, r.Start)
		p.scratch.End = r.Time
		s.Op = &p.scratch
	default:
		s.Op = nil
	}
}

// is tells whether a record is about the operation.
func (o *Op) is(r *tape.OpRecord) bool {
	sig := &o.Signature
	return o.Seq == r.Seq && sig.Call == r.Signature.Call && sig.Peer == r.Signature.Peer &&
		(r.Start == 0 || o.Start == r.Start)
}

func newOp(seq uint64, sig tape.Signature, algorithm uint8, start int64) Op {
	return Op{
		Progress: Progress{Start: start}, Seq: seq, Signature: sig, Algorithm: algorithm, Wait: -1,
		Longest: Wait{Rank: -1},
	}
}

// beginOp adds an operation in the order of starts: the record of a start may be written only when the operation waits.
// If there are too many, it drops a past one, or else the one that began last: if one hangs, it is the oldest.
func (c *Comm) beginOp(o *Op) {
	i, _ := slices.BinarySearchFunc(c.Ops, o.Start, func(o *Op, start int64) int { return cmp.Compare(o.Start, start) })
	c.Ops = slices.Insert(c.Ops, i, o)
	if len(c.Ops) <= maxOps {
		return
	}
	i = slices.IndexFunc(c.Ops, func(o *Op) bool { return o.past })
	if i < 0 {
		i = maxOps
	}
	c.Ops = slices.Delete(c.Ops, i, i+1)
}

// limitDone keeps Done below the collectives on which a device spends long: the ends of their launches, and of later
// launches, were recorded as ends.
func (c *Comm) limitDone() {
	if !c.Enqueues() {
		return
	}
	for _, o := range c.Ops {
		if o.Signature.Call.IsCollective() && !o.past {
			c.Done = min(c.Done, o.Seq-1)
		}
	}
}

// follow applies a record of an operation in flight.
func (o *Op) follow(r *tape.OpRecord) {
	if r.Caller != (tape.SpanContext{}) {
		o.Caller = r.Caller
	}
	switch r.Stage {
	case tape.StagePhase:
		o.Phase = r.Phase
	case tape.StageWait:
		o.waitEnds(r.Time)
		o.Phase, o.Wait, o.WaitSince = r.Phase, r.Wait, r.Time
	default:
	}
}

// waitEnds measures a wait that ends now.
func (o *Op) waitEnds(now int64) {
	if took := now - o.WaitSince; o.Wait >= 0 && o.WaitSince > 0 && took > o.Longest.Time {
		o.Longest = Wait{Rank: o.Wait, Time: took, Ops: 1}
	}
}

func (c *Comm) endOp(o *Op, r *tape.OpRecord) {
	o.waitEnds(r.Time)
	o.Signature, o.Algorithm, o.End, o.Code, o.Phase = r.Signature, r.Algorithm, r.Time, r.Code, r.Phase
	if r.Code == lifecycle.CodeOK && r.Signature.Call.IsCollective() {
		c.Done = max(c.Done, r.Seq)
		c.limitDone()
	}
	c.ended = max(c.ended, o.End)
	consequence := c.Last.failed() && o.failed()
	if o.End >= c.Last.End && !consequence {
		c.Last = *o
	}
	if f := c.Failure; f != nil && f.Wait < 0 && f.Seq == o.Seq && o.Code != lifecycle.CodeOK {
		f.Wait = o.Wait
	}
}

// takeBack gives back the number of a refused collective, unless the slot has later ones.
func (c *Comm) takeBack(o *Op) {
	called := int64(0) // when the last call that the slot shows was made
	if c.Slot != nil {
		called = cmp.Or(c.Slot.CallStart, c.Slot.OpStart)
	}
	if o.Signature.Call.IsCollective() && called <= o.Start {
		c.Begun, c.refused = min(c.Begun, o.Seq-1), o.Seq
	}
}

// look applies the communicator's slot.
func (p *Process) look(c *Comm, s *tape.Slot) {
	if c.Slot == nil {
		c.Slot = new(tape.Slot)
	}
	*c.Slot = *s
	if s.State != lifecycle.StateNone {
		c.State = s.State
	}
	c.changed = false
	inFlight := s.Launched != s.Completed
	if s.Begun > c.Begun || c.Begun <= c.refused { // the previous slot may show a collective refused since
		c.Begun = s.Begun
	}
	if c.Done = max(c.Done, s.Done); s.Marked {
		c.Done = s.Done // records only tell of the launch
	}
	c.Captured = max(c.Captured, s.Captured)
	c.count(&s.Op, s.Seq)
	c.countAll(s.Counted, s.Messages[:])
	var current, unused *Op
	c.Ops = slices.DeleteFunc(c.Ops, func(o *Op) bool {
		o.past = o.Start < s.OpStart || !inFlight && o.Start <= s.OpStart
		if o.Start == s.OpStart && o.Seq == s.Seq && o.Signature.Call == s.Op.Call {
			current = o
		}
		if !o.past || !o.unread || o.Slow || o.Stalls > 0 {
			return false
		}
		unused = o // no reader has a pointer to it
		return true
	})
	shown, last := newOp(s.Seq, s.Op, s.Algorithm, s.OpStart), &c.Last
	switch {
	case inFlight && current == nil && last.End > 0 && last.Start == s.OpStart && last.Seq == s.Seq && !s.Marked:
		return // it has ended since the table was read
	case !inFlight && s.LastEnd > max(last.End, c.ended): // an ordinary operation without a record
		*last = shown
		last.End = s.LastEnd
	case inFlight && current == nil:
		p.oldest = min(p.oldest, s.OpStart)
		if current = unused; current == nil {
			current = new(Op)
		}
		*current = shown
		current.unread = true
		c.beginOp(current)
	}
	if inFlight {
		current.Phase, current.Wait, current.WaitSince = s.Phase, s.Wait, s.WaitSince
	}
}

// Unasked is the oldest operation in flight if NCCL returned ncclInProgress for it and was not polled since: NCCL may
// have completed it. If a communicator is made in the same group, NCCL has not: it completes that communicator only
// when polled.
func (c *Comm) Unasked() *Op {
	makes := func(a *Act) bool { return a.Kind != tape.ActGroup }
	if o := c.InFlight(); o != nil && o.Phase == tape.PhaseInProgress && !slices.ContainsFunc(c.Acts, makes) {
		return o
	}
	return nil
}

// Activities yields the oldest operation in flight, unless it is Unasked, and the open acts.
func (c *Comm) Activities() iter.Seq[Activity] {
	return func(yield func(Activity) bool) {
		if o := c.InFlight(); o != nil && c.Unasked() == nil && !yield(o) {
			return
		}
		for _, a := range c.Acts {
			if !yield(a) {
				return
			}
		}
	}
}

// InFlight is the oldest operation in flight; nil for none.
func (c *Comm) InFlight() *Op {
	for _, o := range c.Ops {
		if !o.past {
			return o
		}
	}
	return nil
}
