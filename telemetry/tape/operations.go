package tape

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
)

// operations is a CommWriter's state of its operations. A rank that the scheduler moves to another processor fetches
// each cache line that it writes, which costs more than all instructions. So an operation that is like the one before,
// and the only one in flight, writes the first cache line alone.
type operations struct {
	launched, completed uint64              // all up to completed have ended
	pageNumber          uint64              // of the last operation on the communicator's page
	pageStart           int64               // of that operation
	pageUsed            uint32              // words
	n, head             uint8               // the last n launched are known: list is their queue, from head on
	plain               bool                // the slot's latch shows list[0], alone in flight, waiting for nobody
	phase               Phase               // of the oldest in flight
	list                [maxPending]pending // if only one is in flight, it is the first

	waitSince int64
	version   uint32 // of the slot's latch
	wait      int32  // the rank that the oldest in flight waits for; -1: none

	kept         pending // the oldest in flight, if list no longer has it
	keptLaunched uint64  // its number; 0: none was kept
}

// pending is an operation that is in flight, or was a moment ago.
type pending struct {
	number   uint64 // by which the ranks identify it
	start    int64
	told     bool // its start is on the op ring
	ended    bool
	captured bool
	peer     int32
	kinds    uint64 // packKinds
	bytes    uint64
}

// maxPending is the number of operations in flight whose signatures are known, besides that of the oldest; those in
// between lose theirs. It is a power of two.
const maxPending = 64

// maxInFlight is the most operations in flight that a slot can show: it has 24 bits for them.
const maxInFlight = 1<<24 - 1

// Start launches the communicator's next operation. number is the one that the ranks agree on, see OpRecord.Seq; 0
// means launched. launched, the count of operations including this one, identifies it for End. A nil CommWriter returns
// 0.
func (c *CommWriter) Start(number uint64, sig Signature, algorithm uint8) (launched uint64) {
	return c.StartFrom(Now(), nil, number, &sig, algorithm)
}

// StartFrom is Start for an operation that began at the time now, by Now, and was called within a span, which becomes
// OpRecord.Caller of its start; nil means no span. It keeps neither pointer.
func (c *CommWriter) StartFrom(
	now int64, caller *SpanContext, number uint64, sig *Signature, algorithm uint8,
) (launched uint64) {
	if c == nil {
		return 0
	}
	p, o := c.push(), c.op
	if number == 0 {
		number = o.launched
	}
	p.number, p.start, p.told, p.ended, p.captured = number, now, false, false, false
	kinds := packKinds(sig, algorithm)
	repeats := o.plain && o.launched == o.completed+1 && kinds == p.kinds && sig.Bytes == p.bytes && sig.Peer == p.peer
	if !repeats {
		p.kinds, p.bytes, p.peer = kinds, sig.Bytes, sig.Peer
	}
	if sig.Call.IsCollective() {
		storeRelease(&c.slot.begun, number)
	}
	if repeats { // saves writing two cache lines
		storeRelease(&c.slot.number, number)
		storeRelease(&c.slot.start, uint64(now))
		storeRelease(&c.slot.launched, o.launched)
	} else {
		c.show(o.oldest())
	}
	switch {
	case caller != nil:
		c.tellFrom(caller, p)
	case c.index < 0 || c.closed: // no slot shows the operation
		c.tell(p)
	}
	runtime.KeepAlive(c) // and so the mapping
	return o.launched
}

// Began is when the last launched operation began, by Now; 0 if none is in flight.
func (c *CommWriter) Began() int64 {
	if c == nil || c.op.launched == c.op.completed {
		return 0
	}
	return c.op.find(c.op.launched).start
}

// Launched is an operation that was launched on a device.
type Launched struct{ of pending }

// Last is the last launched operation.
func (c *CommWriter) Last() (l Launched) {
	if c != nil {
		l.of = *c.op.find(c.op.launched)
	}
	return l
}

// Device records how long a device took for an operation. It may be called from any goroutine.
func (c *CommWriter) Device(l Launched, took time.Duration) {
	if c == nil {
		return
	}
	c.putOp(kindOp, &l.of, l.of.start+int64(took), StageDevice, PhaseStream, -1, 0)
	runtime.KeepAlive(c)
}

// Start is when the operation was launched, by Now; 0 if there is none.
func (l *Launched) Start() int64 { return l.of.start }

// Overdue tells whether a device that has finished nothing since a time, by Now, has taken long enough to be slow.
func (c *CommWriter) Overdue(since int64) bool { return c != nil && Now()-since >= c.w.slow }

// Again records a moment of an overdue operation, which readers still find when the communicator's slot is gone: its
// start, the phase and the rank that it waits for (-1: none), or its end. It may be called from any goroutine.
func (c *CommWriter) Again(l *Launched, stage Stage, phase Phase, wait int32, code lifecycle.Code) {
	if c == nil {
		return
	}
	kind := uint8(kindOp)
	if stage == StageEnd && code == lifecycle.CodeOK {
		kind = kindTallied // with its launch
	}
	c.putOp(kind, &l.of, Now(), stage, phase, wait, code)
	runtime.KeepAlive(c)
}

