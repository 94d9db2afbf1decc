package tape

import (
	"cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Event is one record of a tape: a moment of an act if IsLife, otherwise a moment of an operation.
type Event struct {
	Comm       CommInfo // its ID is zero if the tape no longer describes the communicator
	Slot       int      // of the in-flight table; -1 if the table was full
	Generation uint32   // of the slot; unique among the communicators of the process
	Root       uint32   // as Slot.Root; its own Generation if the tape no longer describes the communicator
	IsLife     bool
	Life       LifeRecord
	Op         OpRecord
}

// Time is when it happened, by CLOCK_MONOTONIC in nanoseconds.
func (ev *Event) Time() int64 {
	if ev.IsLife {
		return ev.Life.Time
	}
	return ev.Op.Time
}

// Missed counts the records of each ring that a reader could not read: overwritten before the reader reached them, or
// torn.
type Missed struct {
	Life, Op uint64
}

// cursor merges the life ring and the op ring, in an order that keeps cause before effect: records of one goroutine
// stay in the order of writing, whichever ring they are on.
//
// For that, each life record holds the number of op records that were reserved when it was begun. Those op records come
// before it, the others after it. The writer read that number before it reserved the record, so op records that it
// wrote later have higher indices. And a cursor reads the op ring's head before the life ring's. So all life records
// that come before an op record below that head are known when the op record is delivered.
type cursor struct {
	t        *Reader
	life, op ringReader
	comms    directory
	now      changing // as of the last refresh

	held    bool   // event is a life record that waits for the op records before it
	heldAt  uint64 // the number of those
	event   Event
	tailBuf [maxTail]byte

	caller   SpanContext // of the operation whose start is the record with index callerAt
	callerAt uint64      // 0: none
	callerOf uint64      // the record's word recComm
}

// newCursor starts at the oldest records.
func newCursor(t *Reader) (*cursor, error) {
	c := &cursor{
		t:     t,
		life:  newRingReader(t, t.geo.lifeOffset(), t.geo.life),
		op:    newRingReader(t, t.geo.opOffset(), t.geo.op),
		comms: directory{t: t, known: make(map[uint32]description)},
	}
	if err := c.refresh(); err != nil {
		return nil, err
	}
	return c, c.learn()
}

// learn reads all descriptions on the tape, for records that come before their communicator's description.
func (c *cursor) learn() error {
	for _, s := range c.t.Slots() { // corrupt ones are left out: the rings may be whole
		c.comms.add(s.Generation, description{s.CommInfo, s.Root})
	}
	scan := newRingReader(c.t, c.life.off, c.t.geo.life)
	scan.head, scan.final = c.life.head, true
	for {
		var ev Event
		var info description
		var r record
		kind, f, err := c.read(&scan, &r, &ev.Life, &info)
		if err != nil || f == nothing {
			return err
		}
		if f == whole && (kind == kindComm || kind == kindCommEnd) {
			c.comms.add(uint32(r[recComm]), info)
		}
	}
}

// refresh reads the changing part of the header, and with it how far the writer has come.
func (c *cursor) refresh() (err error) {
	if c.now, err = c.t.readChanging(); err != nil {
		return err
	}
	if c.now.opHead == c.op.head && c.now.lifeHead == c.life.head {
		return nil
	}
	later, err := c.t.readChanging() // the words of one reading have no order; see cursor
	return cmp.Or(err, c.op.advance(c.now.opHead), c.life.advance(later.lifeHead))
}

func (c *cursor) missed() Missed { return Missed{Life: c.life.missed, Op: c.op.missed} }

// finish tells the cursor that the writer writes no more.
func (c *cursor) finish() { c.life.final, c.op.final = true, true }

// next delivers the next event into ev; ok is false if the last refresh showed none.
func (c *cursor) next(ev *Event) (ok bool, err error) {
	for refreshed := false; ; {
		if !c.held {
			f, err := c.readLife()
			if err != nil {
				return false, err
			}
			if f != nothing {
				continue
			}
			if c.life.next != c.life.head {
				return false, nil // a life record is being written
			}
		}
		if c.op.next != c.op.head && (!c.held || c.op.next < c.heldAt) {
			f, err := c.readOp(ev)
			if f == skipped && err == nil {
				continue
			}
			return f == whole, err
		}
		switch {
		case !c.held:
			return false, nil
		// After a refresh, op records that come before the held one are missing only if the tape is corrupt.
		case c.op.next >= c.heldAt || refreshed:
			c.held = false
			*ev = c.event
			c.t.sites.name(&ev.Life.Site)
			c.t.sites.name(&ev.Life.First)
			return true, nil
		}
		if err := c.refresh(); err != nil {
			return false, err
		}
		refreshed = true
	}
}

// readOp delivers the next op record.
func (c *cursor) readOp(ev *Event) (found, error) {
	var r record
	if f, err := c.op.peek(&r); f != whole || err != nil {
		return f, err
	}
	index := c.op.next
	c.op.next++
	switch kindOf(r[recMarker]) {
	case kindOp, kindTallied, kindOrdinary:
	case kindCaller:
		c.holdCaller(&r)
		return skipped, nil
	default:
		return skipped, nil // a kind that this reader does not know
	}
	if err := c.operation(&r, ev); err != nil {
		return nothing, err
	}
	if c.callerAt == index && index != 0 && c.callerOf == r[recComm] && ev.Op.Stage == StageStart {
		ev.Op.Caller = c.caller
	}
	return whole, nil
}

// operation decodes an op record.
func (c *cursor) operation(r *record, ev *Event) error {
	if ev.IsLife {
		ev.Life, ev.IsLife = LifeRecord{}, false
	}
	kinds, kind := r[recKinds], kindOf(r[recMarker])
	ev.Op = OpRecord{
		Time:      int64(r[recTime]),
		Stage:     Stage(kinds >> 40),
		Seq:       r[recSeq],
		Signature: unpackSignature(kinds, r[recRanks], r[recBytes]),
		Algorithm: uint8(kinds >> 24),
		Phase:     Phase(kinds >> 32),
		Wait:      high32(r[recRanks]),
		Code:      lifecycle.Code(kinds >> 48),
		Start:     int64(r[recStart]),
		Tallied:   kind == kindTallied || kind == kindOrdinary,
		Ordinary:  kind == kindOrdinary,
	}
	return c.fillComm(ev, r[recComm])
}

// holdCaller keeps the caller of the operation whose start comes next.
func (c *cursor) holdCaller(r *record) {
	copy(c.caller.TraceID[:], bytesOf(r[recCallerTrace:]))
	copy(c.caller.SpanID[:], bytesOf(r[recCallerSpan:]))
	c.caller.Flags = byte(r[recCallerFlags])
	c.callerAt, c.callerOf = c.op.next, r[recComm]
}

// readLife reads the next record of the life ring, and holds it if it is an event.
func (c *cursor) readLife() (found, error) {
	ev := Event{IsLife: true}
	var info description
	var r record
	kind, f, err := c.read(&c.life, &r, &ev.Life, &info)
	if f != whole || err != nil {
		return f, err
	}
	switch kind {
	case kindComm:
		c.comms.add(uint32(r[recComm]), info)
	case kindLife:
		kinds := r[recLifeKinds]
		ev.Life.Time = int64(r[recTime])
		ev.Life.Act = Act(kinds)
		ev.Life.Call = lifecycle.Call(kinds >> 8)
		ev.Life.Stage = Stage(kinds >> 16)
		ev.Life.Phase = Phase(kinds >> 24)
		ev.Life.State = lifecycle.State(kinds >> 32)
		ev.Life.Code = lifecycle.Code(kinds >> 48)
		ev.Life.Peer = low32(r[recLifePeer])
		ev.Life.Seq = r[recLifeSeq]
		ev.Life.Start = int64(r[recStart])
		c.event, c.held, c.heldAt = ev, true, r[recLifeOpHead]
		return whole, c.fillComm(&c.event, r[recComm])
	}
	return whole, nil
}

// read reads the next record of a life ring with its tail.
func (c *cursor) read(
	g *ringReader, r *record, life *LifeRecord, info *description,
) (kind uint8, f found, err error) {
	if f, err := g.peek(r); f != whole || err != nil {
		return 0, f, err
	}
	kind = kindOf(r[recMarker])
	if kind == kindContinue { // the record that it continues was overwritten
		g.skip(1)
		return kind, skipped, nil
	}
	tail, ok, err := g.tail(r, &c.tailBuf)
	if !ok || err != nil {
		return kind, skipped, err
	}
	if !readTail(tail, life, info) {
		g.missed++
		return kind, skipped, nil
	}
	return kind, whole, nil
}

// fillComm fills in the communicator of a record.
func (c *cursor) fillComm(ev *Event, comm uint64) error {
	ev.Generation, ev.Slot = uint32(comm), int(high32(comm))
	info, err := c.comms.find(ev.Generation, ev.Slot)
	ev.Comm, ev.Root = info.CommInfo, info.root
	return err
}

// directory holds the descriptions of a tape's communicators by their numbers, of at least the last maxKnown: late
// records may be about communicators that have ended.
type directory struct {
	t            *Reader
	known, older map[uint32]description
	slot         [1]slot // scratch
}

// maxKnown bounds the memory of a reader, for a long-lived process or a corrupt tape.
const maxKnown = 1 << 14

func (d *directory) add(number uint32, info description) {
	if info.root == 0 {
		info.root = number
	}
	if len(d.known) >= maxKnown {
		d.known, d.older = make(map[uint32]description), d.known
	}
	d.known[number] = info
}

// find looks up a communicator, finally in the in-flight table. The description of an unknown one is zero.
func (d *directory) find(number uint32, slot int) (description, error) {
	if info, ok := d.known[number]; ok {
		return info, nil
	}
	info, ok := d.older[number]
	if !ok && slot >= 0 && slot < d.t.geo.slots {
		if err := d.t.readAt(bytesOf(d.slot[:]), d.t.geo.slotOffset()+int64(slot)*slotSize); err != nil {
			return description{}, err
		}
		if s, whole := decodeSlot(slot, &d.slot[0], texts{}); whole && s.Generation == number {
			info = description{s.CommInfo, s.Root}
		}
	}
	d.add(number, info)
	return d.known[number], nil
}
