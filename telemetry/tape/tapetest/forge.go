package tapetest

import (
	"encoding/binary"
	"math"
	"math/bits"
	"os"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Forge lays a tape out by the format's description alone, with whatever times, process and format its test wants:
// those of another machine, of yesterday, of a program that is gone. It is a writer for tests of readers, and shares no
// code with the real one.
type Forge struct {
	Format                              uint32 // 3 if 0
	PID                                 int
	Rank, JobSize                       int
	SlowAfter, StallAfter               time.Duration
	BootID, Host, Job, Program, Version string
	KernelBoot                          [16]byte
	CreatedMono, CreatedWall            int64 // one moment on both clocks, ns
	LatchMono, LatchWall                int64 // a later one; none if LatchMono is 0
	Exported                            int64 // until when it has exported its spans
	Delivered                           int64 // and those of what had ended
	Terminated, Seen                    int64
	Paused, Resumed                     int64
	Closed                              bool
	Roots                               map[uint32]uint32 // of communicators that have another one, by their numbers
	Slots                               []tape.Slot       // as a Reader gives them; Index is the place in the table
	// Tallies are in their order, Index means nothing; at most MaxTallies.
	Tallies  []tape.Tally
	life, op [][8]uint64
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
)

func checkOf(seed uint64, words ...uint64) uint64 {
	h := seed
	for _, w := range words {
		h = bits.RotateLeft64(h, 9) ^ w
	}
	h ^= h >> 32
	return h * 0x9E3779B97F4A7C15 >> 32
}

func two(a, b int32) uint64 { return uint64(uint32(a)) | uint64(uint32(b))<<32 }

// Comm describes a communicator; number is its place among those of the process, from 1.
func (f *Forge) Comm(at int64, number uint32, info tape.CommInfo) {
	var tail []byte
	tail = field(tail, 7, info.ID[:])
	if !info.Parent.IsZero() {
		tail = field(tail, 8, info.Parent[:])
	}
	tail = field(tail, 9, []byte(info.Name))
	tail = field(tail, 10, []byte(info.Engine))
	var shape []byte
	for _, n := range []int{info.Rank, info.Size, info.Nodes} {
		shape = binary.LittleEndian.AppendUint32(shape, uint32(n))
	}
	tail = field(tail, 11, shape)
	root := number
	if other := f.Roots[number]; other != 0 {
		root = other
	}
	tail = field(tail, 13, binary.LittleEndian.AppendUint32(nil, root))
	f.putLife(3, at, 0, -1, 0, 0, number, tail)
}

func field(b []byte, tag byte, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(append(b, tag), uint16(len(value)))
	return append(b, value...)
}

// Life adds a moment of an act of communicator number.
func (f *Forge) Life(number uint32, r tape.LifeRecord) {
	var tail []byte
	if r.Text != "" {
		tail = field(tail, 1, []byte(r.Text))
	}
	if r.Site.File != "" {
		var site []byte
		site = binary.LittleEndian.AppendUint32(site, uint32(r.Site.Line))
		site = append(site, make([]byte, 16)...) // no goroutine, no time
		site = binary.LittleEndian.AppendUint16(site, uint16(len(r.Site.Func)))
		tail = field(tail, 2, append(append(site, r.Site.Func...), r.Site.File...))
	}
	if !r.Child.IsZero() {
		tail = field(tail, 5, r.Child[:])
	}
	kinds := uint64(r.Act) | uint64(r.Call)<<8 | uint64(r.Stage)<<16 | uint64(r.Phase)<<24 | uint64(r.State)<<32 |
		uint64(r.Code)<<48
	f.putLife(2, r.Time, kinds, r.Peer, r.Seq, r.Start, number, tail)
}

func (f *Forge) putLife(
	kind uint64, at int64, kinds uint64, peer int32, seq uint64, start int64, number uint32, tail []byte,
) {
	f.life = append(f.life, [8]uint64{
		kind, uint64(at), uint64(len(f.op)), kinds, two(peer, int32(len(tail))), seq, uint64(start),
		two(int32(number), int32(number)-1),
	})
	for len(tail) > 0 {
		more := [8]uint64{5}
		var b [56]byte
		tail = tail[copy(b[:], tail):]
		for i := range 7 {
			more[1+i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		f.life = append(f.life, more)
	}
}

// Op adds a moment of an operation of communicator number.
func (f *Forge) Op(number uint32, r tape.OpRecord) {
	sig := r.Signature
	f.op = append(f.op, [8]uint64{
		1, uint64(r.Time), r.Seq,
		uint64(sig.Call) | uint64(sig.DataType)<<8 | uint64(sig.Reduction)<<16 | uint64(r.Algorithm)<<24 |
			uint64(r.Phase)<<32 | uint64(r.Stage)<<40 | uint64(r.Code)<<48,
		two(sig.Peer, r.Wait), sig.Bytes, uint64(r.Start), two(int32(number), int32(number)-1),
	})
}

// Bytes is the file.
func (f *Forge) Bytes() []byte {
	b := make([]byte, forgedLength)
	le := binary.LittleEndian
	f.header(b)
	for i := range f.Slots {
		f.slot(b[headerBytes+f.Slots[i].Index*slotBytes:], &f.Slots[i])
	}
	for i := range f.Tallies {
		tally(b[TallyOffset+i*TallyBytes:][:TallyBytes], i, &f.Tallies[i])
	}
	for _, ring := range []struct {
		at, size int
		records  [][8]uint64
	}{{lifeOffset, forgedLife, f.life}, {opOffset, forgedOp, f.op}} {
		for index, r := range ring.records {
			check := checkOf(uint64(uint32(index)), r[1:]...)
			r[0] = uint64(index)<<32 | r[0]<<24 | check>>8
			to := b[ring.at+index%ring.size*recordBytes:]
			for i, w := range r {
				le.PutUint64(to[8*i:], w)
			}
		}
	}
	return b
}

func (f *Forge) header(b []byte) {
	le := binary.LittleEndian
	copy(b, "CARILLON")
	le.PutUint32(b[8:], f.format())
	le.PutUint32(b[12:], forgedSlots)
	le.PutUint32(b[16:], MaxTallies)
	le.PutUint32(b[20:], forgedLife)
	le.PutUint32(b[24:], forgedOp)
	le.PutUint32(b[28:], uint32(f.PID))
	le.PutUint64(b[32:], forgedLength)
	copy(b[56:72], f.KernelBoot[:])
	le.PutUint64(b[72:], uint64(f.CreatedMono))
	le.PutUint64(b[80:], uint64(f.CreatedWall))
	rank := f.Rank
	if f.JobSize == 0 {
		rank = -1
	}
	le.PutUint64(b[88:], two(int32(rank), int32(f.JobSize)))
	le.PutUint64(b[96:], uint64(f.SlowAfter))
	le.PutUint64(b[104:], uint64(f.StallAfter))
	copy(b[112:151], f.BootID)
	copy(b[152:215], f.Host)
	copy(b[216:279], f.Job)
	copy(b[280:343], f.Program)
	copy(b[344:383], f.Version)
	le.PutUint64(b[384:], checkOf(uint64(f.format()), wordsOf(b[:384])...))
	le.PutUint64(b[512:], 1)
	if f.Closed {
		le.PutUint64(b[512:], 2)
	}
	le.PutUint64(b[640:], uint64(len(f.op)))
	le.PutUint64(b[704:], uint64(len(f.life)))
	le.PutUint64(b[832:], uint64(len(f.Tallies)))
	if f.LatchMono != 0 {
		latch(b[848:], uint64(f.LatchMono), uint64(f.LatchWall))
	}
	le.PutUint64(b[896:], uint64(f.Exported))
	le.PutUint64(b[904:], uint64(f.Delivered))
	le.PutUint64(b[912:], uint64(f.Terminated))
	le.PutUint64(b[920:], uint64(f.Seen))
	le.PutUint64(b[928:], uint64(f.Paused))
	le.PutUint64(b[936:], uint64(f.Resumed))
}

func (f *Forge) format() uint32 {
	if f.Format == 0 {
		return 3
	}
	return f.Format
}

func wordsOf(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// latch publishes version 1 of words: the second copy.
func latch(b []byte, words ...uint64) {
	le := binary.LittleEndian
	b = b[8*(1+len(words)):]
	le.PutUint64(b, 1<<32|checkOf(1, words...)>>8)
	for i, w := range words {
		le.PutUint64(b[8*(1+i):], w)
	}
}

func (f *Forge) slot(b []byte, s *tape.Slot) {
	le := binary.LittleEndian
	var info [128]byte
	copy(info[0:], s.ID[:])
	copy(info[16:], s.Parent[:])
	le.PutUint32(info[32:], s.Generation)
	info[36] = byte(s.State)
	le.PutUint64(info[40:], two(int32(s.Rank), int32(s.Size)))
	le.PutUint64(info[48:], two(int32(s.Nodes), int32(s.Root)))
	copy(info[56:71], s.Engine)
	copy(info[72:127], s.Name)
	latch(b[192:], wordsOf(info[:])...)
	kinds := uint64(s.Op.Call) | uint64(s.Op.DataType)<<8 | uint64(s.Op.Reduction)<<16 | uint64(s.Algorithm)<<24 |
		uint64(s.Phase)<<32 | (s.Launched-s.Completed)<<40
	latch(b, s.Launched, s.Seq, kinds, two(s.Op.Peer, s.Wait), s.Op.Bytes, uint64(s.OpStart), uint64(s.WaitSince))
	if s.Launched == s.Completed {
		le.PutUint64(b[152:], s.Launched)
	}
	le.PutUint64(b[160:], uint64(s.LastEnd))
	le.PutUint64(b[168:], s.Begun)
	le.PutUint64(b[176:], s.Done)
}

func tally(b []byte, index int, t *tape.Tally) {
	le := binary.LittleEndian
	copy(b[0:55], t.Name)
	copy(b[56:71], t.Engine)
	b[72], b[73] = uint8(t.Call), t.SizeClass
	le.PutUint64(b[80:], checkOf(uint64(index), wordsOf(b[:80])...))
	le.PutUint64(b[128:], t.Ordinary)
	le.PutUint64(b[136:], uint64(t.OrdinaryTime))
	le.PutUint64(b[144:], t.Bytes)
	le.PutUint64(b[152:], math.Float64bits(t.Bandwidth/1e6))
	for i, n := range t.Durations {
		le.PutUint64(b[160+8*i:], n)
	}
	le.PutUint64(b[272:], uint64(t.Time-t.OrdinaryTime))
	for i, n := range t.Bandwidths {
		le.PutUint64(b[320+8*i:], n)
	}
}

// WriteFile writes the tape.
func (f *Forge) WriteFile(path string) error { return os.WriteFile(path, f.Bytes(), 0o600) }
