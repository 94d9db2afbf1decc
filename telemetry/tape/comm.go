package tape

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
)

// CommWriter writes what one communicator does. Start, StartFrom, Phase, Wait, End, Describe and Close are for one goroutine at a time, the
// one whose turn the communicator's operations are: each call happens before the next. Those of operations take no lock, but for the first
// of a kind, which takes the Writer's. Life, From and State may be called from any goroutine at any time. All may be called after Close.
// Those that a communicator calls for each operation or act don't allocate, but for the first operation that is not alone in flight. A nil
// *CommWriter is the tape switched off: every method is a no-op.
type CommWriter struct {
	w      *Writer
	number uint32 // from 1, in the order of Comm
	index  int    // in the table; -1: none

	slot *[slotWords]uint64 // in the mapping; memory of no use to anybody without a slot or after Close, which saves asking

	// Of who has the turn.
	op      *operations
	last    counting
	page    openPage
	slow    int64    // as Writer's
	every   uint64   // as Writer's
	seed    uint64   // of sampling
	several *several // nil until there was more than one operation in flight
	tallies []heldTally

	// Invariant: slot, info and closed change by who has the turn, and under mu. So that one, or who holds mu, may read them.
	mu     sync.Mutex
	info   CommInfo
	closed bool
	root   uint32 // under mu: the number of the communicator that it descends from; its own if none
	state  lifecycle.State
}

// operations is what a CommWriter remembers of its operations. A rank that the scheduler moves to another core takes along what it writes,
// line by line of the cache, and that costs more than all instructions. So what an operation writes that is like the one before, and
// the only one in flight, is one line: the first.
type operations struct {
	launched, completed uint64 // all up to completed have ended
	number              uint64 // the ranks' name for the one that was launched last; if many, for any
	start               int64  // when the last one was launched
	lastEnd             int64
	pageNumber          uint64 // of the last operation on the page
	pageStart           int64  // of that one
	pageUsed            uint32 // words
	told                bool   // the op ring has the start of the only one in flight
	many                bool   // there was more than one in flight since there was none: see several

	kind      opKind // of the last one launched
	shown     uint64 // the slot's latch shows the operation with this pending.seq
	shownKind uint64 // with this opKind.id
	phase     Phase  // of the oldest in flight, as wait and waitSince
	wait      int32
	waitSince int64
}

// opKind is what operations have in common that are the same but for their number and time: most are like the one before.
type opKind struct {
	id    uint64 // two with one id are the same; two with different ones may be
	kinds uint64 // packKinds, less phase, stage and code
	bytes uint64
	peer  int32
}

// kindOf is the kind of an operation that is launched. It takes a pointer as packKinds does: a copy of a signature is read in wider pieces than
// it has just been written in, for which a processor has to wait.
func (o *operations) kindOf(sig *Signature, algorithm uint8) *opKind {
	k := &o.kind
	if kinds := packKinds(sig, algorithm); kinds != k.kinds || sig.Bytes != k.bytes || sig.Peer != k.peer {
		*k = opKind{id: k.id + 1, kinds: kinds, bytes: sig.Bytes, peer: sig.Peer}
	}
	return k
}

// single is the operation that is the only one in flight, or the last that was. Not if many.
func (o *operations) single() pending {
	return pending{seq: o.launched, number: o.number, start: o.start, opKind: o.kind, told: o.told}
}

// pending is an operation that was launched.
type pending struct {
	seq    uint64
	number uint64 // the ranks' name for it
	start  int64
	opKind
	told  bool // the op ring has its start
	ended bool
}

// maxInFlight is the most operations in flight that a slot can say: it has 24 bits for them.
const maxInFlight = 1<<24 - 1

// From says that this rank made the communicator from parent, by a split for instance: both have the same root in the table.
func (c *CommWriter) From(parent *CommWriter) {
	if c == nil || parent == nil {
		return
	}
	parent.mu.Lock()
	root := parent.root
	parent.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.root = root
	c.publishInfo(c.number)
}

// Describe adds what became known about the communicator since Comm: the number of nodes, the engine, a child's id. It replaces
// all of the info.
func (c *CommWriter) Describe(info CommInfo) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.giveTallies() // of another name, perhaps
	c.info, c.seed = info, sampleSeed(info.ID)
	c.publishInfo(c.number)
	c.writeInfo(kindComm)
}

// State puts the communicator's state into its slot. It makes no record: Life does.
func (c *CommWriter) State(s lifecycle.State) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.state == s {
		return
	}
	c.state = s
	c.publishInfo(c.number)
}

