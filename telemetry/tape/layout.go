package tape

import (
	"math/bits"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

//go:generate go test -run ^TestCHeaderIsCurrent$ . -rewrite

// The format's version; a reader refuses any other. Additions that readers may ignore don't change it.
const formatVersion = 5

// magic is a tape's first eight bytes.
const magic = "CARILLON"

// Sizes of the parts in bytes, and in words of 8 bytes.
const (
	headerSize = 4096
	slotSize   = 512
	tallySize  = 512
	recordSize = 64
	pageSize   = 512
	marksSize  = marksPerSlot*recordSize + (1+maxPeers)*peerSize
	peerSize   = 16

	devicePageSize = 4096

	wordSize    = 8
	recordWords = recordSize / wordSize
	pageWords   = pageSize / wordSize

	recordsPerPage = 32 // of the op ring
	marksPerSlot   = 32
	maxPeers       = 63               // ranks with which a slot's messages are counted
	waitAt         = marksPerSlot - 1 // index of the mark that holds a kindWait record
	maxMarked      = 128              // slots of a tape that have marks
	reachedAlign   = 4096             // the parts that devices write have pages of their own
)

// The parts as they lie on the file, in the machine's byte order. format.md describes their fields.
type (
	header struct {
		static
		check    uint64 // of static, by formatVersion
		_        [512 - 400]byte
		changing changing
		_        [headerSize - 1056]byte
	}

	// static is written once, before the file has its name.
	static struct {
		magic                                           [8]byte
		version, slots, tallies, lifeRecords, opRecords uint32 // the latter two are powers of two
		pid                                             uint32
		fileSize, startTicks, pidSpace                  uint64
		kernelBoot                                      process.BootID
		createdMono, createdWall                        int64
		rank, jobSize                                   int32
		slowAfter, stallAfter                           int64
		bootID                                          [40]byte
		host, job, program                              [64]byte
		progVersion                                     [40]byte
		marked, devices                                 uint32
	}

	// changing is at changingAt. Words of different writers are on different cache lines.
	changing struct {
		state           uint64 // stateLive or stateClosed
		_               [56]byte
		bell, _         uint32
		waiting, _      uint32
		_               [48]byte
		opHead          uint64
		_               [56]byte
		lifeHead        uint64
		_               [56]byte
		ordinaryHead    uint64
		_               [56]byte
		tallyHead       uint64
		overflow        uint64
		clock           latch[clockPair]
		exported        int64
		delivered       int64
		terminated      int64
		seen            int64
		paused, resumed int64
		exporter, run   uint64
		starved         int64
		unexpected      Unexpected
		agentPID        int64
	}

	clockPair struct{ mono, wall int64 }

	// slot has its counters between its two latches, on one cache line.
	slot struct {
		op latch[operation]
		counters
		captured uint64 // operations that were captured in a device's graph
		info     latch[commState]
		place    latch[shownPlace]
	}

	// marked is the extra part of a slot for operations that run on a device's stream, and for counts of messages.
	// reached holds the numbers of the last marks that the stream has written: behind an operation u32, before one u32.
	marked struct {
		marks   marks
		counted peer // rank -1: messages are counted
		peers   [maxPeers]peer
	}
	marks   [marksPerSlot]record
	peer    struct{ rank, counts uint64 } // rank i32, generation u32; sent u32, received u32
	reached uint64

	operation struct {
		launched, number uint64
		kinds            uint64 // see packKinds; the phase from bit 32 on, the number in flight from bit 40 on
		ranks            uint64 // peer i32, wait i32
		bytes            uint64
		start, waitSince uint64
	}

	counters struct{ launched, number, start, ended, lastEnd, begun, done uint64 }

	commState struct {
		id, parent    lifecycle.CommID
		number, state uint32
		rank, size    int32
		nodes         int32
		root          uint32
		engine        [engineSize]byte
		name          [nameSize]byte
	}

	// tally has durations and bandwidths near the other words that an operation changes.
	tally struct {
		tallied
		check        uint64 // of tallied, by the index
		_            [40]byte
		ordinary     uint64
		ordinaryTime uint64
		bytes        uint64
		bandwidth    float64
		durations    [DurationBuckets]uint64
		otherTime    uint64
		sampled      uint64
		_            [32]byte
		bandwidths   [BandwidthBuckets]uint64
		_            [96]byte
	}

	// tallied is written once, before changing.tallyHead counts the tally.
	tallied struct {
		name            [nameSize]byte
		engine          [engineSize]byte
		call, sizeClass uint8
		_               [6]byte
	}

	record [recordWords]uint64
	page   [pageWords]uint64
)

const (
	changingAt = 512
	bellAt     = 576
	waitingAt  = 584
)

// Values of changing.state.
const (
	stateLive   = 1
	stateClosed = 2
)

// Lengths of the texts of slots and tallies, a NUL at the end included.
const (
	engineSize = 16
	nameSize   = 56
)

// bytesOf returns parts of a tape as bytes.
func bytesOf[T any](parts []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(parts))), len(parts)*int(unsafe.Sizeof(*new(T))))
}

