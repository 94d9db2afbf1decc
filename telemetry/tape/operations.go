package tape

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
)

// operations is what a CommWriter remembers of its operations. A rank that the scheduler moves to another processor
// takes along what it writes, line by line of the cache, and that costs more than all instructions. So what an
// operation writes that is like the one before, and the only one in flight, is the first line.
type operations struct {
	launched, completed uint64              // all up to completed have ended
	pageNumber          uint64              // of the last operation on the communicator's page
	pageStart           int64               // of that one
	pageUsed            uint32              // words
	n, head             uint8               // the last n that were launched are known: a queue in list, from head on
	plain               bool                // the slot's latch shows list[0], alone in flight, waiting for nobody
	phase               Phase               // of the oldest in flight
	list                [maxPending]pending // one that is alone in flight is the first

	waitSince int64
	version   uint32 // of the slot's latch
	wait      int32  // the rank that the oldest in flight waits for; -1: none
}

// pending is an operation that is in flight, or was a moment ago.
type pending struct {
	number uint64 // what the ranks call it
	start  int64
	told   bool // the op ring has its start
	ended  bool
	peer   int32
	kinds  uint64 // packKinds
	bytes  uint64
}

// maxPending is how many operations in flight are fully known; beyond, the oldest lose their signature. A power of two.
const maxPending = 64

// maxInFlight is the most operations in flight that a slot can tell: it has 24 bits for them.
const maxInFlight = 1<<24 - 1

// Start launches the communicator's next operation. number is what its ranks agree to call it, see OpRecord.Seq; 0 is
// the same as launched, which is how many were launched with it, and by which End knows it. A nil CommWriter returns
// 0.
func (c *CommWriter) Start(number uint64, sig Signature, algorithm uint8) (launched uint64) {
	return c.StartFrom(nil, number, &sig, algorithm)
}

// StartFrom is Start for an operation that was called within a span, which becomes OpRecord.Caller of its start; nil
// is none. It keeps neither pointer.
func (c *CommWriter) StartFrom(caller *SpanContext, number uint64, sig *Signature, algorithm uint8) (launched uint64) {
	if c == nil {
		return 0
	}
	now := Now()
	p, o := c.push(), c.op
	if number == 0 {
		number = o.launched
	}
	p.number, p.start, p.told, p.ended = number, now, false, false
	kinds := packKinds(sig, algorithm)
	repeats := o.plain && o.launched == o.completed+1 && kinds == p.kinds && sig.Bytes == p.bytes && sig.Peer == p.peer
	if !repeats {
		p.kinds, p.bytes, p.peer = kinds, sig.Bytes, sig.Peer
	}
	if sig.Call.IsCollective() {
		storeRelease(&c.slot.begun, number)
	}
	if repeats { // saves two lines of the cache, by turns
		storeRelease(&c.slot.number, number)
		storeRelease(&c.slot.start, uint64(now))
		storeRelease(&c.slot.launched, o.launched)
	} else {
		c.show(o.oldest())
	}
	switch {
	case caller != nil:
		c.tellFrom(caller, p)
	case c.index < 0 || c.closed: // no slot shows that it is in flight
		c.tell(p)
	}
	runtime.KeepAlive(c) // and so the mapping
	return o.launched
}

// Began is when the operation that was launched last began, by Now; 0 if none is in flight.
func (c *CommWriter) Began() int64 {
	if c == nil || c.op.launched == c.op.completed {
		return 0
	}
	return c.op.find(c.op.launched).start
}

// Phase says that the oldest operation in flight, which is the one that runs, went into another phase. Saying the
// same again costs next to nothing.
func (c *CommWriter) Phase(phase Phase) {
	if c == nil {
		return
	}
	if o := c.op; o.launched != o.completed && o.phase != phase {
		o.phase = phase
		c.changed(Now(), StagePhase)
	}
}

// Wait says which rank the oldest operation in flight waits for, -1 for none. Saying the same again costs next to
// nothing.
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

// changed writes what is new about the oldest operation in flight.
func (c *CommWriter) changed(now int64, stage Stage) {
	p := c.op.oldest()
	c.show(p)
	c.tell(p)
	c.putOp(kindOp, p, now, stage, c.op.phase, c.op.wait, 0)
	runtime.KeepAlive(c)
}