// Life writes one moment of an act. Texts beyond what is kept (1024 bytes of Text, 160 of a site's function and file) are cut. If Time
// is 0, it is now. It makes a system call if a follower sleeps, to wake it.
func (c *CommWriter) Life(r LifeRecord) {
	if c == nil {
		return
	}
	if r.Time == 0 {
		r.Time = Now()
	}
	var buf [maxTail]byte
	tail := appendTail(buf[:0], &r)
	words := [recordWords]uint64{
		recTime:      uint64(r.Time),
		recLifeKinds: uint64(r.Act) | uint64(r.Call)<<8 | uint64(r.Stage)<<16 | uint64(r.Phase)<<24 | uint64(r.State)<<32 | uint64(r.Code)<<48,
		recLifePeer:  pack32(r.Peer, int32(len(tail))),
		recLifeSeq:   r.Seq,
		recLifeStart: uint64(r.Start),
		recLifeComm:  pack32(int32(c.number), int32(c.index)),
	}
	c.w.refreshClock(r.Time) // first: who is woken by the record reads the clocks, too
	c.w.putLife(kindLife, &words, tail)
	runtime.KeepAlive(c) // and so the mapping
}

// Start launches the communicator's next operation. number is what its ranks agree to call it, see OpRecord.Seq; 0 is the same as
// launched, which is how many were launched with it, and by which End knows it. A nil CommWriter returns 0.
func (c *CommWriter) Start(number uint64, sig Signature, algorithm uint8) (launched uint64) {
	return c.StartFrom(nil, number, &sig, algorithm)
}

// StartFrom is Start for an operation that was called within a span, which becomes OpRecord.Caller of its start; nil is
// none. It keeps neither pointer.
func (c *CommWriter) StartFrom(caller *SpanContext, number uint64, sig *Signature, algorithm uint8) (launched uint64) {
	if c == nil {
		return 0
	}
	now := Now()
	o := c.op
	if o.launched != o.completed {
		return c.startAnother(now, caller, number, sig, algorithm)
	}
	o.launched++
	seq := o.launched
	if number == 0 {
		number = seq
	}
	o.number, o.start, o.told, o.many = number, now, false, false
	if kind := o.kindOf(sig, algorithm); kind.id == o.shownKind {
		c.repeat(seq, number, now)
	} else {
		p := o.single()
		c.publishOp(&p)
	}
	if caller != nil || c.index < 0 || c.closed {
		p := o.single()
		c.began(caller, &p)
		o.told = p.told
	}
	runtime.KeepAlive(c) // and so the mapping
	return seq
}

// began writes the start of an operation at once, if that must be: with its caller, or as no slot says that it is in flight.
func (c *CommWriter) began(caller *SpanContext, p *pending) {
	switch {
	case caller != nil:
		c.putStartFrom(caller, p)
	case c.index < 0 || c.closed:
		c.tell(p)
	}
}

// Began is when the operation that was launched last began, by Now; 0 if none is in flight. It belongs to who has the turn, as Start does.
func (c *CommWriter) Began() int64 {
	if c == nil || c.op.launched == c.op.completed {
		return 0
	}
	return c.op.start
}

// Phase says that the oldest operation in flight, which is the one that runs, went into another phase. Saying the same again costs
// next to nothing.
func (c *CommWriter) Phase(phase Phase) {
	if c == nil {
		return
	}
	if o := c.op; o.launched != o.completed && o.phase != phase {
		o.phase = phase
		c.putRunning(Now(), StagePhase)
	}
	runtime.KeepAlive(c)
}

// Wait says which rank the oldest operation in flight waits for, -1 for none. Saying the same again costs next to nothing.
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
		c.putRunning(now, StageWait)
	}
	runtime.KeepAlive(c)
}

// putRunning writes what has changed about the oldest operation in flight.
func (c *CommWriter) putRunning(now int64, stage Stage) {
	o := c.op
	if o.many {
		c.putChange(now, stage, c.oldest())
		return
	}
	p := o.single()
	c.putChange(now, stage, &p)
	o.told = p.told
}

func (c *CommWriter) putChange(now int64, stage Stage, p *pending) {
	c.publishOp(p)
	c.tell(p)
	c.putOp(kindOp, now, stage, p, c.op.phase, c.op.wait, 0)
}

// End says that the operation for which Start returned launched ended, and how. Operations may end in any order; the slot shows the oldest
// that is still in flight. Ending what is not in flight does nothing.
func (c *CommWriter) End(launched uint64, code lifecycle.Code) {
	if c == nil {
		return
	}
	now := Now()
	o := c.op
	if o.many || launched != o.completed+1 || launched != o.launched {
		c.endOneOf(launched, now, code)
		return
	}
	o.completed, o.lastEnd = launched, now
	if took := now - o.start; c.isOrdinary(took, code) && !c.samples(o.number) {
		c.last.add(o.kind.bytes, took, true)
		c.putOrdinary(&o.kind, o.number, o.start, now)
	} else {
		p := o.single()
		c.putEnd(&p, now, o.phase, code)
		if o.told { // else it had neither phase nor wait
			o.quiet()
		}
	}
	c.repeatEnd(launched, now)
	runtime.KeepAlive(c)
}

