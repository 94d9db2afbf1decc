package tape

import (
	"cmp"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
)

// slotBatch is how many slots are read at a time.
const slotBatch = 64

// Slots returns the live communicators; of a dead process, those that were live when it died. Slots that can't be read
// are left out; AppendSlots says why.
func (t *Reader) Slots() []Slot {
	slots, _ := t.AppendSlots(nil)
	return slots
}

// AppendSlots appends the live communicators to slots, each as one consistent moment. Corrupt ones are left out; the
// error has a *FormatError for each.
func (t *Reader) AppendSlots(slots []Slot) ([]Slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table, t.again = make([]slot, slotBatch), make([]slot, slotBatch)
		n := min(t.geo.marked, slotBatch)
		t.marked, t.reached = make([]marked, n), make([]reached, n)
		t.devices = make([]DevicePage, min(t.geo.devices, slotBatch))
	}
	var errs []error
	for from := 0; from < t.geo.slots; from += slotBatch {
		n := min(slotBatch, t.geo.slots-from)
		table, again := t.table[:n], t.again[:n]
		at := t.geo.slotOffset() + int64(from)*slotSize
		if err := t.readAt(bytesOf(table), at); err != nil {
			return slots, err
		}
		used := n
		for used > 0 && !everUsed(&table[used-1]) {
			used--
		}
		if used == 0 {
			break // a writer takes slots in order: later ones were never used either
		}
		// A latch's check proves that the latch is whole; an equal second reading, that all parts are of one moment.
		if err := cmp.Or(t.readAt(bytesOf(again), at), t.readMarks(from, used)); err != nil {
			return slots, err
		}
		for i := range used {
			if !everUsed(&table[i]) {
				continue
			}
			s, live, err := t.readSlot(from+i, table[i:][:1], again[i:][:1])
			switch {
			case err != nil:
				errs = append(errs, err)
				continue
			case !live:
				continue
			case from+i < t.geo.marked:
				s.applyMarks(&t.marked[i].marks, t.progress(from+i, i))
				s.applyMessages(&t.marked[i])
			}
			slots = append(slots, s)
		}
	}
	return slots, errors.Join(errs...)
}

// readMarks reads the marks of a batch of slots, and then which marks were reached, in this order, so that no mark is
// newer than the reached numbers.
func (t *Reader) readMarks(from, n int) error {
	if n = min(n, t.geo.marked-from); n <= 0 {
		return nil
	}
	devices := max(min(n, t.geo.devices-from), 0)
	return cmp.Or(
		t.readAt(bytesOf(t.marked[:n]), t.geo.marksOffset()+int64(from)*marksSize),
		t.readAt(bytesOf(t.reached[:n]), t.geo.reachedOffset()+int64(from)*wordSize),
		t.readAt(bytesOf(t.devices[:devices]), t.geo.deviceOffset()+int64(from)*devicePageSize),
	)
}

// progress is how far a device has got through a slot's marks.
type progress struct {
	reached, begun uint32 // the last marks that it wrote behind and before an operation
	waits          bool   // the oldest unfinished operation runs, and waits for peer
	peer           int32
}

// progress returns the progress of a slot, the i-th of its batch.
func (t *Reader) progress(slot, i int) progress {
	p := progress{uint32(t.reached[i]), uint32(t.reached[i] >> 32), false, -1}
	if slot < t.geo.devices {
		p.reached = t.devices[i].Done()
		var word DeviceWord
		word, p.waits = t.devices[i].Waits()
		p.peer = word.Peer
	}
	return p
}

// applyMarks takes the oldest operation whose mark the stream has not reached as the one in flight. If there is none,
// and the last operation has no mark, the slot is unproven.
func (s *Slot) applyMarks(of *marks, device progress) {
	var oldest, newest, waits, proof *record
	var number, last, proved uint32
	marked := uint64(0) // operations up to the newest mark
	for i := range of {
		r := &of[i]
		n := uint32(r[recMarker] >> 32)
		switch {
		case uint32(r[recComm]) != s.Generation:
			continue
		case r[recMarker] == marker(uint64(n), kindWait, r[1:]):
			waits = r
			continue
		case r[recMarker] != marker(uint64(n), kindMark, r[1:]):
			continue
		}
		s.Marked = true
		marked = max(marked, r[recMarkLaunched])
		if newest == nil || int32(n-last) > 0 {
			newest, last = r, n
		}
		if int32(n-device.reached) > 0 {
			if oldest == nil || int32(number-n) > 0 {
				oldest, number = r, n
			}
		} else if proof == nil || int32(n-proved) > 0 {
			proof, proved = r, n
		}
	}
	if proof != nil {
		s.Proven = s.begunAt(proof)
	}
	if s.Marked {
		s.CallStart, s.Stream = s.OpStart, uint32(newest[recKinds]>>40)
		s.Progress = uint64(device.begun)<<32 | uint64(device.reached)
	}
	if oldest == nil || oldest[recMarkLaunched] == 0 {
		s.Unproven = s.Marked && s.Launched == s.Completed && marked < s.Launched
		return
	}
	done := s.begunAt(oldest)
	s.Launched = max(s.Launched, oldest[recMarkLaunched]) // the mark may be newer
	s.Completed = min(s.Completed, oldest[recMarkLaunched]-1)
	s.Seq, s.OpStart = oldest[recSeq], int64(oldest[recTime])
	s.Op = unpackSignature(oldest[recKinds], oldest[recMarkRanks], oldest[recBytes])
	s.Algorithm, s.Phase, s.Wait, s.WaitSince = uint8(oldest[recKinds]>>24), PhaseStream, -1, 0
	s.Stream = uint32(oldest[recKinds] >> 40)
	told := Phase(oldest[recKinds]>>32) == PhaseQueued
	s.Reached = told && int32(number-device.begun) <= 0
	switch {
	case device.waits:
		s.Phase, s.Wait, s.WaitSince = PhaseTransfer, device.peer, s.OpStart
	case told && !s.Reached:
		s.Phase = PhaseQueued
	case waits != nil && waits[recMarkLaunched] == oldest[recMarkLaunched] && high32(waits[recMarkRanks]) >= 0:
		s.Phase, s.Wait = Phase(waits[recKinds]>>32), high32(waits[recMarkRanks])
		s.WaitSince = int64(waits[recTime])
	}
	if s.Op.Call.IsCollective() {
		done--
	}
	s.Done = min(s.Done, done)
}

