package tapetest

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Forge lays a tape out by the format's description alone, with whatever times, process and format the test wants: of
// another machine, of yesterday, of a program that is gone. It shares no code with the real writer.
type Forge struct {
	Format                              uint32 // 4 if 0
	PID, AgentPID                       int
	PIDSpace                            uint64
	Rank, JobSize                       int
	SlowAfter, StallAfter               time.Duration
	BootID, Host, Job, Program, Version string
	KernelBoot                          [16]byte
	CreatedMono, CreatedWall            int64 // one moment on both clocks, ns
	LatchMono, LatchWall                int64 // a later one; none if LatchMono is 0
	Exported                            int64 // until when it has exported its spans
	Delivered                           int64 // until when it has exported the spans that had ended
	Terminated, Seen                    int64
	Paused, Resumed                     int64
	Starved                             time.Duration
	Exporter, Run                       uint64
	Closed                              bool
	Roots                               map[uint32]uint32 // by number, of communicators whose root is another one
	// Slots are as a Reader returns them; Index is the place in the table. Marked slots have no operation in flight.
	Slots []tape.Slot
	// Tallies are in the order of the tape; Index is ignored. At most MaxTallies.
	Tallies  []tape.Tally
	life, op []forged
}

// forged is a record behind its marker.
type forged struct {
	kind uint64
	body []byte
}

// MaxTallies is how many tallies a forged tape has room for.
const MaxTallies = 32

// The sizes of a forged tape. Its tallies are at TallyOffset, each of TallyBytes.
const (
	forgedSlots    = 64
	forgedLife     = 1024
	forgedOp       = 8192
	headerBytes    = 4096
	slotBytes      = 512
	recordBytes    = 64
	TallyBytes     = 512
	TallyOffset    = headerBytes + forgedSlots*slotBytes
	lifeOffset     = TallyOffset + MaxTallies*TallyBytes
	pageBytes      = 512
	opOffset       = lifeOffset + forgedLife*recordBytes
	ordinaryOffset = opOffset + forgedOp*recordBytes
	forgedLength   = ordinaryOffset + forgedOp/32*pageBytes
	marksBytes     = 3072
	peersOffset    = 2048 // in a slot's marks
	peerBytes      = 16
	reachedOffset  = (forgedLength + 4095) / 4096 * 4096
	marksOffset    = reachedOffset + 4096 // forgedSlots words are less
	markedLength   = marksOffset + forgedSlots*marksBytes
)

func checkOf(seed uint64, words ...uint64) uint64 {
	h := seed
	for _, w := range words {
		h = bits.RotateLeft64(h, 9) ^ w
	}
	h ^= h >> 32
	return h * 0x9E3779B97F4A7C15 >> 32
}

// lay encodes values one after another; a text is its bytes.
func lay(values ...any) (b []byte) {
	for _, v := range values {
		if text, ok := v.(string); ok {
			v = []byte(text)
		}
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			panic(err) // a value of no fixed size
		}
	}
	return b
}

// padded returns a text in a field of the given size.
func padded(text string, size int) []byte {
	b := make([]byte, size)
	copy(b[:size-1], text)
	return b
}

