package tape

import "math/bits"

// The format's version. A reader refuses any other. What is added without a new version goes into bytes that are
// reserved, new fields of tails and new kinds of records: readers pass over those that they don't know.
const formatVersion = 3

// magic is a tape's first eight bytes.
const magic = "CARILLON"

// Sizes of the parts in bytes, and in words of 8 bytes.
const (
	headerSize = 4096
	slotSize   = 512
	tallySize  = 512
	recordSize = 64
	pageSize   = 512

	wordSize    = 8
	slotWords   = slotSize / wordSize
	tallyWords  = tallySize / wordSize
	recordWords = recordSize / wordSize
	pageWords   = pageSize / wordSize

	recordsPerPage = 32 // of the op ring
)

// Offsets in the header. Everything up to hdrCheck is written once, before the file has its name.
const (
	hdrMagic       = 0   // 8 bytes
	hdrVersion     = 8   // u32
	hdrSlots       = 12  // u32
	hdrTallies     = 16  // u32
	hdrLifeRecords = 20  // u32, a power of two
	hdrOpRecords   = 24  // u32, a power of two
	hdrPID         = 28  // u32
	hdrFileSize    = 32  // u64
	hdrStartTicks  = 40  // u64: field 22 of /proc/PID/stat, which tells two users of a pid apart
	hdrPIDSpace    = 48  // u64: inode of the pid namespace; 0 if unknown
	hdrKernelBoot  = 56  // 16 bytes: the kernel's boot id; zero if unknown
	hdrCreatedMono = 72  // i64, ns
	hdrCreatedWall = 80  // i64, ns since 1970
	hdrRank        = 88  // i32: of the process in the job; -1 if unknown
	hdrJobSize     = 92  // i32: ranks of the job; 0 if unknown
	hdrSlowAfter   = 96  // i64: an operation is slow from so many ns on; 0 if unknown
	hdrStallAfter  = 104 // i64: and stalled; 0 if unknown
	hdrBootID      = 112 // text; the kernel's boot id, or what the user calls the host
	hdrHost        = 152 // text
	hdrJob         = 216 // text
	hdrProgram     = 280 // text
	hdrProgVersion = 344 // text
	hdrCheck       = 384 // u64: check of the words before it

	hdrState        = 512 // u64: stateLive or stateClosed
	hdrBell         = 576 // u32: goes up when the writer wakes followers, which wait on it with futex(2)
	hdrWaiting      = 584 // u32: set by a follower that is about to wait, cleared by the writer that wakes it
	hdrOpHead       = 640 // u64: records ever reserved in the op ring
	hdrLifeHead     = 704 // u64: records ever reserved in the life ring
	hdrOrdinaryHead = 768 // u64: pages of the ordinary ring ever looked at by writers that were to begin one
	hdrTallyHead    = 832 // u64: tallies ever begun
	hdrOverflow     = 840 // u64: communicators that found the table full
	hdrClock        = 848 // latch of two words: CLOCK_MONOTONIC and the time of day of one moment, ns
	hdrExported     = 896 // i64, CLOCK_MONOTONIC: see Header.Exported
	hdrDelivered    = 904 // i64, CLOCK_MONOTONIC: see Header.Delivered
	hdrTerminated   = 912 // i64, CLOCK_MONOTONIC: see Header.Terminated
	hdrSeen         = 920 // i64, CLOCK_MONOTONIC: see Header.Seen
	hdrPaused       = 928 // i64, CLOCK_MONOTONIC: see Header.Paused
	hdrResumed      = 936 // i64, CLOCK_MONOTONIC: see Header.Resumed
	hdrChangingEnd  = 944
)

// Lengths of the header's texts, a NUL at the end included.
const (
	bootIDSize      = 40
	hostSize        = 64
	jobSize         = 64
	programSize     = 64
	progVersionSize = 40
)

// Values of hdrState.
const (
	stateLive   = 1
	stateClosed = 2
)

// Offsets in a slot of its two latches, and of the counters between them, which are one line of the cache.
const (
	slotOp       = 0   // a latch of the operation that runs, or ran last
	slotLaunched = 128 // u64: launched of one like that in the latch, alone in flight, that came after it
	slotNumber   = 136 // u64: its number
	slotStart    = 144 // i64: its start
	slotEnded    = 152 // u64: how many were launched when one ended and none was in flight any more
	slotLastEnd  = 160 // i64: when one ended last
	slotBegun    = 168 // u64: number of the last collective that began
	slotDone     = 176 // u64: number of the last collective that ended well
	slotInfo     = 192 // a latch of what the communicator is
)

// Words of a slot's operation.
const (
	opLaunched  = 0
	opNumber    = 1
	opKinds     = 2 // see packKinds; the phase from bit 32 on, the number of operations in flight from bit 40 on
	opRanks     = 3 // peer i32, wait i32
	opBytes     = 4
	opStart     = 5
	opWaitSince = 6

	opWords = 7
)