// isOrdinary says that the only operation in flight, which ends, is one that a follower need not see unless it is sampled, and its kind
// is counted.
func (c *CommWriter) isOrdinary(took int64, code lifecycle.Code) bool {
	return code == lifecycle.CodeOK && !c.op.told && 0 <= took && took < c.slow && c.last.kind == c.op.kind.id && c.last.words != nil
}

// putEnd counts and writes an operation's end.
func (c *CommWriter) putEnd(p *pending, now int64, phase Phase, code lifecycle.Code) {
	if kind := c.count(p, now-p.start, code); kind == kindPage {
		c.putOrdinary(&p.opKind, p.number, p.start, now)
	} else {
		c.putOp(kind, now, StageEnd, p, phase, -1, code)
	}
}

// quiet says that the operation that runs next has no phase yet, and waits for nobody.
func (o *operations) quiet() { o.phase, o.wait, o.waitSince = PhaseNone, -1, 0 }

// Close frees the communicator's slot. What is written later is in the rings alone.
func (c *CommWriter) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.publishInfo(0)
	c.writeInfo(kindCommEnd)
	c.slot = new([slotWords]uint64)
	c.giveTallies()
	if c.index >= 0 {
		c.w.release(c.index)
	}
}

// publishOp shows the operations in the slot, with p as the one that runs. It stores word by word, as putOp does: a block that
// is first put together and then copied costs twice as much, because the wider loads of the copy can't be served from the stores
// before them.
func (c *CommWriter) publishOp(p *pending) {
	o := c.op
	launched, completed := o.launched, o.completed
	kinds := p.kinds | uint64(o.phase)<<32 | min(launched-completed, maxInFlight)<<40
	ranks := pack32(p.peer, o.wait)
	number, bytes, start, lastEnd, waitSince := p.number, p.bytes, uint64(p.start), uint64(o.lastEnd), uint64(o.waitSince)

	control := &c.slot[slotOpLatch/wordSize]
	version := uint32(*control>>32) + 1
	to := (*[slotOpWords]uint64)(c.slot[slotOp/wordSize+int(version&1)*slotOpWords:])
	to[opLaunched], to[opNumber], to[opKinds], to[opRanks] = launched, number, kinds, ranks
	to[opBytes], to[opStart], to[opLastEnd], to[opWaitSince] = bytes, start, lastEnd, waitSince
	check := fold8(uint64(version), launched, number, kinds, ranks, bytes, start, lastEnd, waitSince)
	storeRelease(control, uint64(version)<<32|uint64(check))
	o.shown, o.shownKind = p.seq, p.id
}

// repeat shows that an operation runs, alone and with the signature that the latch shows: most are like the one before. The count is
// stored last, so that a process that is killed in between shows the one before. No reader takes the stores for one moment that come
// between two of its readings: each of these words only grows.
func (c *CommWriter) repeat(seq, number uint64, start int64) {
	r := (*[slotRepeatWords]uint64)(c.slot[slotRepeat/wordSize:])
	r[repStart], r[repNumber] = uint64(start), number
	storeRelease(&r[repLaunched], seq)
}

// repeatEnd shows that the operation that the slot shows has ended, and no other is in flight.
func (c *CommWriter) repeatEnd(seq uint64, end int64) {
	r := (*[slotRepeatWords]uint64)(c.slot[slotRepeat/wordSize:])
	r[repLastEnd] = uint64(end)
	storeRelease(&r[repEnded], seq)
}

// clearRepeat takes away what the slot's last owner left.
func (c *CommWriter) clearRepeat() { clear(c.slot[slotRepeat/wordSize:][:slotRepeatWords]) }

// count counts an operation that ended, if its tally is to count it, and says what kind of record its end has: it is on a page if no follower
// need see it.
func (c *CommWriter) count(p *pending, took int64, code lifecycle.Code) (kind uint8) {
	if code != lifecycle.CodeOK || p.id == 0 || took < 0 {
		return kindOp
	}
	t := &c.last
	if t.kind != p.id {
		c.countAs(p)
	}
	if t.words == nil {
		return kindOp
	}
	ordinary := !p.told && took < c.slow
	t.add(p.bytes, took, ordinary)
	switch {
	case !ordinary:
		return kindTallied
	case c.samples(p.number):
		t.words[tallySampled]++
		return kindOrdinary
	default:
		return kindPage
	}
}

// samples tells whether followers see the end of an operation that is nothing but ordinary.
func (c *CommWriter) samples(number uint64) bool {
	return c.every != 0 && sampled(c.seed, number, c.every)
}

