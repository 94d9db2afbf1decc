package tape

import (
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
)

// appendSlots appends the live communicators to slots. Each is one consistent moment of its slot. A slot that is corrupt is left out
// and is in the error; the others are there all the same.
func (t *file) appendSlots(slots []Slot) ([]Slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table = make([]byte, t.geo.slots*slotSize)
		t.again = make([]byte, t.geo.slots*slotSize)
	}
	// Each part of a slot proves by itself that it is whole. That both are of one moment shows in that neither changed from one reading
	// to the next.
	if err := t.readAt(t.table, t.geo.slotOffset()); err != nil {
		return slots, err
	}
	if err := t.readAt(t.again, t.geo.slotOffset()); err != nil {
		return slots, err
	}
	var errs []error
	for i := range t.geo.slots {
		b, again := t.table[i*slotSize:][:slotSize], t.again[i*slotSize:][:slotSize]
		if isZero(b) {
			continue // never used
		}
		s, live, err := t.readSlot(i, b, again)
		if err != nil {
			errs = append(errs, err)
		} else if live {
			slots = append(slots, s)
		}
	}
	return slots, errors.Join(errs...)
}

func isZero(slot []byte) bool {
	return binary.LittleEndian.Uint64(slot[slotInfoLatch:]) == 0 && binary.LittleEndian.Uint64(slot[slotOpLatch:]) == 0
}

// slotTries bounds how often a slot is read again that changes all the time. A communicator that is busier than that has one owner
// all along, so that both parts still belong together.
const slotTries = 64

// readSlot decodes a slot that was read twice.
func (t *file) readSlot(index int, b, again []byte) (s Slot, live bool, err error) {
	for try := 0; ; try++ {
		var whole bool
		s, live, whole = decodeSlot(index, b)
		same := string(b[:slotOp]) == string(again[:slotOp]) // the control words
		if whole && (same || try >= slotTries) {
			return s, live, nil
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

// decodeSlot reads a slot; whole is false if a part's check doesn't fit.
func decodeSlot(index int, b []byte) (s Slot, live, whole bool) {
	var w [slotWords]uint64
	getWords(w[:], b)
	info, ok := latched(w[slotInfoLatch/wordSize], w[slotInfo/wordSize:], slotInfoWords)
	if !ok {
		return Slot{}, false, false
	}
	op, ok := latched(w[slotOpLatch/wordSize], w[slotOp/wordSize:], slotOpWords)
	if !ok {
		return Slot{}, false, false
	}
	s.Index = index
	s.Generation = uint32(info[infoNumber])
	if s.Generation == 0 {
		return Slot{}, false, true
	}
	s.State = lifecycle.State(info[infoNumber] >> 32)
	s.ID = commID(info[infoID:])
	s.Parent = commID(info[infoParent:])
	s.Rank, s.Size = int(low32(info[infoRank])), int(high32(info[infoRank]))
	s.Nodes, s.Root = int(low32(info[infoNodes])), uint32(info[infoNodes]>>32)
	s.Engine = wordsText(info[infoEngine : infoEngine+engineSize/wordSize])
	s.Name = wordsText(info[infoName : infoName+nameSize/wordSize])

	kinds := op[opKinds]
	s.Launched, s.Completed = op[opLaunched], op[opLaunched]-kinds>>40
	s.Seq = op[opNumber]
	s.Op = unpackSignature(kinds, op[opRanks], op[opBytes])
	s.Algorithm = uint8(kinds >> 24)
	s.Phase = Phase(kinds >> 32)
	s.Wait = high32(op[opRanks])
	s.OpStart = int64(op[opStart])
	s.LastEnd = int64(op[opLastEnd])
	s.WaitSince = int64(op[opWaitSince])
	return s, true, true
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

func wordsText(w []uint64) string {
	var b [nameSize]byte
	for i, x := range w {
		binary.LittleEndian.PutUint64(b[i*wordSize:], x)
	}
	return string(getText(b[:len(w)*wordSize]))
}
