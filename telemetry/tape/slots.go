package tape

import (
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
)

// slotBatch is how many slots are read at a time.
const slotBatch = 64

// slotTexts are the texts that a slot had when it was read last, so that reading them again makes no new ones.
type slotTexts struct{ engine, name string }

// appendSlots appends the live communicators to slots. Each is one consistent moment of its slot. A slot that is corrupt is left out
// and is in the error; the others are there all the same. It reads no further than to the first batch of slots that were never used:
// a writer takes them in order.
func (t *file) appendSlots(slots []Slot) ([]Slot, error) {
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
			break
		}
		// Each part of a slot proves by itself that it is whole. That both are of one moment shows in that neither changed from one
		// reading to the next.
		if err := t.readAt(again, at); err != nil {
			return slots, err
		}
		for len(t.texts) < from+n {
			t.texts = append(t.texts, slotTexts{})
		}
		for i := range n {
			b := table[i*slotSize:][:slotSize]
			if isZero(b) {
				continue // never used
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

func anyUsed(slots []byte) bool {
	for ; len(slots) > 0; slots = slots[slotSize:] {
		if !isZero(slots) {
			return true
		}
	}
	return false
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
		s, live, whole = decodeSlot(index, b, &t.texts[index])
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
func decodeSlot(index int, b []byte, texts *slotTexts) (s Slot, live, whole bool) {
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
	texts.engine = wordsText(info[infoEngine:infoEngine+engineSize/wordSize], texts.engine)
	texts.name = wordsText(info[infoName:infoName+nameSize/wordSize], texts.name)
	s.Engine, s.Name = texts.engine, texts.name

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
	s.repeat(w[slotRepeat/wordSize:][:slotRepeatWords])
	return s, true, true
}

// repeat adds what has happened since the latch was published.
func (s *Slot) repeat(r []uint64) {
	quiet := func() { s.Phase, s.Wait, s.WaitSince = PhaseNone, -1, 0 }
	if launched := r[repLaunched]; launched > s.Launched { // once more the same
		s.Launched, s.Completed, s.Seq, s.OpStart = launched, launched-1, r[repNumber], int64(r[repStart])
		quiet()
	}
	if r[repEnded] >= s.Launched && s.Launched > 0 {
		s.Completed = s.Launched
		quiet()
	}
	s.LastEnd = max(s.LastEnd, int64(r[repLastEnd]))
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

// wordsText reads a text; it is before if it is the same.
func wordsText(w []uint64, before string) string {
	var b [nameSize]byte
	for i, x := range w {
		binary.LittleEndian.PutUint64(b[i*wordSize:], x)
	}
	text := getText(b[:len(w)*wordSize])
	if string(text) == before { // which allocates nothing
		return before
	}
	return string(text)
}
