package tape

import (
	"os"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The layout once more, as a C compiler would lay it out.
type (
	cHeader struct {
		magic                       [8]byte
		version, headerSize         uint32
		fileSize                    uint64
		slotOffset                  uint64
		slotCount, slotSize         uint32
		lifeOffset                  uint64
		lifeCount, recordSize       uint32
		opOffset                    uint64
		opCount, pid                uint32
		startTicks, pidSpace        uint64
		createdMono, createdWall    int64
		bootID                      [40]byte
		host, job, program          [64]byte
		progVersion                 [40]byte
		kernelBoot                  [16]byte
		ordinaryOffset, tallyOffset uint64
		tallyCount, tallySize       uint32
		check                       uint64
		_                           [88]byte
		state                       uint64
		_                           [56]byte
		bell, _                     uint32
		waiting, _                  uint32
		_                           [48]byte
		opHead                      uint64
		_                           [56]byte
		lifeHead                    uint64
		_                           [56]byte
		overflow                    uint64
		_                           [56]byte
		clockControl                uint64
		clock                       [2]struct{ mono, wall int64 }
		_                           [24]byte
		exported                    int64
		delivered                   int64
		_                           [48]byte
		ordinaryHead                uint64
		_                           [56]byte
		tallies                     uint64
		_                           [headerSize - 1024 - 8]byte
	}
	cOp struct {
		launched, number                            uint64
		call, dataType, reduction, algorithm, phase uint8
		inFlight                                    [3]uint8
		peer, wait                                  int32
		bytes                                       uint64
		start, lastEnd, waitSince                   int64
	}
	cInfo struct {
		id, parent [16]byte
		number     uint32
		state      uint8
		_          [3]byte
		rank, size int32
		nodes      int32
		root       uint32
		engine     [16]byte
		name       [56]byte
	}
	cRepeat struct {
		launched, number uint64
		start            int64
		ended            uint64
		lastEnd          int64
	}
	cTally struct {
		name                          [56]byte
		engine                        [16]byte
		call, sizeClass               uint8
		_                             [6]byte
		check                         uint64
		_                             [40]byte
		ordinary, ordinaryTime, bytes uint64
		bandwidth                     float64
		durations                     [14]uint64
		otherTime, sampled            uint64
		_                             [32]byte
		bandwidths                    [12]uint64
		_                             [96]byte
	}
	cSlot struct {
		infoControl, opControl uint64
		repeat                 cRepeat
		_                      [8]byte
		op                     [2]cOp
		info                   [2]cInfo
		_                      [64]byte
	}
	cOpRecord struct {
		marker                                             uint64
		time                                               int64
		seq                                                uint64
		call, dataType, reduction, algorithm, phase, stage uint8
		code                                               uint16
		peer, wait                                         int32
		bytes                                              uint64
		start                                              int64
		number                                             uint32
		slot                                               int32
	}
	cLifeRecord struct {
		marker                               uint64
		time                                 int64
		opHead                               uint64
		act, call, stage, phase, state, zero uint8
		code                                 uint16
		peer                                 int32
		tail                                 uint32
		seq                                  uint64
		start                                int64
		number                               uint32
		slot                                 int32
	}
)

func TestOffsets(t *testing.T) {
	var h cHeader
	var s cSlot
	var op cOp
	var info cInfo
	var or cOpRecord
	var lr cLifeRecord
	var re cRepeat
	var ta cTally
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"header", unsafe.Sizeof(h), headerSize},
		{"slot", unsafe.Sizeof(s), slotSize},
		{"tally", unsafe.Sizeof(ta), tallySize},
		{"repeat", unsafe.Sizeof(re), slotRepeatWords * wordSize},
		{"op record", unsafe.Sizeof(or), recordSize},
		{"life record", unsafe.Sizeof(lr), recordSize},
		{"op", unsafe.Sizeof(op), slotOpWords * wordSize},
		{"info", unsafe.Sizeof(info), slotInfoWords * wordSize},

		{"hdrMagic", unsafe.Offsetof(h.magic), hdrMagic},
		{"hdrVersion", unsafe.Offsetof(h.version), hdrVersion},
		{"hdrHeaderSize", unsafe.Offsetof(h.headerSize), hdrHeaderSize},
		{"hdrFileSize", unsafe.Offsetof(h.fileSize), hdrFileSize},
		{"hdrSlotOffset", unsafe.Offsetof(h.slotOffset), hdrSlotOffset},
		{"hdrSlotCount", unsafe.Offsetof(h.slotCount), hdrSlotCount},
		{"hdrSlotSize", unsafe.Offsetof(h.slotSize), hdrSlotSize},
		{"hdrLifeOffset", unsafe.Offsetof(h.lifeOffset), hdrLifeOffset},
		{"hdrLifeCount", unsafe.Offsetof(h.lifeCount), hdrLifeCount},
		{"hdrRecordSize", unsafe.Offsetof(h.recordSize), hdrRecordSize},
		{"hdrOpOffset", unsafe.Offsetof(h.opOffset), hdrOpOffset},
		{"hdrOpCount", unsafe.Offsetof(h.opCount), hdrOpCount},
		{"hdrPID", unsafe.Offsetof(h.pid), hdrPID},
		{"hdrStartTicks", unsafe.Offsetof(h.startTicks), hdrStartTicks},
		{"hdrPIDSpace", unsafe.Offsetof(h.pidSpace), hdrPIDSpace},
		{"hdrCreatedMono", unsafe.Offsetof(h.createdMono), hdrCreatedMono},
		{"hdrCreatedWall", unsafe.Offsetof(h.createdWall), hdrCreatedWall},
		{"hdrBootID", unsafe.Offsetof(h.bootID), hdrBootID},
		{"hdrHost", unsafe.Offsetof(h.host), hdrHost},
		{"hdrJob", unsafe.Offsetof(h.job), hdrJob},
		{"hdrProgram", unsafe.Offsetof(h.program), hdrProgram},
		{"hdrProgVersion", unsafe.Offsetof(h.progVersion), hdrProgVersion},
		{"hdrKernelBoot", unsafe.Offsetof(h.kernelBoot), hdrKernelBoot},
		{"hdrOrdinaryOffset", unsafe.Offsetof(h.ordinaryOffset), hdrOrdinaryOffset},
		{"hdrTallyOffset", unsafe.Offsetof(h.tallyOffset), hdrTallyOffset},
		{"hdrTallyCount", unsafe.Offsetof(h.tallyCount), hdrTallyCount},
		{"hdrTallySize", unsafe.Offsetof(h.tallySize), hdrTallySize},
		{"hdrCheck", unsafe.Offsetof(h.check), hdrCheck},
		{"hdrState", unsafe.Offsetof(h.state), hdrState},
		{"hdrBell", unsafe.Offsetof(h.bell), hdrBell},
		{"hdrWaiting", unsafe.Offsetof(h.waiting), hdrWaiting},
		{"hdrOpHead", unsafe.Offsetof(h.opHead), hdrOpHead},
		{"hdrLifeHead", unsafe.Offsetof(h.lifeHead), hdrLifeHead},
		{"hdrOverflow", unsafe.Offsetof(h.overflow), hdrOverflow},
		{"hdrClock", unsafe.Offsetof(h.clockControl), hdrClock},
		{"hdrExported", unsafe.Offsetof(h.exported), hdrExported},
		{"hdrDelivered", unsafe.Offsetof(h.delivered), hdrDelivered},
		{"hdrOrdinaryHead", unsafe.Offsetof(h.ordinaryHead), hdrOrdinaryHead},
		{"hdrTallies", unsafe.Offsetof(h.tallies), hdrTallies},

		{"slotInfoLatch", unsafe.Offsetof(s.infoControl), slotInfoLatch},
		{"slotOpLatch", unsafe.Offsetof(s.opControl), slotOpLatch},
		{"slotRepeat", unsafe.Offsetof(s.repeat), slotRepeat},
		{"slotOp", unsafe.Offsetof(s.op), slotOp},
		{"slotInfo", unsafe.Offsetof(s.info), slotInfo},

		{"repLaunched", unsafe.Offsetof(re.launched), repLaunched * wordSize},
		{"repNumber", unsafe.Offsetof(re.number), repNumber * wordSize},
		{"repStart", unsafe.Offsetof(re.start), repStart * wordSize},
		{"repEnded", unsafe.Offsetof(re.ended), repEnded * wordSize},
		{"repLastEnd", unsafe.Offsetof(re.lastEnd), repLastEnd * wordSize},

		{"tallyName", unsafe.Offsetof(ta.name), tallyName * wordSize},
		{"tallyEngine", unsafe.Offsetof(ta.engine), tallyEngine * wordSize},
		{"tallyKind", unsafe.Offsetof(ta.call), tallyKind * wordSize},
		{"tallyCheck", unsafe.Offsetof(ta.check), tallyCheck * wordSize},
		{"tallyOrdinary", unsafe.Offsetof(ta.ordinary), tallyOrdinary * wordSize},
		{"tallyOrdinaryTime", unsafe.Offsetof(ta.ordinaryTime), tallyOrdinaryTime * wordSize},
		{"tallyBytes", unsafe.Offsetof(ta.bytes), tallyBytes * wordSize},
		{"tallyBandwidth", unsafe.Offsetof(ta.bandwidth), tallyBandwidth * wordSize},
		{"tallyDurations", unsafe.Offsetof(ta.durations), tallyDurations * wordSize},
		{"tallySampled", unsafe.Offsetof(ta.sampled), tallySampled * wordSize},
		{"tallyOtherTime", unsafe.Offsetof(ta.otherTime), tallyOtherTime * wordSize},
		{"tallyBandwidths", unsafe.Offsetof(ta.bandwidths), tallyBandwidths * wordSize},

		{"opLaunched", unsafe.Offsetof(op.launched), opLaunched * wordSize},
		{"opNumber", unsafe.Offsetof(op.number), opNumber * wordSize},
		{"opKinds", unsafe.Offsetof(op.call), opKinds * wordSize},
		{"opRanks", unsafe.Offsetof(op.peer), opRanks * wordSize},
		{"opBytes", unsafe.Offsetof(op.bytes), opBytes * wordSize},
		{"opStart", unsafe.Offsetof(op.start), opStart * wordSize},
		{"opLastEnd", unsafe.Offsetof(op.lastEnd), opLastEnd * wordSize},
		{"opWaitSince", unsafe.Offsetof(op.waitSince), opWaitSince * wordSize},

		{"infoID", unsafe.Offsetof(info.id), infoID * wordSize},
		{"infoParent", unsafe.Offsetof(info.parent), infoParent * wordSize},
		{"infoNumber", unsafe.Offsetof(info.number), infoNumber * wordSize},
		{"infoRank", unsafe.Offsetof(info.rank), infoRank * wordSize},
		{"infoNodes", unsafe.Offsetof(info.nodes), infoNodes * wordSize},
		{"infoEngine", unsafe.Offsetof(info.engine), infoEngine * wordSize},
		{"infoName", unsafe.Offsetof(info.name), infoName * wordSize},

		{"recMarker", unsafe.Offsetof(or.marker), recMarker * wordSize},
		{"recTime", unsafe.Offsetof(or.time), recTime * wordSize},
		{"recOpSeq", unsafe.Offsetof(or.seq), recOpSeq * wordSize},
		{"recOpKinds", unsafe.Offsetof(or.call), recOpKinds * wordSize},
		{"recOpRanks", unsafe.Offsetof(or.peer), recOpRanks * wordSize},
		{"recOpBytes", unsafe.Offsetof(or.bytes), recOpBytes * wordSize},
		{"recOpStart", unsafe.Offsetof(or.start), recOpStart * wordSize},
		{"recOpComm", unsafe.Offsetof(or.number), recOpComm * wordSize},

		{"recLifeOpHead", unsafe.Offsetof(lr.opHead), recLifeOpHead * wordSize},
		{"recLifeKinds", unsafe.Offsetof(lr.act), recLifeKinds * wordSize},
		{"recLifePeer", unsafe.Offsetof(lr.peer), recLifePeer * wordSize},
		{"recLifeSeq", unsafe.Offsetof(lr.seq), recLifeSeq * wordSize},
		{"recLifeStart", unsafe.Offsetof(lr.start), recLifeStart * wordSize},
		{"recLifeComm", unsafe.Offsetof(lr.number), recLifeComm * wordSize},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %d, a compiler says %d", tt.name, tt.want, tt.got)
		}
	}
}