// Detailed tells whether to record the parts of the oldest operation in flight, for Proxied: it is sampled, or already
// slow.
func (c *CommWriter) Detailed() bool {
	return c != nil && c.op.launched != c.op.completed && (c.sampled(c.op.oldest()) || c.Slow())
}

// Slow tells whether the oldest operation in flight is already slow.
func (c *CommWriter) Slow() bool {
	return c != nil && c.op.launched != c.op.completed && Now()-c.op.oldest().start >= c.w.slow
}

// Proxied records the data that the oldest operation in flight sent to a rank of another node, and then its steps.
func (c *CommWriter) Proxied(s *Proxied) {
	if c == nil || c.op.launched == c.op.completed {
		return
	}
	p := *c.op.oldest()
	p.peer, p.bytes, p.start = s.Peer, s.Bytes, s.Start
	stage := StageProxied
	if s.Step {
		stage = StageStep
	}
	c.putOp(kindOp, &p, s.End, stage, s.Waited, s.Carrier, s.Code)
	runtime.KeepAlive(c)
}

// Phase sets the phase of the oldest operation in flight, which is the running one. Setting the same phase again costs
// next to nothing.
func (c *CommWriter) Phase(phase Phase) {
	if c == nil {
		return
	}
	if o := c.op; o.launched != o.completed && o.phase != phase {
		o.phase = phase
		c.changed(Now(), StagePhase)
	}
}

// Wait sets the rank that the oldest operation in flight waits for, -1 for none. Setting the same rank again costs next
// to nothing.
func (c *CommWriter) Wait(peer int32) {
	if c == nil {
		return
	}
	if o := c.op; o.launched != o.completed && o.wait != peer {
		now := Now()
		o.wait, o.waitSince = peer, now
		if peer < 0 {
			o.waitSince = 0
		}
		c.changed(now, StageWait)
	}
}

// changed writes a new phase or wait of the oldest operation in flight.
func (c *CommWriter) changed(now int64, stage Stage) {
	p := c.op.oldest()
	c.show(p)
	c.tell(p)
	c.putOp(kindOp, p, now, stage, c.op.phase, c.op.wait, 0)
	runtime.KeepAlive(c)
}

// End ends the operation for which Start returned launched. Operations may end in any order; the slot shows the oldest
// that is still in flight. End does nothing if the operation is not in flight.
func (c *CommWriter) End(launched uint64, code lifecycle.Code) {
	if c == nil {
		return
	}
	now := Now()
	o := c.op
	p, phase := &o.list[0], PhaseNone
	alone := o.plain && launched == o.launched && launched == o.completed+1
	if !alone {
		if launched <= o.completed || launched > o.launched {
			return
		}
		if p = o.find(launched); p.ended {
			return
		}
		p.ended = true
		if launched == o.completed+1 {
			phase = o.phase
		}
	}
	if p.captured && code == lifecycle.CodeOK {
		storeRelease(&c.slot.captured, c.slot.captured+1)
		c.putOp(kindOp, p, now, StageEnd, PhaseCaptured, -1, code)
	} else {
		c.putEnd(p, now, phase, code)
	}
	if code == lifecycle.CodeOK && p.call().IsCollective() && p.number > c.slot.done {
		storeRelease(&c.slot.done, p.number)
	}
	storeRelease(&c.slot.lastEnd, uint64(now))
	if alone { // a shortcut for retire and show
		o.completed, o.n = launched, 0
	} else {
		last := o.find(o.launched)
		o.retire(launched)
		if o.completed < o.launched {
			c.show(o.oldest())
		} else if launched < o.launched { // the slot shows one before the last
			c.show(last)
		}
	}
	if o.completed == o.launched {
		storeRelease(&c.slot.ended, o.launched)
	}
	runtime.KeepAlive(c)
}

// Passed records that all collectives up to number are done, for those that were not started and ended one by one. sig
// is the last one's signature. Close records it once more, for readers that come when the slot is gone. No operation
// may be in flight.
func (c *CommWriter) Passed(number uint64, sig *Signature) {
	if c == nil || number <= c.slot.done {
		return
	}
	now := Now()
	o := c.op
	o.launched += number - c.slot.done - 1
	o.completed = o.launched
	c.passed = pending{
		number: number, start: now, told: true, ended: true, peer: sig.Peer, kinds: packKinds(sig, 0), bytes: sig.Bytes,
	}
	*c.push() = c.passed
	storeRelease(&c.slot.begun, number)
	c.show(o.oldest())
	o.retire(o.launched)
	storeRelease(&c.slot.done, number)
	storeRelease(&c.slot.lastEnd, uint64(now))
	storeRelease(&c.slot.ended, o.launched)
	runtime.KeepAlive(c)
}

// push launches an operation and makes room for it.
func (c *CommWriter) push() *pending {
	o := c.op
	if o.n == maxPending {
		if p := o.at(0); !p.ended {
			c.tell(p) // before the operation is forgotten
			if o.launched-uint64(o.n) == o.completed {
				o.kept, o.keptLaunched = *p, o.completed+1
			}
		}
		o.pop()
	}
	o.launched++
	o.n++
	return o.at(o.n - 1)
}

