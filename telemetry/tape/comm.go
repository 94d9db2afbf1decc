package tape

import (
	"math"
	"runtime"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
)

// CommWriter writes the acts and operations of one communicator. Start, StartFrom, Messages, Phase, Wait, End, Began,
// Describe and Close are for one goroutine at a time, which the caller serialises: each call happens before the next.
// Operations take no lock, except for the first of a kind, which takes the Writer's. Life, From and State may be called
// from any goroutine at any time. All may be called after Close. The methods called for each operation or act don't
// allocate, unless more than 64 operations are in flight, or the communicator fails or ends. A nil *CommWriter is the
// tape switched off: every method is a no-op.
type CommWriter struct {
	w      *Writer
	number uint32 // from 1, in the order of Comm
	index  int    // in the table; -1: none
	comm   uint64 // number and index, as in records

	slot *slot // in the mapping; without a slot, or after Close, memory that nobody reads

	// For the goroutine that writes operations.
	op         *operations
	passed     pending // the last operation that Passed recorded; start 0: none
	deviceDone uint32  // the last kernel of a device that was seen to be done
	deviceRead uint32  // the last that was launched when its page was read
	tally      counting
	page       *page  // nil: none
	pageAt     uint64 // its index
	tallies    []heldTally
	seed       uint64 // of sampling
	messages   messageCounter

	// Invariant: slot, info and closed are changed by the goroutine that writes operations, under mu. So that goroutine
	// may read them without mu, others with it.
	mu     sync.Mutex
	info   CommInfo
	closed bool
	root   uint32 // under mu: the number of the communicator that it descends from; its own if none
	state  lifecycle.State
	// Under mu: the kinds of refused calls, and how often each was refused.
	refused [maxRefused]struct {
		misuse
		times uint32
	}
}

// misuse identifies refused calls of one kind; not all of these are recorded.
type misuse struct {
	call     lifecycle.Call
	code     lifecycle.Code
	function string
	line     int
}

// maxRefused is how many kinds of refused calls of a communicator are counted; further kinds share the last count.
const maxRefused = 16

// countRefused counts a refused call, and returns how often calls of its kind were refused.
func (c *CommWriter) countRefused(r *LifeRecord) uint32 {
	is := misuse{r.Call, r.Code, r.Site.Func, r.Site.Line}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	for i < maxRefused-1 && c.refused[i].times > 0 && c.refused[i].misuse != is {
		i++
	}
	of := &c.refused[i]
	of.misuse = is
	if of.times < math.MaxUint32 {
		of.times++
	}
	return of.times
}

// From notes that this rank made the communicator from parent, for instance by a split: both have the same root in the
// table.
func (c *CommWriter) From(parent *CommWriter) {
	if c == nil || parent == nil {
		return
	}
	parent.mu.Lock()
	root := parent.root
	parent.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.root = root
		c.showInfo(c.number)
		c.writeInfo(kindComm)
	}
}

// Graphs makes a communicator for the operations of c that graphs launch, which have no place in the order of c's
// calls. All ranks derive the same id for it. It may be used by another goroutine than c; close it before c.
func (c *CommWriter) Graphs() *CommWriter {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	info := c.info
	c.mu.Unlock()
	info.Parent, info.ID, info.Name = info.ID, lifecycle.GraphsCommID(info.ID), info.Name+" (graphs)"
	g := c.w.Comm(info)
	g.From(c)
	g.State(lifecycle.StateReady)
	return g
}

// Describe replaces the communicator's info, when more is known than at Comm: the number of nodes, the engine, the id.
func (c *CommWriter) Describe(info CommInfo) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.giveTallies() // the name may have changed
	c.info, c.seed = info, sampleSeed(info.ID)
	c.showInfo(c.number)
	c.writeInfo(kindComm)
}

// State puts the communicator's state into its slot. It makes no record; Life does.
func (c *CommWriter) State(s lifecycle.State) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.state != s {
		c.state = s
		c.showInfo(c.number)
	}
}

// Life writes one moment of an act. Long texts are cut (to 1024 bytes of Text, 160 of a site's function and file). Time
// 0 means now. If a follower sleeps, Life wakes it with a system call. Calls that are refused repeatedly are not all
// written; see LifeRecord.Refused.
func (c *CommWriter) Life(r LifeRecord) {
	if c == nil {
		return
	}
	if r.Stage == StageMisuse {
		if r.Times = c.countRefused(&r); r.Times&(r.Times-1) != 0 {
			return
		}
	}
	if r.Time == 0 {
		r.Time = Now()
	}
	if r.CountsMessages() {
		r.Messages = c.counts()
	}
	var buf [maxTail]byte
	tail := appendTail(buf[:0], &r)
	c.w.refreshClock(r.Time) // first: a follower that the record wakes reads the clocks, too
	c.w.putLife(kindLife, &record{
		recTime: uint64(r.Time),
		recLifeKinds: uint64(r.Act) | uint64(r.Call)<<8 | uint64(r.Stage)<<16 | uint64(r.Phase)<<24 |
			uint64(r.State)<<32 | uint64(r.Code)<<48,
		recLifePeer: pack32(r.Peer, int32(len(tail))),
		recLifeSeq:  r.Seq,
		recStart:    uint64(r.Start),
		recComm:     c.comm,
	}, tail)
	runtime.KeepAlive(c) // and so the mapping
}

// Close frees the communicator's slot. Later writes go to the rings alone.
func (c *CommWriter) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if p := c.passed; p.start != 0 { // only the slot has it
		at := p.start
		p.start = 0 // unknown, and so are the ends of those before it
		c.putOp(kindTallied, &p, at, StageEnd, PhaseNone, -1, lifecycle.CodeOK)
	}
	c.closed = true
	c.showInfo(0)
	c.writeInfo(kindCommEnd)
	c.slot, c.messages.of = new(slot), nil
	c.giveTallies()
	c.givePage()
	if c.index >= 0 {
		c.w.release(c.index)
	}
}

// showInfo publishes the communicator's info in the slot; number 0 frees the slot.
func (c *CommWriter) showInfo(number uint32) {
	state := commState{
		id: c.info.ID, parent: c.info.Parent, number: number, state: uint32(c.state), rank: int32(c.info.Rank),
		size: int32(c.info.Size), nodes: int32(c.info.Nodes), root: c.root,
	}
	putText(state.engine[:], c.info.Engine)
	putText(state.name[:], c.info.Name)
	c.slot.place.publish(c.info.Place.shown())
	c.slot.info.publish(state)
}

// writeInfo puts the communicator's info onto the life ring, for readers that come when its slot is gone.
func (c *CommWriter) writeInfo(kind uint8) {
	var buf [maxTail]byte
	tail := appendInfo(buf[:0], &c.info, c.root)
	c.w.putLife(kind, &record{
		recTime:      uint64(Now()),
		recLifeKinds: uint64(c.state) << 32,
		recLifePeer:  pack32(-1, int32(len(tail))),
		recComm:      c.comm,
	}, tail)
}