// begunAt returns the number of the last collective that the rank had begun when it launched a mark's operation. The
// mark holds the low half of that number.
func (s *Slot) begunAt(mark *record) uint64 {
	return s.Begun - uint64(int64(int32(uint32(s.Begun)-uint32(high32(mark[recMarkRanks])))))
}

// applyMessages reads the counts of messages.
func (s *Slot) applyMessages(of *marked) {
	own := func(p *peer) bool { return uint32(p.rank>>32) == s.Generation }
	s.Counted = own(&of.counted) && low32(of.counted.rank) == -1
	if !s.Counted {
		return
	}
	for i := range of.peers {
		p := &of.peers[i]
		if !own(p) {
			break
		}
		s.Messages[i] = PeerMessages{low32(p.rank), uint32(p.counts), uint32(p.counts >> 32)}
	}
}

// everUsed tells whether a slot ever had a communicator: a latch's first version is in its second copy.
func everUsed(s *slot) bool { return s.op[1].marker != 0 }

// slotTries bounds how often a busy slot is read again. After that, a whole reading is accepted: its parts are of one
// owner.
const slotTries = 64

// readSlot decodes a slot that was read twice, and reads it again until two readings agree.
func (t *Reader) readSlot(index int, now, again []slot) (s Slot, live bool, err error) {
	for try := 0; ; try++ {
		s, whole := decodeSlot(index, &now[0], t.texts)
		next, nextWhole := decodeSlot(index, &again[0], t.texts)
		if whole && (nextWhole && s == next || try >= slotTries) {
			return s, s.Generation != 0, nil
		}
		if try >= 2*slotTries {
			return Slot{}, false, t.malformed("has a corrupt slot %d: its checks don't fit", index)
		}
		runtime.Gosched()
		now, again = again, now
		if err := t.readAt(bytesOf(again), t.geo.slotOffset()+int64(index)*slotSize); err != nil {
			return Slot{}, false, err
		}
	}
}

// decodeSlot decodes a slot; Generation is 0 if it is free. whole is false if a check doesn't match.
func decodeSlot(index int, from *slot, texts texts) (s Slot, whole bool) {
	_, info, infoOK := from.info.current()
	_, op, opOK := from.op.current()
	_, place, placeOK := from.place.current() // zero if the writer is in C, which knows no place
	whole = infoOK && opOK && placeOK
	if !whole || info.number == 0 {
		return Slot{}, whole
	}
	kinds := op.kinds
	s = Slot{
		CommInfo: CommInfo{
			ID: info.id, Parent: info.parent, Name: texts.read(info.name[:]), Engine: texts.read(info.engine[:]),
			Rank: int(info.rank), Size: int(info.size), Nodes: int(info.nodes),
			Place: place.place(),
		},
		Index: index, Generation: info.number, Root: info.root, State: lifecycle.State(info.state),
		Launched: op.launched, Completed: op.launched - kinds>>40, Begun: from.begun, Done: from.done,
		Seq: op.number, Op: unpackSignature(kinds, op.ranks, op.bytes), Algorithm: uint8(kinds >> 24),
		OpStart: int64(op.start), LastEnd: int64(from.lastEnd),
		Phase: Phase(kinds >> 32), Wait: high32(op.ranks), WaitSince: int64(op.waitSince), Captured: from.captured,
	}
	if from.launched > s.Launched {
		s.Launched, s.Completed = from.launched, from.launched-1
		s.Seq, s.OpStart = from.number, int64(from.start)
	}
	if from.ended >= s.Launched {
		s.Completed, s.Phase, s.Wait, s.WaitSince = s.Launched, PhaseNone, -1, 0
	}
	return s, true
}

func unpackSignature(kinds, ranks, bytes uint64) Signature {
	return Signature{
		Call:      lifecycle.Call(kinds),
		DataType:  uint8(kinds >> 8),
		Reduction: uint8(kinds >> 16),
		Peer:      low32(ranks),
		Bytes:     bytes,
	}
}