// tell puts an operation's start into the op ring, unless it is there. An operation that never has to wait does without: the record
// of its end says when it began, and until then the slot does. So the record may come later than others of a later time.
func (c *CommWriter) tell(p *pending) {
	if p.told {
		return
	}
	p.told = true
	c.putOp(kindOp, p.start, StageStart, p, PhaseNone, -1, 0)
}

// putOp writes an op record.
func (c *CommWriter) putOp(kind uint8, now int64, stage Stage, p *pending, phase Phase, wait int32, code lifecycle.Code) {
	seq, bytes, time, start := p.number, p.bytes, uint64(now), uint64(p.start)
	kinds := p.kinds | uint64(phase)<<32 | uint64(stage)<<40 | uint64(code)<<48
	ranks := pack32(p.peer, wait)
	comm := pack32(int32(c.number), int32(c.index))

	g := &c.w.opRing
	index := atomic.AddUint64(g.head, 1) - 1
	to := (*[recordWords]uint64)(g.words[(index&g.mask)*recordWords:])
	to[recTime], to[recOpSeq], to[recOpKinds], to[recOpRanks] = time, seq, kinds, ranks
	to[recOpBytes], to[recOpStart], to[recOpComm] = bytes, start, comm
	check := fold7(uint64(uint32(index)), time, seq, kinds, ranks, bytes, start, comm)
	storeRelease(&to[recMarker], marker(index, kind, check))

	// A follower that sleeps is woken often enough not to miss any, and seldom enough to cost nothing.
	if quarter := (g.mask + 1) / 4; (index+1)&(quarter-1) == 0 {
		c.w.ringBell()
	}
}

// putStartFrom writes an operation's start with its caller's record before it. Both are reserved together, so that nothing comes
// between them.
func (c *CommWriter) putStartFrom(caller *SpanContext, p *pending) {
	p.told = true
	comm := pack32(int32(c.number), int32(c.index))
	g := &c.w.opRing
	index := atomic.AddUint64(g.head, 2) - 2
	le := binary.LittleEndian
	g.store(index, kindCaller, &[recordWords]uint64{
		recTime:            uint64(p.start),
		recCallerTrace:     le.Uint64(caller.TraceID[:8]),
		recCallerTrace + 1: le.Uint64(caller.TraceID[8:]),
		recCallerSpan:      le.Uint64(caller.SpanID[:]),
		recCallerFlags:     uint64(caller.Flags),
		recCallerSeq:       p.number,
		recOpComm:          comm,
	})
	g.store(index+1, kindOp, &[recordWords]uint64{
		recTime:    uint64(p.start),
		recOpSeq:   p.number,
		recOpKinds: p.kinds | uint64(StageStart)<<40,
		recOpRanks: pack32(p.peer, -1),
		recOpBytes: p.bytes,
		recOpStart: uint64(p.start),
		recOpComm:  comm,
	})
	if quarter := (g.mask + 1) / 4; (index+1)&(quarter-1) == 0 || (index+2)&(quarter-1) == 0 { // as in putOp
		c.w.ringBell()
	}
}

// publishInfo shows what the communicator is in the slot; number 0 frees it.
func (c *CommWriter) publishInfo(number uint32) {
	var b [slotInfoWords * wordSize]byte
	le := binary.LittleEndian
	copy(b[infoID*wordSize:], c.info.ID[:])
	copy(b[infoParent*wordSize:], c.info.Parent[:])
	le.PutUint64(b[infoNumber*wordSize:], uint64(number)|uint64(c.state)<<32)
	le.PutUint64(b[infoRank*wordSize:], pack32(int32(c.info.Rank), int32(c.info.Size)))
	le.PutUint64(b[infoNodes*wordSize:], pack32(int32(c.info.Nodes), int32(c.root)))
	putText(b[infoEngine*wordSize:], c.info.Engine, engineSize)
	putText(b[infoName*wordSize:], c.info.Name, nameSize)
	var words [slotInfoWords]uint64
	getWords(words[:], b[:])
	copies := c.slot[slotInfo/wordSize:][:2*slotInfoWords]
	publish(&c.slot[slotInfoLatch/wordSize], copies, words[:])
}

// writeInfo puts what the communicator is onto the life ring, so that the records of a communicator that is gone can still be
// told whose they were.
func (c *CommWriter) writeInfo(kind uint8) {
	var buf [maxTail]byte
	tail := appendInfo(buf[:0], &c.info)
	words := [recordWords]uint64{
		recTime:      uint64(Now()),
		recLifeKinds: uint64(c.state) << 32,
		recLifePeer:  pack32(-1, int32(len(tail))),
		recLifeComm:  pack32(int32(c.number), int32(c.index)),
	}
	c.w.putLife(kind, &words, tail)
}
