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
		magic                          [8]byte
		version, slots, tallies        uint32
		lifeRecords, opRecords, pid    uint32
		fileSize, startTicks, pidSpace uint64
		kernelBoot                     [16]byte
		createdMono, createdWall       int64
		rank, jobSize                  int32
		slowAfter, stallAfter          int64
		bootID                         [40]byte
		host, job, program             [64]byte
		progVersion                    [40]byte
		check                          uint64
		_                              [120]byte
		state                          uint64
		_                              [56]byte
		bell, _, waiting, _            uint32
		_                              [48]byte
		opHead                         uint64
		_                              [56]byte
		lifeHead                       uint64
		_                              [56]byte
		ordinaryHead                   uint64
		_                              [56]byte
		tallyHead, overflow            uint64
		clock                          [2]struct{ marker, mono, wall uint64 }
		exported, delivered            int64
		terminated, seen               int64
		paused, resumed                int64
		_                              [headerSize - 944]byte
	}
	cOp struct {
		marker, launched, number                    uint64
		call, dataType, reduction, algorithm, phase uint8
		inFlight                                    [3]uint8
		peer, wait                                  int32
		bytes                                       uint64
		start, waitSince                            int64
	}
	cInfo struct {
		marker     uint64
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
		op          [2]cOp
		launched    uint64
		number      uint64
		start       int64
		ended       uint64
		lastEnd     int64
		begun, done uint64
		_           [8]byte
		info        [2]cInfo
		_           [48]byte
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
	cCaller struct {
		_      uint64
		_      int64
		trace  [16]byte
		span   [8]byte
		flags  uint8
		_      [7]byte
		seq    uint64
		number uint32
		_      int32
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
	var ca cCaller
	var ta cTally
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"header", unsafe.Sizeof(h), headerSize},
		{"slot", unsafe.Sizeof(s), slotSize},
		{"tally", unsafe.Sizeof(ta), tallySize},
		{"caller", unsafe.Sizeof(ca), recordSize},
		{"op record", unsafe.Sizeof(or), recordSize},
		{"life record", unsafe.Sizeof(lr), recordSize},
		{"op", unsafe.Sizeof(op), (1 + opWords) * wordSize},
		{"info", unsafe.Sizeof(info), (1 + infoWords) * wordSize},

		{"hdrMagic", unsafe.Offsetof(h.magic), hdrMagic},
		{"hdrVersion", unsafe.Offsetof(h.version), hdrVersion},
		{"hdrSlots", unsafe.Offsetof(h.slots), hdrSlots},
		{"hdrTallies", unsafe.Offsetof(h.tallies), hdrTallies},
		{"hdrLifeRecords", unsafe.Offsetof(h.lifeRecords), hdrLifeRecords},
		{"hdrOpRecords", unsafe.Offsetof(h.opRecords), hdrOpRecords},
		{"hdrPID", unsafe.Offsetof(h.pid), hdrPID},
		{"hdrFileSize", unsafe.Offsetof(h.fileSize), hdrFileSize},
		{"hdrStartTicks", unsafe.Offsetof(h.startTicks), hdrStartTicks},
		{"hdrPIDSpace", unsafe.Offsetof(h.pidSpace), hdrPIDSpace},
		{"hdrKernelBoot", unsafe.Offsetof(h.kernelBoot), hdrKernelBoot},
		{"hdrCreatedMono", unsafe.Offsetof(h.createdMono), hdrCreatedMono},
		{"hdrCreatedWall", unsafe.Offsetof(h.createdWall), hdrCreatedWall},
		{"hdrRank", unsafe.Offsetof(h.rank), hdrRank},
		{"hdrJobSize", unsafe.Offsetof(h.jobSize), hdrJobSize},
		{"hdrSlowAfter", unsafe.Offsetof(h.slowAfter), hdrSlowAfter},
		{"hdrStallAfter", unsafe.Offsetof(h.stallAfter), hdrStallAfter},
		{"hdrBootID", unsafe.Offsetof(h.bootID), hdrBootID},
		{"hdrHost", unsafe.Offsetof(h.host), hdrHost},
		{"hdrJob", unsafe.Offsetof(h.job), hdrJob},
		{"hdrProgram", unsafe.Offsetof(h.program), hdrProgram},
		{"hdrProgVersion", unsafe.Offsetof(h.progVersion), hdrProgVersion},
		{"hdrCheck", unsafe.Offsetof(h.check), hdrCheck},
		{"hdrState", unsafe.Offsetof(h.state), hdrState},
		{"hdrBell", unsafe.Offsetof(h.bell), hdrBell},
		{"hdrWaiting", unsafe.Offsetof(h.waiting), hdrWaiting},
		{"hdrOpHead", unsafe.Offsetof(h.opHead), hdrOpHead},
		{"hdrLifeHead", unsafe.Offsetof(h.lifeHead), hdrLifeHead},
		{"hdrOrdinaryHead", unsafe.Offsetof(h.ordinaryHead), hdrOrdinaryHead},
		{"hdrTallyHead", unsafe.Offsetof(h.tallyHead), hdrTallyHead},
		{"hdrOverflow", unsafe.Offsetof(h.overflow), hdrOverflow},
		{"hdrClock", unsafe.Offsetof(h.clock), hdrClock},
		{"hdrExported", unsafe.Offsetof(h.exported), hdrExported},
		{"hdrDelivered", unsafe.Offsetof(h.delivered), hdrDelivered},
		{"hdrTerminated", unsafe.Offsetof(h.terminated), hdrTerminated},
		{"hdrSeen", unsafe.Offsetof(h.seen), hdrSeen},
		{"hdrPaused", unsafe.Offsetof(h.paused), hdrPaused},
		{"hdrResumed", unsafe.Offsetof(h.resumed), hdrResumed},

		{"slotOp", unsafe.Offsetof(s.op), slotOp},
		{"slotLaunched", unsafe.Offsetof(s.launched), slotLaunched},
		{"slotNumber", unsafe.Offsetof(s.number), slotNumber},
		{"slotStart", unsafe.Offsetof(s.start), slotStart},
		{"slotEnded", unsafe.Offsetof(s.ended), slotEnded},
		{"slotLastEnd", unsafe.Offsetof(s.lastEnd), slotLastEnd},
		{"slotBegun", unsafe.Offsetof(s.begun), slotBegun},
		{"slotDone", unsafe.Offsetof(s.done), slotDone},
		{"slotInfo", unsafe.Offsetof(s.info), slotInfo},

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

		{"opLaunched", unsafe.Offsetof(op.launched), (1 + opLaunched) * wordSize},
		{"opNumber", unsafe.Offsetof(op.number), (1 + opNumber) * wordSize},
		{"opKinds", unsafe.Offsetof(op.call), (1 + opKinds) * wordSize},
		{"opRanks", unsafe.Offsetof(op.peer), (1 + opRanks) * wordSize},
		{"opBytes", unsafe.Offsetof(op.bytes), (1 + opBytes) * wordSize},
		{"opStart", unsafe.Offsetof(op.start), (1 + opStart) * wordSize},
		{"opWaitSince", unsafe.Offsetof(op.waitSince), (1 + opWaitSince) * wordSize},

		{"infoID", unsafe.Offsetof(info.id), (1 + infoID) * wordSize},
		{"infoParent", unsafe.Offsetof(info.parent), (1 + infoParent) * wordSize},
		{"infoNumber", unsafe.Offsetof(info.number), (1 + infoNumber) * wordSize},
		{"infoRank", unsafe.Offsetof(info.rank), (1 + infoRank) * wordSize},
		{"infoNodes", unsafe.Offsetof(info.nodes), (1 + infoNodes) * wordSize},
		{"infoEngine", unsafe.Offsetof(info.engine), (1 + infoEngine) * wordSize},
		{"infoName", unsafe.Offsetof(info.name), (1 + infoName) * wordSize},

		{"recMarker", unsafe.Offsetof(or.marker), recMarker * wordSize},
		{"recTime", unsafe.Offsetof(or.time), recTime * wordSize},
		{"recOpSeq", unsafe.Offsetof(or.seq), recOpSeq * wordSize},
		{"recOpKinds", unsafe.Offsetof(or.call), recOpKinds * wordSize},
		{"recOpRanks", unsafe.Offsetof(or.peer), recOpRanks * wordSize},
		{"recOpBytes", unsafe.Offsetof(or.bytes), recOpBytes * wordSize},
		{"recOpStart", unsafe.Offsetof(or.start), recOpStart * wordSize},
		{"recOpComm", unsafe.Offsetof(or.number), recOpComm * wordSize},

		{"recCallerTrace", unsafe.Offsetof(ca.trace), recCallerTrace * wordSize},
		{"recCallerSpan", unsafe.Offsetof(ca.span), recCallerSpan * wordSize},
		{"recCallerFlags", unsafe.Offsetof(ca.flags), recCallerFlags * wordSize},
		{"recCallerSeq", unsafe.Offsetof(ca.seq), recCallerSeq * wordSize},
		{"caller's recOpComm", unsafe.Offsetof(ca.number), recOpComm * wordSize},

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
	w := newTape(t, Config{
		Job: "job", Host: "host", BootID: "boot", Program: "prog", Version: "v1", Rank: 3, JobSize: 9,
		Slots: 2, Tallies: 2, OpRecords: 128, LifeRecords: 128, SampleEvery: -1, Slow: 4, Stall: 5,
	})
	w.Terminated(6)
	w.Saw(7)
	first := w.Comm(CommInfo{ID: lifecycle.CommID{9}})
	c := w.Comm(CommInfo{
		ID: lifecycle.CommID{0: 1, 15: 2}, Parent: lifecycle.CommID{0: 3, 15: 4}, Name: "rails", Rank: 5, Size: 6,
		Nodes: 7, Engine: "host",
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
			"magic": string(h.magic[:]), "version": h.version, "size": h.fileSize,
			"counts": []uint32{h.slots, h.tallies, h.lifeRecords, h.opRecords}, "pid": int(h.pid),
			"texts": []string{text(h.bootID[:]), text(h.host[:]), text(h.job[:]), text(h.program[:]), text(h.progVersion[:])},
			"job":   []int32{h.rank, h.jobSize}, "limits": []int64{h.slowAfter, h.stallAfter},
			"state": h.state, "heads": []uint64{h.opHead, h.lifeHead}, "times": []int64{h.terminated, h.seen},
		},
		fields{
			"magic": "CARILLON", "version": uint32(3), "size": uint64(24576),
			"counts": []uint32{2, 2, 128, 128}, "pid": os.Getpid(),
			"texts": []string{"boot", "host", "job", "prog", "v1"}, "job": []int32{3, 9}, "limits": []int64{4, 5},
			// Three descriptions of two, three and three records, then an act of one and its tail's.
			"state": uint64(stateLive), "heads": []uint64{3, 2 + 3 + 3 + 2}, "times": []int64{6, 7},
		})

	const slotsAt, lifeAt, opsAt = 4096, 6144, 14336
	s := (*cSlot)(unsafe.Pointer(&b[slotsAt+slotSize]))
	op, info := s.op[0], s.info[0]
	if s.op[1].marker>>32 > op.marker>>32 {
		op = s.op[1]
	}
	if s.info[1].marker>>32 > info.marker>>32 {
		info = s.info[1]
	}
	check("operation",
		fields{
			"seqs": []uint64{op.launched, op.number}, "in flight": op.inFlight,
			"kinds": []uint8{op.call, op.dataType, op.reduction, op.algorithm, op.phase},
			"ranks": []int32{op.peer, op.wait}, "bytes": op.bytes, "started": op.start > 0, "waits": op.waitSince >= op.start,
			"collectives": []uint64{s.begun, s.done}, "ended": s.lastEnd,
		},
		fields{
			"seqs": []uint64{seq, 77}, "in flight": [3]uint8{1},
			"kinds": []uint8{uint8(lifecycle.CallReduce), 11, 12, 15, uint8(PhaseTransfer)},
			"ranks": []int32{13, 2}, "bytes": uint64(14), "started": true, "waits": true, "collectives": []uint64{77, 0},
			"ended": int64(0),
		})
	check("info",
		fields{
			"id": info.id, "parent": info.parent, "number": info.number, "root": info.root, "state": info.state,
			"shape": []int32{info.rank, info.size, info.nodes}, "texts": []string{text(info.engine[:]), text(info.name[:])},
		},
		fields{
			"id": [16]byte{0: 1, 15: 2}, "parent": [16]byte{0: 3, 15: 4}, "number": uint32(2), "root": uint32(1),
			"state": uint8(lifecycle.StateFinalizing),
			"shape": []int32{5, 6, 7}, "texts": []string{"host", "rails"},
		})

	or := (*cOpRecord)(unsafe.Pointer(&b[opsAt+2*recordSize]))
	check("op record",
		fields{
			"marker": or.marker >> 24, "seq": or.seq,
			"kinds": []uint8{or.call, or.dataType, or.reduction, or.algorithm, or.phase, or.stage},
			"ranks": []int32{or.peer, or.wait}, "bytes": or.bytes, "same start": or.start == op.start, "number": or.number,
			"slot": or.slot,
		},
		fields{
			"marker": uint64(2<<8 | kindOp), "seq": uint64(77),
			"kinds": []uint8{uint8(lifecycle.CallReduce), 11, 12, 15, uint8(PhaseTransfer), uint8(StageWait)},
			"ranks": []int32{13, 2}, "bytes": uint64(14), "same start": true, "number": uint32(2), "slot": int32(1),
		})

	lr := (*cLifeRecord)(unsafe.Pointer(&b[lifeAt+8*recordSize]))
	more := b[lifeAt+9*recordSize:]
	check("life record",
		fields{
			"marker": lr.marker >> 24, "time": lr.time, "op head": lr.opHead,
			"kinds": []uint8{lr.act, lr.call, lr.stage, lr.phase, lr.state, lr.zero},
			"code":  lr.code, "peer": lr.peer, "seq": lr.seq, "start": lr.start, "number": lr.number, "slot": lr.slot,
			"tail": string(more[8 : 8+lr.tail]),
			"next": more[3],
		},
		fields{
			"marker": uint64(8<<8 | kindLife), "time": int64(21), "op head": uint64(3),
			"kinds": []uint8{
				uint8(ActSplit), uint8(lifecycle.CallSplit), uint8(StageEnd), uint8(PhaseConnect),
				uint8(lifecycle.StateFailed), 0,
			},
			"code": uint16(lifecycle.CodeMismatch), "peer": int32(24), "seq": uint64(22), "start": int64(23),
			"number": uint32(1), "slot": int32(0),
			"tail": "\x01\x02\x00ab\x0c\x00\x00", "next": uint8(kindContinue),
		})
}

// store is marker, unrolled: both must be one function.
func TestCheck(t *testing.T) {
	var r [recordWords]uint64
	store(&r, 1<<32|8, 5, 3, 1<<63, 4, 1, 5, 9, 2)
	if want := marker(8, 5, r[1:]); r[0] != want || r[2] != 1<<63 || r[7] != 2 {
		t.Errorf("store writes %#x, and marker is %#x", r, want)
	}
	// A writer in another language can be held against this number.
	if got, want := check(1, []uint64{2, 3}), uint64(0x9f735053); got != want {
		t.Errorf("check(1, 2, 3) is %#x, want %#x", got, want)
	}
}
