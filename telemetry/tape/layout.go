package tape

import "math/bits"

// The format's version. A reader refuses any other: what is added without a new version goes into reserved bytes, new tail fields
// and new record kinds, all of which a reader passes over.
const formatVersion = 2

// magic are the file's first eight bytes.
const magic = "CARILLON"

// Sizes of the parts, in bytes.
const (
	headerSize = 4096
	slotSize   = 512
	tallySize  = 512
	recordSize = 64

	wordSize    = 8
	slotWords   = slotSize / wordSize
	tallyWords  = tallySize / wordSize
	recordWords = recordSize / wordSize
)

// Offsets in the header. Everything up to hdrCheck is written once, before the file has its name.
const (
	hdrMagic          = 0   // 8 bytes
	hdrVersion        = 8   // u32
	hdrHeaderSize     = 12  // u32
	hdrFileSize       = 16  // u64
	hdrSlotOffset     = 24  // u64
	hdrSlotCount      = 32  // u32
	hdrSlotSize       = 36  // u32
	hdrLifeOffset     = 40  // u64
	hdrLifeCount      = 48  // u32, a power of two
	hdrRecordSize     = 52  // u32
	hdrOpOffset       = 56  // u64
	hdrOpCount        = 64  // u32, a power of two
	hdrPID            = 68  // u32
	hdrStartTicks     = 72  // u64: field 22 of /proc/PID/stat, which tells two users of a pid apart
	hdrPIDSpace       = 80  // u64: inode of the pid namespace; 0 if unknown
	hdrCreatedMono    = 88  // i64, ns
	hdrCreatedWall    = 96  // i64, ns since 1970
	hdrBootID         = 104 // text; the kernel's boot id, or what the user calls the host
	hdrHost           = 144 // text
	hdrJob            = 208 // text
	hdrProgram        = 272 // text
	hdrProgVersion    = 336 // text
	hdrKernelBoot     = 376 // 16 bytes: the kernel's boot id; zero if unknown
	hdrOrdinaryOffset = 392 // u64
	hdrTallyOffset    = 400 // u64
	hdrTallyCount     = 408 // u32
	hdrTallySize      = 412 // u32
	hdrCheck          = 416 // u64: check of the words before it

	hdrState        = 512  // u64: stateLive or stateClosed
	hdrBell         = 576  // u32: counts the writer's rings; followers wait on it with futex(2)
	hdrWaiting      = 584  // u32: set by a follower that is about to wait, cleared by the writer that wakes it
	hdrOpHead       = 640  // u64: records ever reserved in the op ring
	hdrLifeHead     = 704  // u64: records ever reserved in the life ring
	hdrOverflow     = 768  // u64: communicators that found the table full
	hdrClock        = 832  // latch of two words: CLOCK_MONOTONIC and the time of day, ns, read together
	hdrExported     = 896  // i64, CLOCK_MONOTONIC: until when the process has exported its spans; 0: it doesn't say
	hdrDelivered    = 904  // i64, CLOCK_MONOTONIC: until when the spans of what had ended were taken; 0: it doesn't say
	hdrOrdinaryHead = 960  // u64: pages ever begun on the ordinary ring
	hdrTallies      = 1024 // u64: tallies ever begun
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

// Offsets in a slot. Both parts are latches (see latch).
const (
	slotInfoLatch = 0  // control word of the info part
	slotOpLatch   = 8  // control word of the operation part
	slotRepeat    = 16 // what has happened since the operation part was published; words as below
	slotOp        = 64 // two copies of slotOpWords
	slotInfo      = 192
	// 448 to 511 are reserved.
)

// Words of one copy of a slot's operation part.
const (
	opLaunched  = 0
	opNumber    = 1
	opKinds     = 2 // see packKinds; stage and code are 0
	opRanks     = 3 // peer i32, wait i32
	opBytes     = 4
	opStart     = 5
	opLastEnd   = 6
	opWaitSince = 7

	slotOpWords = 8
)

// Words of a slot's repeat part. They are stored one by one, which their order makes safe; see CommWriter.repeat.
const (
	repLaunched = 0 // as opLaunched; it counts if it is more
	repNumber   = 1
	repStart    = 2
	repEnded    = 3 // how many were launched when the last ended and none was in flight any more; it counts unless more are launched now
	repLastEnd  = 4

	slotRepeatWords = 5
)

// Words of a tally. The first, up to its check, are written once, before hdrTallies counts it.
const (
	tallyName         = 0  // text of 56 bytes
	tallyEngine       = 7  // text of 16 bytes
	tallyKind         = 9  // call, class of sizes u8
	tallyCheck        = 10 // check of the words before it
	tallyOrdinary     = 16 // operations that never had to wait, and were not slow
	tallyOrdinaryTime = 17 // what they took, ns
	tallyBytes        = 18 // of all
	tallyBandwidth    = 19 // sum of their bus bandwidths, MB/s, f64
	tallyDurations    = 20 // DurationBuckets words; those of short operations lie beside what each changes
	tallyOtherTime    = 34 // what the others took, ns
	tallySampled      = 35 // ordinary ones that are on the op ring
	tallyBandwidths   = 40 // BandwidthBuckets words
)

// Words of one copy of a slot's info part.
const (
	infoID     = 0 // 16 bytes
	infoParent = 2 // 16 bytes
	infoNumber = 4 // u32: the communicator's number in the process, from 1; 0: the slot is free. u8: state
	infoRank   = 5 // rank i32, size i32
	infoNodes  = 6 // nodes i32, root u32: the number of the communicator that it descends from
	infoEngine = 7 // text of 16 bytes
	infoName   = 9 // text of 56 bytes

	slotInfoWords = 16
	engineSize    = 16
	nameSize      = 56
)

// MaxName is how many bytes of a communicator's name the tape keeps.
const MaxName = nameSize - 1

// Kinds of a record, in its marker.
const (
	kindOp       = 1 // one moment of an operation; op ring
	kindLife     = 2 // one moment of an act; life ring, as all that follow
	kindComm     = 3 // what a communicator is; only word 3, the state and the tail count
	kindCommEnd  = 4 // a communicator gave its slot back
	kindContinue = 5 // 56 more bytes of the tail of the record before
	kindTallied  = 7 // the end of an operation that a tally counts; op ring
	kindOrdinary = 8 // that of one that it counts as ordinary, and that is sampled; op ring
	kindPage     = 9 // a page; ordinary ring
	kindCaller   = 6 // the caller's span of the operation whose start is the record behind it; op ring
)

// Words of a record. The first is its marker, see marker; the second the time.
const (
	recMarker = 0
	recTime   = 1

	// Op records.
	recOpSeq   = 2
	recOpKinds = 3 // see packKinds
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
	recLifeKinds  = 3 // act, call, stage, phase, state u8; from bit 48 code u16
	recLifePeer   = 4 // peer i32; length of the tail in bytes u32
	recLifeSeq    = 5
	recLifeStart  = 6
	recLifeComm   = 7 // number u32, slot i32
)

// Words of a page of the ordinary ring. The first are a record, whose check is over all of it; an operation in full is at pageFirst. Behind it are
// items until the first word that is zero.
const (
	pageSize  = 512
	pageWords = pageSize / wordSize

	pageComm  = 1 // number u32, slot i32
	pageFirst = 2
	pageItems = 8

	// An item in full has a word that says so before these.
	longItem   = 1 << 63
	longKinds  = 0 // call, data type, reduction, algorithm u8; peer i32
	longNumber = 1
	longBytes  = 2
	longStart  = 3
	longEnd    = 4
	longWords  = 6

	// A short item has the time from the start before it in the upper half, and what it took in the lower; all else is as before it,
	// and the number is the next.
	maxShort = 1 << 31
	lapShift = 31 // of the bit that lapBit gives

	recordsPerPage = 32 // on the op ring
	maxPages       = 1 << 15
)

// Fields of a tail: u8 tag, u16 length, the bytes. A reader passes over tags that it does not know.
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

	tailPerRecord = recordSize - wordSize
	maxContinue   = 36
	maxTail       = maxContinue * tailPerRecord
)