// wordsOf returns a part as words.
func wordsOf[T any](part *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(part)), unsafe.Sizeof(*part)/wordSize)
}

// Kinds of a record, in its marker.
const (
	kindOp       = 1  // one moment of an operation; op ring
	kindLife     = 2  // one moment of an act; life ring, as all up to kindContinue
	kindComm     = 3  // a communicator's description; in recLifeKinds, only the state counts
	kindCommEnd  = 4  // a communicator freed its slot
	kindContinue = 5  // 56 more bytes of the tail of the record before
	kindCaller   = 6  // the caller's span of the operation whose start is the next record; op ring
	kindTallied  = 7  // the end of an operation that a tally counts; op ring
	kindOrdinary = 8  // the end of an operation that a tally counts as ordinary; on a page, or the op ring if sampled
	kindMark     = 9  // an operation; its stream writes this record's number behind it; among a slot's marks
	kindWait     = 10 // what the data of a marked operation waits for; among a slot's marks
)

// Words of a record. The first is its marker, see marker; the second the time.
const (
	recMarker = 0
	recTime   = 1
	recSeq    = 2
	recKinds  = 3 // see packKinds; an operation's phase, stage u8 and code u16 from bits 32, 40 and 48 on
	recRanks  = 4 // peer i32, wait i32
	recBytes  = 5
	recStart  = 6
	recComm   = 7 // number u32, slot i32

	// Life records; the other words are as above.
	recLifeOpHead = 2 // changing.opHead just before the record was reserved: its place among the op records
	recLifeKinds  = 3 // act, call, stage, phase, state u8; from bit 48 on code u16
	recLifePeer   = 4 // peer i32; length of the tail in bytes u32
	recLifeSeq    = 5

	// Callers; the other words are as above.
	recCallerTrace = 2 // 16 bytes
	recCallerSpan  = 4 // 8 bytes
	recCallerFlags = 5 // u8
	recCallerSeq   = 6 // of the operation

	// Marks; the other words are as above. The time is when the operation began.
	recMarkRanks    = 4 // peer i32, low half of counters.begun u32
	recMarkLaunched = 6
)

// The lower half of a repeat on a page.
const (
	repeatBit = 1 << 31 // no kind of a record has it in its marker
	maxRepeat = repeatBit - 1
)

// Fields of a tail: u8 tag, u16 length, the bytes.
const (
	tailText   = 1
	tailSite   = 2 // line u32, goroutine u64, time i64 (ns since 1970, 0: none), length of func u16, func, file
	tailFirst  = 3 // as tailSite
	tailCaller = 4 // trace id, span id, flags: 25 bytes
	tailChild  = 5 // 16 bytes
	tailOps    = 6 // u32
	tailID     = 7 // 16 bytes
	tailParent = 8 // 16 bytes
	tailName   = 9
	tailEngine = 10
	tailShape  = 11 // rank, size, nodes i32
	tailShared = 12 // empty: its presence is the value
	tailRoot   = 13 // u32: number of the communicator that it descends from
	tailPlace  = 14 // node, local index, connections i32, locals, PXN u16
	tailCounts = 15 // of messages, for each rank: rank i32, sent u32, received u32
	tailTimes  = 16 // u32

	tailPerRecord = recordSize - wordSize
	maxContinue   = 48
	maxTail       = maxContinue * tailPerRecord
)