// at returns the i-th known operation.
func (o *operations) at(i uint8) *pending { return &o.list[(o.head+i)%maxPending] }

// pop forgets the oldest known operation.
func (o *operations) pop() {
	o.n--
	o.head++
	if o.n == 0 {
		o.head = 0
	}
}

// find returns the n-th operation launched. If it is no longer known, the result has no signature, and its start is on
// the op ring.
func (o *operations) find(n uint64) *pending {
	if ago := o.launched - n; ago < uint64(o.n) {
		return o.at(o.n - 1 - uint8(ago))
	}
	return &pending{told: true}
}

// oldest returns the oldest operation in flight. Its signature is kept, however many follow it.
func (o *operations) oldest() *pending {
	if n := o.completed + 1; n == o.keptLaunched && o.launched-n >= uint64(o.n) {
		return &o.kept
	}
	return o.find(o.completed + 1)
}

// retire moves completed past the operations that have ended. Operations that are no longer known end in order.
func (o *operations) retire(last uint64) {
	was := o.completed
	for ; o.completed < o.launched; o.completed++ {
		if known := o.launched-o.completed <= uint64(o.n); known && !o.at(0).ended || !known && o.completed >= last {
			break
		} else if known {
			o.pop()
		}
	}
	if o.completed != was && (o.phase != PhaseNone || o.wait >= 0) { // both were of the operation that ended
		o.phase, o.wait, o.waitSince = PhaseNone, -1, 0
	}
}

func (p *pending) call() lifecycle.Call { return lifecycle.Call(uint8(p.kinds)) }

// show publishes the slot's latch, with p as the operation that runs.
func (c *CommWriter) show(p *pending) {
	o := c.op
	o.version++
	o.plain = p == &o.list[0] && o.launched == o.completed+1 && o.phase == PhaseNone && o.wait < 0
	to := (*record)(unsafe.Pointer(&c.slot.op[o.version&1])) // as large as a record
	kinds := p.kinds | uint64(o.phase)<<32 | min(o.launched-o.completed, maxInFlight)<<40
	ranks := pack32(p.peer, o.wait)
	store(to, uint64(o.version), 0, o.launched, p.number, kinds, ranks, p.bytes, uint64(p.start), uint64(o.waitSince))
}

// putEnd counts and writes an operation's end. An ordinary one is written on a page, which followers don't read, if
// there is room.
func (c *CommWriter) putEnd(p *pending, now int64, phase Phase, code lifecycle.Code) {
	kind := c.countInTally(p, now-p.start, code)
	if kind == kindOrdinary {
		if !c.sampled(p) && c.putOrdinary(p, now) {
			return
		}
		c.tally.tally.sampled++
	}
	c.putOp(kind, p, now, StageEnd, phase, -1, code)
}

// sampled tells whether followers see the end of an ordinary operation.
func (c *CommWriter) sampled(p *pending) bool {
	return c.w.every != 0 && sampled(c.seed, p.number, c.w.every)
}

// tell puts an operation's start onto the op ring, unless it is there, before the operation's first other record. So
// records with later times may come before the start.
func (c *CommWriter) tell(p *pending) {
	if !p.told {
		p.told = true
		c.putOp(kindOp, p, p.start, StageStart, PhaseNone, -1, 0)
	}
}

// tellFrom puts an operation's start onto the op ring, right behind its caller's record.
func (c *CommWriter) tellFrom(caller *SpanContext, p *pending) {
	p.told = true
	le := binary.LittleEndian
	g := &c.w.opRing
	first := g.reserve(2)
	trace, more, span := le.Uint64(caller.TraceID[:8]), le.Uint64(caller.TraceID[8:]), le.Uint64(caller.SpanID[:])
	store(g.at(first), first, kindCaller, uint64(p.start), trace, more, span, uint64(caller.Flags), p.number, c.comm)
	c.put(g.at(first+1), first+1, kindOp, p, p.start, StageStart, PhaseNone, -1, 0)
	c.w.wakeAtQuarter(first, 2)
}

// putOp writes a record of the op ring.
func (c *CommWriter) putOp(
	kind uint8, p *pending, at int64, stage Stage, phase Phase, wait int32, code lifecycle.Code,
) {
	index := c.w.opRing.reserve(1)
	c.put(c.w.opRing.at(index), index, kind, p, at, stage, phase, wait, code)
	c.w.wakeAtQuarter(index, 1)
}

// put writes a record of one moment of an operation.
func (c *CommWriter) put(
	to *record, index uint64, kind uint8, p *pending, at int64, stage Stage, phase Phase, wait int32,
	code lifecycle.Code,
) {
	kinds := p.kinds | uint64(phase)<<32 | uint64(stage)<<40 | uint64(code)<<48
	store(to, index, kind, uint64(at), p.number, kinds, pack32(p.peer, wait), p.bytes, uint64(p.start), c.comm)
}