// What is kept of a record's texts, in bytes, so that the longest tail fits.
const (
	maxText = 1024
	maxSite = 160 // of each of the function's and the file's name
)

// fold is a check over words, quick rather than strong. It is what makes a record or a slot prove that it is whole, however it was
// torn: by a reader that copied it while it changed, by two writers a lap apart, or by a process that was killed while it wrote.
func fold(seed uint64, w ...uint64) uint32 {
	h := seed
	for i, x := range w {
		h ^= bits.RotateLeft64(x, 9*(i+1))
	}
	return mix(h)
}

func mix(h uint64) uint32 {
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15 // odd, and its bits look like noise: 2^64 divided by the golden ratio
	return uint32(h >> 32)
}

// fold7 and fold8 are fold, unrolled: they are on the way of each operation.
func fold7(seed, a, b, c, d, e, f, g uint64) uint32 {
	return mix(seed ^ bits.RotateLeft64(a, 9) ^ bits.RotateLeft64(b, 18) ^ bits.RotateLeft64(c, 27) ^ bits.RotateLeft64(d, 36) ^
		bits.RotateLeft64(e, 45) ^ bits.RotateLeft64(f, 54) ^ bits.RotateLeft64(g, 63))
}

func fold8(seed, a, b, c, d, e, f, g, h uint64) uint32 {
	return mix(seed ^ bits.RotateLeft64(a, 9) ^ bits.RotateLeft64(b, 18) ^ bits.RotateLeft64(c, 27) ^ bits.RotateLeft64(d, 36) ^
		bits.RotateLeft64(e, 45) ^ bits.RotateLeft64(f, 54) ^ bits.RotateLeft64(g, 63) ^ bits.RotateLeft64(h, 72))
}

// foldRecord is the check over a record's words behind the marker.
func foldRecord(index uint64, r *[recordWords]uint64) uint32 {
	return fold7(uint64(uint32(index)), r[1], r[2], r[3], r[4], r[5], r[6], r[7])
}

// marker is a record's first word, stored last: the low half of its index in the ring's whole history, its kind, and the upper 24
// bits of its check. A marker that fits says that the record is whole and is the one that was looked for.
func marker(index uint64, kind uint8, check uint32) uint64 {
	return index<<32 | uint64(kind)<<24 | uint64(check>>8)
}

// packKinds puts what stays the same of an operation's small fields into one word. The phase has the bits from 32 on; in a record,
// stage and code those from 40 and 48 on, and in a slot, the number of operations in flight those from 40 on.
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

// pages is how many pages of ordinary operations there are. The rings are powers of two, and so is this.
func (g geometry) pages() int { return min(g.op/recordsPerPage, maxPages) }
