package tape

import (
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
)

// slotBatch is how many slots are read at a time.
const slotBatch = 64

// Slots returns the live communicators: of a dead process, those that were live when it died. What can't be read is
// left out; AppendSlots says why.
func (t *file) Slots() []Slot {
	slots, _ := t.AppendSlots(nil)
	return slots
}

// AppendSlots appends the live communicators to slots, each as one consistent moment. Corrupt ones are left out, and
// in the error, a *FormatError each.
func (t *file) AppendSlots(slots []Slot) ([]Slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table = make([]byte, slotBatch*slotSize)
		t.again = make([]byte, slotBatch*slotSize)
	}
	var errs []error
	for from := 0; from < t.geo.slots; from += slotBatch {
		n := min(slotBatch, t.geo.slots-from)
		table, again := t.table[:n*slotSize], t.again[:n*slotSize]
		at := t.geo.slotOffset() + int64(from)*slotSize
		if err := t.readAt(table, at); err != nil {
			return slots, err
		}
		if !anyUsed(table) {
			break // a writer takes slots in order: those behind were never used either
		}
		// Each latch of a slot proves by itself that it is whole. That all is of one moment shows in that a second
		// reading says the same.
		if err := t.readAt(again, at); err != nil {
			return slots, err
		}
		for i := range n {
			b := table[i*slotSize:][:slotSize]
			if !anyUsed(b) {
				continue
			}
			s, live, err := t.readSlot(from+i, b, again[i*slotSize:][:slotSize])
			if err != nil {
				errs = append(errs, err)
			} else if live {
				slots = append(slots, s)
			}
		}
	}
	return slots, errors.Join(errs...)
}

// anyUsed says whether any of these slots has ever had a communicator. The first version of a latch is in its second
// copy.
func anyUsed(slots []byte) bool {
	for ; len(slots) > 0; slots = slots[slotSize:] {
		if binary.LittleEndian.Uint64(slots[slotOp+recordSize:]) != 0 {
			return true
		}
	}
	return false
}

// slotTries bounds how often a slot is read again that changes all the time. A communicator that is busier than that
// has one owner all along, and so its parts still belong together.
const slotTries = 64

// readSlot decodes a slot that was read twice.
func (t *file) readSlot(index int, b, again []byte) (s Slot, live bool, err error) {
	texts := textsOf(&t.texts, index)
	for try := 0; ; try++ {
		s, whole := decodeSlot(index, b, texts)
		next, nextWhole := decodeSlot(index, again, texts)
		if whole && (nextWhole && s == next || try >= slotTries) {
			return s, s.Generation != 0, nil
		}
		if try >= 2*slotTries {
			return Slot{}, false, t.malformed("has a corrupt slot %d: its checks don't fit", index)
		}
		runtime.Gosched()
		b, again = again, b
		if err := t.readAt(again, t.geo.slotOffset()+int64(index)*slotSize); err != nil {
			return Slot{}, false, err
		}
	}
}

// decodeSlot reads a slot, of Generation 0 if it is free; whole is false if a check doesn't fit.
func decodeSlot(index int, b []byte, texts *texts) (s Slot, whole bool) {
	var w [slotWords]uint64
	getWords(w[:], b)
	_, info, infoOK := current(w[slotInfo/wordSize:], infoWords)
	_, op, opOK := current(w[slotOp/wordSize:], opWords)
	if s.Generation = uint32(info[infoNumber]); !infoOK || !opOK || s.Generation == 0 {
		return Slot{}, infoOK && opOK
	}
	s.Index = index
	s.State = lifecycle.State(info[infoNumber] >> 32)
	s.ID = commID(info[infoID:])
	s.Parent = commID(info[infoParent:])
	s.Rank, s.Size = int(low32(info[infoRank])), int(high32(info[infoRank]))
	s.Nodes, s.Root = int(low32(info[infoNodes])), uint32(info[infoNodes]>>32)
	s.Engine = texts.engine.read(info[infoEngine:infoName])
	s.Name = texts.name.read(info[infoName:])

	kinds := op[opKinds]
	s.Launched, s.Completed = op[opLaunched], op[opLaunched]-kinds>>40
	s.Begun, s.Done = w[slotBegun/wordSize], w[slotDone/wordSize]
	s.Seq = op[opNumber]
	s.Op = unpackSignature(kinds, op[opRanks], op[opBytes])
	s.Algorithm = uint8(kinds >> 24)
	s.Phase, s.Wait, s.WaitSince = Phase(kinds>>32), high32(op[opRanks]), int64(op[opWaitSince])
	s.OpStart = int64(op[opStart])
	if launched := w[slotLaunched/wordSize]; launched > s.Launched {
		s.Launched, s.Completed = launched, launched-1
		s.Seq, s.OpStart = w[slotNumber/wordSize], int64(w[slotStart/wordSize])
	}
	s.LastEnd = int64(w[slotLastEnd/wordSize])
	if w[slotEnded/wordSize] >= s.Launched {
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

func commID(w []uint64) (id lifecycle.CommID) {
	binary.LittleEndian.PutUint64(id[:], w[0])
	binary.LittleEndian.PutUint64(id[8:], w[1])
	return id
}