// End says that the operation for which Start returned launched ended, and how. Operations may end in any order; the
// slot shows the oldest that is still in flight. Ending what is not in flight does nothing.
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
	c.putEnd(p, now, phase, code)
	if code == lifecycle.CodeOK && p.call().IsCollective() && p.number > c.slot.done {
		storeRelease(&c.slot.done, p.number)
	}
	storeRelease(&c.slot.lastEnd, uint64(now))
	if alone { // as the rest would do it
		o.completed, o.n = launched, 0
	} else {
		last := o.find(o.launched)
		o.retire(launched)
		if o.completed < o.launched {
			c.show(o.oldest())
		} else if launched < o.launched { // the slot shows an older one than the last
			c.show(last)
		}
	}
	if o.completed == o.launched {
		storeRelease(&c.slot.ended, o.launched)
	}
	runtime.KeepAlive(c)
}

// push launches an operation and makes room for it.
func (c *CommWriter) push() *pending {
	o := c.op
	if o.n == maxPending {
		if p := o.at(0); !p.ended {
			c.tell(p) // before it is forgotten
		}
		o.pop()
	}
	o.launched++
	o.n++
	return o.at(o.n - 1)
}

// at is the i-th of the operations that are known.
func (o *operations) at(i uint8) *pending { return &o.list[(o.head+i)%maxPending] }

// pop forgets the oldest operation that is known.
func (o *operations) pop() {
	o.n--
	o.head++
	if o.n == 0 {
		o.head = 0
	}
}

// find is the n-th operation launched. One that is not known any more has no signature, and its start has been told.
func (o *operations) find(n uint64) *pending {
	if ago := o.launched - n; ago < uint64(o.n) {
		return o.at(o.n - 1 - uint8(ago))
	}
	return &pending{told: true}
}

// oldest is the oldest operation in flight.
func (o *operations) oldest() *pending { return o.find(o.completed + 1) }

// retire moves completed over the operations that have ended. Those that are not known any more end in order.
func (o *operations) retire(last uint64) {
	was := o.completed
	for ; o.completed < o.launched; o.completed++ {
		if known := o.launched-o.completed <= uint64(o.n); known && !o.at(0).ended || !known && o.completed >= last {
			break
		} else if known {
			o.pop()
		}
	}
	if o.completed != was && (o.phase != PhaseNone || o.wait >= 0) { // they were those of the operation that ended
		o.phase, o.wait, o.waitSince = PhaseNone, -1, 0
	}
}

func (p *pending) call() lifecycle.Call { return lifecycle.Call(uint8(p.kinds)) }

// show shows the operations in the slot, with p as the one that runs: it publishes the slot's latch.
func (c *CommWriter) show(p *pending) {
	o := c.op
	o.version++
	o.plain = p == &o.list[0] && o.launched == o.completed+1 && o.phase == PhaseNone && o.wait < 0
	to := (*record)(unsafe.Pointer(&c.slot.op[o.version&1])) // as large as a record
	kinds := p.kinds | uint64(o.phase)<<32 | min(o.launched-o.completed, maxInFlight)<<40
	ranks := pack32(p.peer, o.wait)
	store(to, uint64(o.version), 0, o.launched, p.number, kinds, ranks, p.bytes, uint64(p.start), uint64(o.waitSince))
}

// putEnd counts and writes an operation's end: an ordinary one where followers don't look, if there is room.
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

// sampled tells whether followers see the end of an operation that is nothing but ordinary.
func (c *CommWriter) sampled(p *pending) bool {
	return c.w.every != 0 && sampled(c.seed, p.number, c.w.every)
}

// tell puts an operation's start into the op ring, unless it is there: when it first has something to tell besides. So
// the record may come later than others of a later time.
func (c *CommWriter) tell(p *pending) {
	if !p.told {
		p.told = true
		c.putOp(kindOp, p, p.start, StageStart, PhaseNone, -1, 0)
	}
}

// tellFrom puts an operation's start into the op ring, right behind its caller's record.
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
