package tape

import (
	"encoding/binary"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Event is one record of a tape: a moment of an act if IsLife, else a moment of an operation.
type Event struct {
	Comm       CommInfo // whose; its ID is zero if the tape does not know any more
	Slot       int      // of the in-flight table; -1 if the table was full
	Generation uint32   // of the slot; no other communicator of the process ever has the same
	IsLife     bool
	Life       LifeRecord
	Op         OpRecord
}

// Missed counts the records of each ring that a reader could not read: overwritten before it came to them, or torn.
type Missed struct {
	Life, Op uint64
}

// cursor walks over both rings at once, in an order that keeps cause before effect: what one goroutine wrote earlier comes earlier,
// whichever ring it is on.
//
// For that, each life record says how many op records were reserved when it was begun. Those come before it, the others after.
// It read that number before it reserved its own place, so what comes after it, or after any record behind it, has a higher one.
// And a cursor reads the op ring's head before the life ring's: then all life records that come before an op record below that
// head are known when it is delivered.
type cursor struct {
	t        *file
	life, op ringReader
	comms    directory
	now      moment // when refresh was called last
	sparing  bool   // next looks for new records only where the order demands it; who calls it refreshes

	held    bool   // event is a life record that waits for the op records before it
	heldAt  uint64 // how many
	event   Event
	tailBuf [maxTail]byte

	caller   SpanContext // of the operation whose start is the record with index callerAt
	callerAt uint64      // 0: none
	callerOf uint64      // the record's word recOpComm
}

// newCursor starts at the oldest records, or behind the newest.
func newCursor(t *file, fromNow bool) (*cursor, error) {
	c := &cursor{
		t:     t,
		life:  newRingReader(t, t.geo.lifeOffset(), t.geo.life),
		op:    newRingReader(t, t.geo.opOffset(), t.geo.op),
		comms: directory{t: t, known: make(map[uint32]CommInfo)},
	}
	c.life.behind, c.op.behind = c.refresh, c.refresh
	if err := c.refresh(); err != nil {
		return nil, err
	}
	if err := c.learn(); err != nil {
		return nil, err
	}
	if fromNow {
		c.life.next, c.op.next = c.life.head, c.op.head
	}
	return c, nil
}

// learn finds out which communicators the tape knows, so that also the records of one whose description is written further on are
// told whose they are.
func (c *cursor) learn() error {
	slots, _ := c.t.appendSlots(nil) // one that is corrupt is told to who asks for slots; the rings may be whole
	for _, s := range slots {
		c.comms.add(s.Generation, s.CommInfo)
	}
	scan := newRingReader(c.t, c.life.off, c.t.geo.life)
	scan.head, scan.final, scan.behind = c.life.head, true, scan.refresh
	var r [recordWords]uint64
	for {
		f, err := scan.peek(&r)
		switch {
		case err != nil:
			return err
		case f == nothing:
			return nil
		case f == skipped:
			continue
		}
		kind := uint8(r[recMarker] >> 24)
		if kind == kindContinue {
			scan.next++
			continue
		}
		tail, ok, err := scan.tail(&r, c.tailBuf[:])
		if err != nil {
			return err
		}
		var info CommInfo
		var ignored LifeRecord
		if ok && (kind == kindComm || kind == kindCommEnd) && readTail(tail, &ignored, &info) {
			c.comms.add(uint32(r[recLifeComm]), info)
		}
	}
}

// refresh reads how far the writer is, and the rest of the header that changes with it.
func (c *cursor) refresh() (err error) {
	if c.now, err = c.t.readMoment(); err != nil {
		return err
	}
	if c.now.word(hdrOpHead) == c.op.head && c.now.word(hdrLifeHead) == c.life.head {
		return nil
	}
	// One after the other, because nothing is said about the order within one reading.
	if err := c.op.refresh(); err != nil { // first; see cursor
		return err
	}
	return c.life.refresh()
}

func (c *cursor) missed() Missed { return Missed{Life: c.life.missed, Op: c.op.missed} }

// finish says that nothing is written any more.
func (c *cursor) finish() { c.life.final, c.op.final = true, true }

// next delivers the next event into ev. ok is false if there is none now, or, of a sparing cursor, if there was none when it was
// refreshed last.
func (c *cursor) next(ev *Event) (ok bool, err error) {
	for refreshed := false; ; {
		blocked := false // by a life record that is being written
		if !c.held {
			f, err := c.readLife()
			if err != nil {
				return false, err
			}
			if f != nothing {
				refreshed = refreshed && !c.held // it may know of operations that came after
				continue
			}
			blocked = c.life.next != c.life.head
		}
		if c.op.next != c.op.head && !blocked && (!c.held || c.op.next < c.heldAt) {
			f, err := c.readOp(ev)
			if f == skipped && err == nil {
				continue
			}
			return f == record, err
		}
		// A life record can't be written before operations that don't exist, unless the tape is corrupt; then it is next.
		if c.held && (c.op.next >= c.heldAt || refreshed) {
			c.held = false
			*ev = c.event
			return true, nil
		}
		if refreshed || blocked || c.sparing && !c.held {
			return false, nil
		}
		if err := c.refresh(); err != nil {
			return false, err
		}
		refreshed = true
	}
}

// readOp delivers the next op record.
func (c *cursor) readOp(ev *Event) (found, error) {
	var r [recordWords]uint64
	if f, err := c.op.peek(&r); f != record || err != nil {
		return f, err
	}
	index := c.op.next
	c.op.next++
	switch uint8(r[recMarker] >> 24) {
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
	if c.callerAt == index && index != 0 && c.callerOf == r[recOpComm] && ev.Op.Stage == StageStart {
		ev.Op.Caller = c.caller
	}
	return record, nil
}

// operation decodes an op record.
func (c *cursor) operation(r *[recordWords]uint64, ev *Event) error {
	if ev.IsLife {
		ev.Life, ev.IsLife = LifeRecord{}, false
	}
	if err := c.whose(ev, r[recOpComm]); err != nil {
		return err
	}
	kinds, kind := r[recOpKinds], uint8(r[recMarker]>>24)
	ev.Op = OpRecord{
		Time:      int64(r[recTime]),
		Stage:     Stage(kinds >> 40),
		Seq:       r[recOpSeq],
		Signature: unpackSignature(kinds, r[recOpRanks], r[recOpBytes]),
		Algorithm: uint8(kinds >> 24),
		Phase:     Phase(kinds >> 32),
		Wait:      high32(r[recOpRanks]),
		Code:      lifecycle.Code(kinds >> 48),
		Start:     int64(r[recOpStart]),
		Tallied:   kind == kindTallied || kind == kindOrdinary,
		Ordinary:  kind == kindOrdinary,
	}
	return nil
}

// holdCaller keeps the caller of the operation whose start comes next.
func (c *cursor) holdCaller(r *[recordWords]uint64) {
	le := binary.LittleEndian
	le.PutUint64(c.caller.TraceID[:8], r[recCallerTrace])
	le.PutUint64(c.caller.TraceID[8:], r[recCallerTrace+1])
	le.PutUint64(c.caller.SpanID[:], r[recCallerSpan])
	c.caller.Flags = byte(r[recCallerFlags])
	c.callerAt, c.callerOf = c.op.next, r[recOpComm]
}

// readLife reads the next record of the life ring, and holds it if it is an event.
func (c *cursor) readLife() (found, error) {
	var r [recordWords]uint64
	if f, err := c.life.peek(&r); f != record || err != nil {
		return f, err
	}
	kind := uint8(r[recMarker] >> 24)
	if kind == kindContinue { // what it continues was overwritten
		c.life.skip(1)
		return skipped, nil
	}
	tail, ok, err := c.life.tail(&r, c.tailBuf[:])
	if !ok || err != nil {
		return skipped, err
	}
	number := uint32(r[recLifeComm])
	ev := Event{IsLife: true}
	var info CommInfo
	if !readTail(tail, &ev.Life, &info) {
		c.life.missed++
		return skipped, nil
	}
	switch kind {
	case kindComm:
		c.comms.add(number, info)
	case kindCommEnd:
		c.comms.end(number)
	case kindLife:
		if err := c.whose(&ev, r[recLifeComm]); err != nil {
			return nothing, err
		}
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
		ev.Life.Start = int64(r[recLifeStart])
		c.event, c.held, c.heldAt = ev, true, r[recLifeOpHead]
	}
	return record, nil
}

// whose fills in the communicator of a record.
func (c *cursor) whose(ev *Event, comm uint64) error {
	number, slot := uint32(comm), int(high32(comm))
	info, err := c.comms.find(number, slot)
	ev.Comm, ev.Slot, ev.Generation = info, slot, number
	return err
}