// The most bytes of a record's texts, so that the longest tail fits.
const (
	maxText = 1024
	maxSite = 160 // of each of the function's and the file's name
)

// marker returns a record's marker, which proves that words are whole and have this number. Words may be torn by a
// concurrent reader, by two writers a lap apart, or by the end of a process. The check is fast rather than strong.
func marker(number uint64, kind uint8, words []uint64) uint64 {
	return number<<32 | uint64(kind)<<24 | check(uint64(uint32(number)), words)>>8
}

// check returns a 32-bit checksum of words.
func check(seed uint64, words []uint64) uint64 {
	h := seed
	for _, w := range words {
		h = bits.RotateLeft64(h, 9) ^ w
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15 // odd, and its bits look like noise: 2^64 divided by the golden ratio
	return h >> 32
}

// store writes 7 words, and then their marker. It is marker unrolled, with the words in registers: each operation calls
// it, and assembling the words in memory first would cost twice as much.
func store(to *record, number uint64, kind uint8, a, b, c, d, e, f, g uint64) {
	to[1], to[2], to[3], to[4], to[5], to[6], to[7] = a, b, c, d, e, f, g
	h := bits.RotateLeft64(uint64(uint32(number)), 9) ^ a
	h = bits.RotateLeft64(h, 9) ^ b
	h = bits.RotateLeft64(h, 9) ^ c
	h = bits.RotateLeft64(h, 9) ^ d
	h = bits.RotateLeft64(h, 9) ^ e
	h = bits.RotateLeft64(h, 9) ^ f
	h = bits.RotateLeft64(h, 9) ^ g
	storeRelease(&to[0], number<<32|uint64(kind)<<24|mix(h)>>8)
}

// kindOf is the kind of a record with this marker.
func kindOf(marker uint64) uint8 { return uint8(marker >> 24) }

// packKinds puts the small fields of an operation that don't change while it runs into one word.
func packKinds(sig *Signature, algorithm uint8) uint64 {
	return uint64(sig.Call) | uint64(sig.DataType)<<8 | uint64(sig.Reduction)<<16 | uint64(algorithm)<<24
}

// pack32 puts two 32-bit fields into a word, a into the lower half: at the lower address.
func pack32(a, b int32) uint64 { return uint64(uint32(a)) | uint64(uint32(b))<<32 }

func low32(w uint64) int32  { return int32(uint32(w)) }
func high32(w uint64) int32 { return int32(uint32(w >> 32)) }

// geometry is where the parts of a tape lie.
type geometry struct {
	slots, tallies, life, op int // how many
	marked                   int // slots that have marks and counts of messages, the first ones
	devices                  int // of those, the first ones that have device pages
}

func (g geometry) slotOffset() int64     { return headerSize }
func (g geometry) tallyOffset() int64    { return g.slotOffset() + int64(g.slots)*slotSize }
func (g geometry) lifeOffset() int64     { return g.tallyOffset() + int64(g.tallies)*tallySize }
func (g geometry) opOffset() int64       { return g.lifeOffset() + int64(g.life)*recordSize }
func (g geometry) ordinaryOffset() int64 { return g.opOffset() + int64(g.op)*recordSize }
func (g geometry) ordinaryEnd() int64    { return g.ordinaryOffset() + int64(g.pages())*pageSize }
func (g geometry) pages() int            { return g.op / recordsPerPage }

func (g geometry) reachedOffset() int64 { return alignReached(g.ordinaryEnd()) }

func (g geometry) marksOffset() int64 {
	return alignReached(g.reachedOffset() + int64(g.marked)*wordSize)
}

func (g geometry) size() int64 {
	if g.marked == 0 {
		return g.ordinaryEnd()
	}
	return g.deviceOffset() + int64(g.devices)*devicePageSize
}

func (g geometry) deviceOffset() int64 {
	end := g.marksOffset() + int64(g.marked)*marksSize
	if g.devices == 0 {
		return end
	}
	return alignReached(end)
}

func alignReached(n int64) int64 { return (n + reachedAlign - 1) / reachedAlign * reachedAlign }