// Words of a slot's info.
const (
	infoID     = 0 // 16 bytes
	infoParent = 2 // 16 bytes
	infoNumber = 4 // u32: the communicator's number in the process, from 1; 0: the slot is free. u8: state
	infoRank   = 5 // rank i32, size i32
	infoNodes  = 6 // nodes i32, root u32: the number of the communicator that it descends from
	infoEngine = 7 // text of 16 bytes
	infoName   = 9 // text of 56 bytes

	infoWords  = 16
	engineSize = 16
	nameSize   = 56
)

// Words of a tally. Those up to the check are written once, before hdrTallyHead counts the tally.
const (
	tallyName         = 0  // text of 56 bytes
	tallyEngine       = 7  // text of 16 bytes
	tallyKind         = 9  // call, class of sizes u8
	tallyCheck        = 10 // check of the words before it
	tallyOrdinary     = 16 // operations that never had to wait and were not slow
	tallyOrdinaryTime = 17 // what they took, ns
	tallyBytes        = 18 // of all
	tallyBandwidth    = 19 // sum of their bus bandwidths, MB/s, f64
	tallyDurations    = 20 // DurationBuckets words; those of short operations lie beside what each changes
	tallyOtherTime    = 34 // what the others took, ns
	tallySampled      = 35 // ordinary ones that are on the op ring
	tallyBandwidths   = 40 // BandwidthBuckets words
)

// Kinds of a record, in its marker.
const (
	kindOp       = 1 // one moment of an operation; op ring
	kindLife     = 2 // one moment of an act; life ring, as all up to kindContinue
	kindComm     = 3 // what a communicator is; of its kinds, only the state counts
	kindCommEnd  = 4 // a communicator gave its slot back
	kindContinue = 5 // 56 more bytes of the tail of the record before
	kindCaller   = 6 // the span in which the operation was called whose start is the next record; op ring
	kindTallied  = 7 // the end of an operation that a tally counts; op ring
	kindOrdinary = 8 // the end of one that a tally counts as ordinary; on a page, or the op ring if it is sampled
)

// Words of a record. The first is its marker, see marker; the second the time.
const (
	recMarker = 0
	recTime   = 1

	// Op records.
	recOpSeq   = 2
	recOpKinds = 3 // see packKinds; phase, stage u8 and code u16 from bits 32, 40 and 48 on
	recOpRanks = 4 // peer i32, wait i32
	recOpBytes = 5
	recOpStart = 6
	recOpComm  = 7 // number u32, slot i32

	// Callers, which have the time and the last word as op records do.
	recCallerTrace = 2 // 16 bytes
	recCallerSpan  = 4 // 8 bytes
	recCallerFlags = 5 // u8
	recCallerSeq   = 6 // of the operation

	// Life records.
	recLifeOpHead = 2 // hdrOpHead before it was reserved: where it stands among the operations
	recLifeKinds  = 3 // act, call, stage, phase, state u8; from bit 48 on code u16
	recLifePeer   = 4 // peer i32; length of the tail in bytes u32
	recLifeSeq    = 5
	recLifeStart  = 6
	recLifeComm   = 7 // number u32, slot i32
)

// A repeat is a word on a page: from the start before it to its start in ns in the upper half, what it took in ns in
// the lower, and the bit that tells it from a marker, as no kind of a record has it.
const (
	repeatBit = 1 << 31
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
	tailShared = 12 // empty: that it is there says it
	tailRoot   = 13 // u32: number of the communicator that it descends from

	tailPerRecord = recordSize - wordSize
	maxContinue   = 36
	maxTail       = maxContinue * tailPerRecord
)

// What is kept of a record's texts, in bytes, so that the longest tail fits.
const (
	maxText = 1024
	maxSite = 160 // of each of the function's and the file's name
	maxName = nameSize - 1
)

// A marker is the first word of a record, or of a copy in a latch, and is stored last. Its upper half is a number:
// the low half of a record's index in the ring's whole history, or the version of a copy. Bits 24 to 31 are the kind,
// 0 in a latch, and the others a check over the words behind the marker, quick rather than strong. A marker that fits
// says that these words are whole, and are the ones with that number, however they may have been torn: by a reader
// that copied them while they changed, by two writers a lap apart, or by a process that was killed while it wrote.
func marker(number uint64, kind uint8, words []uint64) uint64 {
	return number<<32 | uint64(kind)<<24 | check(uint64(uint32(number)), words)>>8
}

// check is a check of 32 bits over words.
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

// store writes 7 words, and their marker behind them. It is marker, unrolled, and takes the words in registers: it is
// on the way of each operation, and what is first put together in memory costs twice as much.
func store(to *[recordWords]uint64, number uint64, kind uint8, a, b, c, d, e, f, g uint64) {
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
}

func (g geometry) slotOffset() int64     { return headerSize }
func (g geometry) tallyOffset() int64    { return g.slotOffset() + int64(g.slots)*slotSize }
func (g geometry) lifeOffset() int64     { return g.tallyOffset() + int64(g.tallies)*tallySize }
func (g geometry) opOffset() int64       { return g.lifeOffset() + int64(g.life)*recordSize }
func (g geometry) ordinaryOffset() int64 { return g.opOffset() + int64(g.op)*recordSize }
func (g geometry) size() int64           { return g.ordinaryOffset() + int64(g.pages())*pageSize }
func (g geometry) pages() int            { return g.op / recordsPerPage }