func wordsOf(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

func field(tag uint8, values ...any) []byte {
	value := lay(values...)
	return lay(tag, uint16(len(value)), value)
}

// Comm describes a communicator; number is its place among those of the process, from 1.
func (f *Forge) Comm(at int64, number uint32, info tape.CommInfo) {
	tail := field(7, info.ID)
	if !info.Parent.IsZero() {
		tail = append(tail, field(8, info.Parent)...)
	}
	f.putLife(3, at, []any{uint64(0)}, -1, 0, 0, number,
		slices.Concat(tail, field(9, info.Name), field(10, info.Engine),
			field(11, int32(info.Rank), int32(info.Size), int32(info.Nodes)), placeField(info.Place),
			field(13, cmp.Or(f.Roots[number], number))))
}

// placeField is the place in a tail, if it is known.
func placeField(p tape.Place) []byte {
	if p == (tape.Place{}) {
		return nil
	}
	return field(14, int32(p.Node), int32(p.Local), int32(p.Connections), uint16(p.Locals), uint16(p.PXN))
}

// Life adds a moment of an act of communicator number.
func (f *Forge) Life(number uint32, r tape.LifeRecord) {
	var tail []byte
	if r.Text != "" {
		tail = field(1, r.Text)
	}
	if s := r.Site; s.File != "" { // with no goroutine and no time
		tail = append(tail, field(2, int32(s.Line), uint64(0), int64(0), uint16(len(s.Func)), s.Func, s.File)...)
	}
	if !r.Child.IsZero() {
		tail = append(tail, field(5, r.Child)...)
	}
	if r.Messages != nil {
		var counts []byte
		for _, m := range r.Messages {
			counts = append(counts, lay(m.Rank, m.Sent, m.Received)...)
		}
		tail = append(tail, field(15, counts)...)
	}
	if r.Times > 0 {
		tail = append(tail, field(16, r.Times)...)
	}
	f.putLife(2, r.Time, []any{r.Act, r.Call, r.Stage, r.Phase, uint8(r.State), uint8(0), r.Code}, r.Peer, r.Seq,
		r.Start, number, tail)
}

func (f *Forge) putLife(
	kind uint64, at int64, kinds []any, peer int32, seq uint64, start int64, number uint32, tail []byte,
) {
	f.life = append(f.life, forged{kind, lay(at, uint64(len(f.op)), lay(kinds...), peer, int32(len(tail)), seq, start,
		number, int32(number)-1)})
	for part := range slices.Chunk(tail, 56) {
		f.life = append(f.life, forged{5, lay(part, make([]byte, 56-len(part)))})
	}
}

// Op adds a moment of an operation of communicator number.
func (f *Forge) Op(number uint32, r tape.OpRecord) {
	sig := r.Signature
	f.op = append(f.op, forged{
		1, lay(r.Time, r.Seq, sig.Call, sig.DataType, sig.Reduction, r.Algorithm, r.Phase, r.Stage,
			r.Code, sig.Peer, r.Wait, sig.Bytes, r.Start, number, int32(number)-1),
	})
}

// Bytes is the file.
func (f *Forge) Bytes() []byte {
	marked := slices.ContainsFunc(f.Slots, func(s tape.Slot) bool { return s.Marked || s.Counted })
	b := make([]byte, forgedLength)
	if marked {
		b = make([]byte, markedLength)
	}
	f.header(b, marked)
	for i := range f.Slots {
		s := &f.Slots[i]
		f.slot(b[headerBytes+s.Index*slotBytes:], s)
		if s.Marked {
			mark(b[marksOffset+s.Index*marksBytes:], s)
			copy(b[reachedOffset+s.Index*8:], lay(uint64(1)))
		}
		if s.Counted {
			counts(b[marksOffset+s.Index*marksBytes+peersOffset:], s)
		}
	}
	for i := range f.Tallies {
		tally(b[TallyOffset+i*TallyBytes:], i, &f.Tallies[i])
	}
	for _, ring := range []struct {
		at, size int
		records  []forged
	}{{lifeOffset, forgedLife, f.life}, {opOffset, forgedOp, f.op}} {
		for index, r := range ring.records {
			copy(b[ring.at+index%ring.size*recordBytes:], r.bytes(uint64(index)))
		}
	}
	return b
}

// bytes encodes the record with this number.
func (r *forged) bytes(index uint64) []byte {
	return lay(index<<32|r.kind<<24|checkOf(index, wordsOf(r.body)...)>>8, r.body)
}

// mark writes the mark of a slot's last operation or, if that one is unproven, of the one before it.
func mark(b []byte, s *tape.Slot) {
	launched, begun := s.Launched, s.Begun
	if s.Unproven {
		launched, begun = launched-1, s.Proven
	}
	r := forged{9, lay(s.OpStart, s.Seq, uint64(s.Op.Call), s.Op.Peer, uint32(begun), s.Op.Bytes, launched,
		s.Generation, int32(s.Index))}
	copy(b, r.bytes(1))
}

// counts writes a slot's counts of messages.
func counts(b []byte, s *tape.Slot) {
	copy(b, lay(int32(-1), s.Generation))
	for i, m := range s.Messages {
		if m.Sent+m.Received > 0 {
			copy(b[(1+i)*peerBytes:], lay(m.Rank, s.Generation, m.Sent, m.Received))
		}
	}
}

func (f *Forge) header(b []byte, marked bool) {
	format, rank, state := cmp.Or(f.Format, 5), f.Rank, uint64(1)
	if f.JobSize == 0 {
		rank = -1
	}
	if f.Closed {
		state = 2
	}
	marks := uint64(0)
	if marked {
		marks = forgedSlots
	}
	once := lay("CARILLON", format, uint32(forgedSlots), uint32(MaxTallies), uint32(forgedLife), uint32(forgedOp),
		uint32(f.PID), uint64(len(b)), uint64(0), f.PIDSpace, f.KernelBoot, f.CreatedMono, f.CreatedWall, int32(rank),
		int32(f.JobSize), f.SlowAfter, f.StallAfter, padded(f.BootID, 40), padded(f.Host, 64), padded(f.Job, 64),
		padded(f.Program, 64), padded(f.Version, 40), marks)
	copy(b, lay(once, checkOf(uint64(format), wordsOf(once)...)))
	copy(b[512:], lay(state))
	copy(b[640:], lay(uint64(len(f.op))))
	copy(b[704:], lay(uint64(len(f.life))))
	copy(b[832:], lay(uint64(len(f.Tallies))))
	if f.LatchMono != 0 {
		latch(b[848:], lay(f.LatchMono, f.LatchWall))
	}
	copy(b[896:], lay(f.Exported, f.Delivered, f.Terminated, f.Seen, f.Paused, f.Resumed, f.Exporter, f.Run,
		f.Starved))
	copy(b[1048:], lay(int64(f.AgentPID)))
}

// latch publishes version 1: the second copy.
func latch(b, value []byte) {
	copy(b[8+len(value):], lay(1<<32|checkOf(1, wordsOf(value)...)>>8, value))
}

func (f *Forge) slot(b []byte, s *tape.Slot) {
	kinds := uint64(s.Op.Call) | uint64(s.Op.DataType)<<8 | uint64(s.Op.Reduction)<<16 | uint64(s.Algorithm)<<24 |
		uint64(s.Phase)<<32 | (s.Launched-s.Completed)<<40
	latch(b, lay(s.Launched, s.Seq, kinds, s.Op.Peer, s.Wait, s.Op.Bytes, cmp.Or(s.CallStart, s.OpStart), s.WaitSince))
	ended := uint64(0)
	if s.Launched == s.Completed {
		ended = s.Launched
	}
	copy(b[152:], lay(ended, s.LastEnd, s.Begun, s.Done))
	latch(b[192:], lay(s.ID, s.Parent, s.Generation, uint32(s.State), int32(s.Rank), int32(s.Size), int32(s.Nodes),
		s.Root, padded(s.Engine, 16), padded(s.Name, 56)))
	if p := s.Place; p != (tape.Place{}) {
		latch(b[464:], lay(int32(p.Node), int32(p.Local), int32(p.Connections), uint16(p.Locals), uint16(p.PXN)))
	}
}

func tally(b []byte, index int, t *tape.Tally) {
	counted := lay(padded(t.Name, 56), padded(t.Engine, 16), uint8(t.Call), t.SizeClass, [6]byte{})
	copy(b, lay(counted, checkOf(uint64(index), wordsOf(counted)...)))
	copy(b[128:], lay(t.Ordinary, t.OrdinaryTime, t.Bytes, t.Bandwidth/1e6, t.Durations, t.Time-t.OrdinaryTime))
	copy(b[320:], lay(t.Bandwidths))
}

// WriteFile writes the tape.
func (f *Forge) WriteFile(path string) error { return os.WriteFile(path, f.Bytes(), 0o600) }