// What the writer wrote, read through the compiler's layout and not through the package's own decoder.
func TestBytesOnFile(t *testing.T) {
	w := newTape(t, Config{Job: "job", Host: "host", BootID: "boot", Program: "prog", Version: "v1", Slots: 2, Tallies: 2, OpRecords: 128, LifeRecords: 128, SampleEvery: -1})
	first := w.Comm(CommInfo{ID: lifecycle.CommID{9}})
	c := w.Comm(CommInfo{
		ID: lifecycle.CommID{0: 1, 15: 2}, Parent: lifecycle.CommID{0: 3, 15: 4}, Name: "rails", Rank: 5, Size: 6, Nodes: 7, Engine: "host",
	})
	c.From(first)
	c.State(lifecycle.StateFinalizing)
	seq := c.Start(77, Signature{Call: lifecycle.CallReduce, DataType: 11, Reduction: 12, Peer: 13, Bytes: 14}, 15)
	c.Phase(PhaseTransfer)
	c.Wait(2)
	first.Life(LifeRecord{
		Time: 21, Act: ActSplit, Call: lifecycle.CallSplit, Stage: StageEnd, Seq: 22, Start: 23, Phase: PhaseConnect,
		Code: lifecycle.CodeMismatch, State: lifecycle.StateFailed, Peer: 24, Text: "ab", Shared: true,
	})
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	h := (*cHeader)(unsafe.Pointer(&b[0]))
	text := func(b []byte) string { return string(getText(b)) }
	type fields map[string]any
	check := func(what string, got, want fields) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("header",
		fields{
			"magic": string(h.magic[:]), "version": h.version, "sizes": []uint32{h.headerSize, h.slotSize, h.tallySize, h.recordSize},
			"counts":  []uint32{h.slotCount, h.tallyCount, h.lifeCount, h.opCount},
			"offsets": []uint64{h.slotOffset, h.tallyOffset, h.lifeOffset, h.opOffset, h.ordinaryOffset, h.fileSize},
			"pid":     int(h.pid), "texts": []string{text(h.bootID[:]), text(h.host[:]), text(h.job[:]), text(h.program[:]), text(h.progVersion[:])},
			"state": h.state, "heads": []uint64{h.opHead, h.lifeHead},
		},
		fields{
			"magic": "CARILLON", "version": uint32(2), "sizes": []uint32{4096, 512, 512, 64},
			"counts": []uint32{2, 2, 128, 128}, "offsets": []uint64{4096, 5120, 6144, 14336, 22528, 24576},
			"pid": os.Getpid(), "texts": []string{"boot", "host", "job", "prog", "v1"},
			// Two descriptions of two and three records, then an act of one and its tail's.
			"state": uint64(stateLive), "heads": []uint64{3, 2 + 3 + 2},
		})

	s := (*cSlot)(unsafe.Pointer(&b[h.slotOffset+slotSize]))
	op, info := s.op[s.opControl>>32&1], s.info[s.infoControl>>32&1]
	check("operation",
		fields{
			"seqs": []uint64{op.launched, op.number}, "in flight": op.inFlight, "kinds": []uint8{op.call, op.dataType, op.reduction, op.algorithm, op.phase},
			"ranks": []int32{op.peer, op.wait}, "bytes": op.bytes, "started": op.start > 0, "waits": op.waitSince >= op.start, "ended": op.lastEnd,
		},
		fields{
			"seqs": []uint64{seq, 77}, "in flight": [3]uint8{1}, "kinds": []uint8{uint8(lifecycle.CallReduce), 11, 12, 15, uint8(PhaseTransfer)},
			"ranks": []int32{13, 2}, "bytes": uint64(14), "started": true, "waits": true, "ended": int64(0),
		})
	check("info",
		fields{
			"id": info.id, "parent": info.parent, "number": info.number, "root": info.root, "state": info.state,
			"shape": []int32{info.rank, info.size, info.nodes}, "texts": []string{text(info.engine[:]), text(info.name[:])},
		},
		fields{
			"id": [16]byte{0: 1, 15: 2}, "parent": [16]byte{0: 3, 15: 4}, "number": uint32(2), "root": uint32(1), "state": uint8(lifecycle.StateFinalizing),
			"shape": []int32{5, 6, 7}, "texts": []string{"host", "rails"},
		})

	or := (*cOpRecord)(unsafe.Pointer(&b[h.opOffset+2*recordSize]))
	check("op record",
		fields{
			"marker": or.marker >> 24, "seq": or.seq, "kinds": []uint8{or.call, or.dataType, or.reduction, or.algorithm, or.phase, or.stage},
			"ranks": []int32{or.peer, or.wait}, "bytes": or.bytes, "same start": or.start == op.start, "number": or.number, "slot": or.slot,
		},
		fields{
			"marker": uint64(2<<8 | kindOp), "seq": uint64(77),
			"kinds": []uint8{uint8(lifecycle.CallReduce), 11, 12, 15, uint8(PhaseTransfer), uint8(StageWait)},
			"ranks": []int32{13, 2}, "bytes": uint64(14), "same start": true, "number": uint32(2), "slot": int32(1),
		})

	lr := (*cLifeRecord)(unsafe.Pointer(&b[h.lifeOffset+5*recordSize]))
	more := b[h.lifeOffset+6*recordSize:]
	check("life record",
		fields{
			"marker": lr.marker >> 24, "time": lr.time, "op head": lr.opHead, "kinds": []uint8{lr.act, lr.call, lr.stage, lr.phase, lr.state, lr.zero},
			"code": lr.code, "peer": lr.peer, "seq": lr.seq, "start": lr.start, "number": lr.number, "slot": lr.slot, "tail": string(more[8 : 8+lr.tail]),
			"next": more[3],
		},
		fields{
			"marker": uint64(5<<8 | kindLife), "time": int64(21), "op head": uint64(3),
			"kinds": []uint8{uint8(ActSplit), uint8(lifecycle.CallSplit), uint8(StageEnd), uint8(PhaseConnect), uint8(lifecycle.StateFailed), 0},
			"code":  uint16(lifecycle.CodeMismatch), "peer": int32(24), "seq": uint64(22), "start": int64(23), "number": uint32(1), "slot": int32(0),
			"tail": "\x01\x02\x00ab\x0c\x00\x00", "next": uint8(kindContinue),
		})
}

// fold and its unrolled forms must be one function.
func TestFold(t *testing.T) {
	w := []uint64{3, 1 << 63, 4, 1, 5, 9, 2, 6}
	if got, want := fold7(8, w[0], w[1], w[2], w[3], w[4], w[5], w[6]), fold(8, w[:7]...); got != want {
		t.Errorf("fold7 is %#x, fold is %#x", got, want)
	}
	if got, want := fold8(8, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]), fold(8, w...); got != want {
		t.Errorf("fold8 is %#x, fold is %#x", got, want)
	}
	// A writer in another language can be held against this number.
	if got, want := fold(1, 2, 3), uint32(0x30d05734); got != want {
		t.Errorf("fold(1, 2, 3) is %#x, want %#x", got, want)
	}
}
