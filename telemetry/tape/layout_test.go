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
		marked, _                      uint32
		check                          uint64
		_                              [112]byte
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
		exporter, run                  uint64
		_                              [headerSize - 960]byte
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
		captured    uint64
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
	var gh header
	var gs slot
	var gt tally
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"header", unsafe.Sizeof(h), headerSize},
		{"header in Go", unsafe.Sizeof(gh), headerSize},
		{"slot", unsafe.Sizeof(s), slotSize},
		{"slot in Go", unsafe.Sizeof(gs), slotSize},
		{"tally", unsafe.Sizeof(ta), tallySize},
		{"tally in Go", unsafe.Sizeof(gt), tallySize},
		{"caller", unsafe.Sizeof(ca), recordSize},
		{"op record", unsafe.Sizeof(or), recordSize},
		{"life record", unsafe.Sizeof(lr), recordSize},
		{"op", unsafe.Sizeof(op), unsafe.Sizeof(gs.op[0])},
		{"info", unsafe.Sizeof(info), unsafe.Sizeof(gs.info[0])},

		{"header magic", unsafe.Offsetof(h.magic), unsafe.Offsetof(gh.magic)},
		{"header version", unsafe.Offsetof(h.version), unsafe.Offsetof(gh.version)},
		{"header slots", unsafe.Offsetof(h.slots), unsafe.Offsetof(gh.slots)},
		{"header tallies", unsafe.Offsetof(h.tallies), unsafe.Offsetof(gh.tallies)},
		{"header lifeRecords", unsafe.Offsetof(h.lifeRecords), unsafe.Offsetof(gh.lifeRecords)},
		{"header opRecords", unsafe.Offsetof(h.opRecords), unsafe.Offsetof(gh.opRecords)},
		{"header pid", unsafe.Offsetof(h.pid), unsafe.Offsetof(gh.pid)},
		{"header fileSize", unsafe.Offsetof(h.fileSize), unsafe.Offsetof(gh.fileSize)},
		{"header startTicks", unsafe.Offsetof(h.startTicks), unsafe.Offsetof(gh.startTicks)},
		{"header pidSpace", unsafe.Offsetof(h.pidSpace), unsafe.Offsetof(gh.pidSpace)},
		{"header kernelBoot", unsafe.Offsetof(h.kernelBoot), unsafe.Offsetof(gh.kernelBoot)},
		{"header createdMono", unsafe.Offsetof(h.createdMono), unsafe.Offsetof(gh.createdMono)},
		{"header createdWall", unsafe.Offsetof(h.createdWall), unsafe.Offsetof(gh.createdWall)},
		{"header rank", unsafe.Offsetof(h.rank), unsafe.Offsetof(gh.rank)},
		{"header jobSize", unsafe.Offsetof(h.jobSize), unsafe.Offsetof(gh.jobSize)},
		{"header slowAfter", unsafe.Offsetof(h.slowAfter), unsafe.Offsetof(gh.slowAfter)},
		{"header stallAfter", unsafe.Offsetof(h.stallAfter), unsafe.Offsetof(gh.stallAfter)},
		{"header bootID", unsafe.Offsetof(h.bootID), unsafe.Offsetof(gh.bootID)},
		{"header host", unsafe.Offsetof(h.host), unsafe.Offsetof(gh.host)},
		{"header job", unsafe.Offsetof(h.job), unsafe.Offsetof(gh.job)},
		{"header program", unsafe.Offsetof(h.program), unsafe.Offsetof(gh.program)},
		{"header progVersion", unsafe.Offsetof(h.progVersion), unsafe.Offsetof(gh.progVersion)},
		{"header check", unsafe.Offsetof(h.check), unsafe.Offsetof(gh.check)},
		{"header changing", unsafe.Offsetof(h.state), changingAt},
		{"header changing in Go", unsafe.Offsetof(gh.changing), changingAt},
		{"bellAt", unsafe.Offsetof(h.bell), bellAt},
		{"waitingAt", unsafe.Offsetof(h.waiting), waitingAt},
		{"header bell", unsafe.Offsetof(h.bell), changingAt + unsafe.Offsetof(gh.changing.bell)},
		{"header waiting", unsafe.Offsetof(h.waiting), changingAt + unsafe.Offsetof(gh.changing.waiting)},
		{"header opHead", unsafe.Offsetof(h.opHead), changingAt + unsafe.Offsetof(gh.changing.opHead)},
		{"header lifeHead", unsafe.Offsetof(h.lifeHead), changingAt + unsafe.Offsetof(gh.changing.lifeHead)},
		{
			"header ordinaryHead", unsafe.Offsetof(h.ordinaryHead),
			changingAt + unsafe.Offsetof(gh.changing.ordinaryHead),
		},
		{"header tallyHead", unsafe.Offsetof(h.tallyHead), changingAt + unsafe.Offsetof(gh.changing.tallyHead)},
		{"header overflow", unsafe.Offsetof(h.overflow), changingAt + unsafe.Offsetof(gh.changing.overflow)},
		{"header clock", unsafe.Offsetof(h.clock), changingAt + unsafe.Offsetof(gh.changing.clock)},
		{"header exported", unsafe.Offsetof(h.exported), changingAt + unsafe.Offsetof(gh.changing.exported)},
		{"header delivered", unsafe.Offsetof(h.delivered), changingAt + unsafe.Offsetof(gh.changing.delivered)},
		{"header terminated", unsafe.Offsetof(h.terminated), changingAt + unsafe.Offsetof(gh.changing.terminated)},
		{"header seen", unsafe.Offsetof(h.seen), changingAt + unsafe.Offsetof(gh.changing.seen)},
		{"header paused", unsafe.Offsetof(h.paused), changingAt + unsafe.Offsetof(gh.changing.paused)},
		{"header resumed", unsafe.Offsetof(h.resumed), changingAt + unsafe.Offsetof(gh.changing.resumed)},
		{"header exporter", unsafe.Offsetof(h.exporter), changingAt + unsafe.Offsetof(gh.changing.exporter)},
		{"header run", unsafe.Offsetof(h.run), changingAt + unsafe.Offsetof(gh.changing.run)},

		{"slot op", unsafe.Offsetof(s.op), unsafe.Offsetof(gs.op)},
		{"slot launched", unsafe.Offsetof(s.launched), unsafe.Offsetof(gs.launched)},
		{"slot number", unsafe.Offsetof(s.number), unsafe.Offsetof(gs.number)},
		{"slot start", unsafe.Offsetof(s.start), unsafe.Offsetof(gs.start)},
		{"slot ended", unsafe.Offsetof(s.ended), unsafe.Offsetof(gs.ended)},
		{"slot lastEnd", unsafe.Offsetof(s.lastEnd), unsafe.Offsetof(gs.lastEnd)},
		{"slot begun", unsafe.Offsetof(s.begun), unsafe.Offsetof(gs.begun)},
		{"slot done", unsafe.Offsetof(s.done), unsafe.Offsetof(gs.done)},
		{"slot info", unsafe.Offsetof(s.info), unsafe.Offsetof(gs.info)},

		{"tally name", unsafe.Offsetof(ta.name), unsafe.Offsetof(gt.name)},
		{"tally engine", unsafe.Offsetof(ta.engine), unsafe.Offsetof(gt.engine)},
		{"tally call", unsafe.Offsetof(ta.call), unsafe.Offsetof(gt.call)},
		{"tally sizeClass", unsafe.Offsetof(ta.sizeClass), unsafe.Offsetof(gt.sizeClass)},
		{"tally check", unsafe.Offsetof(ta.check), unsafe.Offsetof(gt.check)},
		{"tally ordinary", unsafe.Offsetof(ta.ordinary), unsafe.Offsetof(gt.ordinary)},
		{"tally ordinaryTime", unsafe.Offsetof(ta.ordinaryTime), unsafe.Offsetof(gt.ordinaryTime)},
		{"tally bytes", unsafe.Offsetof(ta.bytes), unsafe.Offsetof(gt.bytes)},
		{"tally bandwidth", unsafe.Offsetof(ta.bandwidth), unsafe.Offsetof(gt.bandwidth)},
		{"tally durations", unsafe.Offsetof(ta.durations), unsafe.Offsetof(gt.durations)},
		{"tally otherTime", unsafe.Offsetof(ta.otherTime), unsafe.Offsetof(gt.otherTime)},
		{"tally sampled", unsafe.Offsetof(ta.sampled), unsafe.Offsetof(gt.sampled)},
		{"tally bandwidths", unsafe.Offsetof(ta.bandwidths), unsafe.Offsetof(gt.bandwidths)},

		{"operation launched", unsafe.Offsetof(op.launched), wordSize + unsafe.Offsetof(gs.op[0].value.launched)},
		{"operation number", unsafe.Offsetof(op.number), wordSize + unsafe.Offsetof(gs.op[0].value.number)},
		{"operation kinds", unsafe.Offsetof(op.call), wordSize + unsafe.Offsetof(gs.op[0].value.kinds)},
		{"operation ranks", unsafe.Offsetof(op.peer), wordSize + unsafe.Offsetof(gs.op[0].value.ranks)},
		{"operation bytes", unsafe.Offsetof(op.bytes), wordSize + unsafe.Offsetof(gs.op[0].value.bytes)},
		{"operation start", unsafe.Offsetof(op.start), wordSize + unsafe.Offsetof(gs.op[0].value.start)},
		{"operation waitSince", unsafe.Offsetof(op.waitSince), wordSize + unsafe.Offsetof(gs.op[0].value.waitSince)},

		{"info id", unsafe.Offsetof(info.id), wordSize + unsafe.Offsetof(gs.info[0].value.id)},
		{"info parent", unsafe.Offsetof(info.parent), wordSize + unsafe.Offsetof(gs.info[0].value.parent)},
		{"info number", unsafe.Offsetof(info.number), wordSize + unsafe.Offsetof(gs.info[0].value.number)},
		{"info state", unsafe.Offsetof(info.state), wordSize + unsafe.Offsetof(gs.info[0].value.state)},
		{"info rank", unsafe.Offsetof(info.rank), wordSize + unsafe.Offsetof(gs.info[0].value.rank)},
		{"info size", unsafe.Offsetof(info.size), wordSize + unsafe.Offsetof(gs.info[0].value.size)},
		{"info nodes", unsafe.Offsetof(info.nodes), wordSize + unsafe.Offsetof(gs.info[0].value.nodes)},
		{"info root", unsafe.Offsetof(info.root), wordSize + unsafe.Offsetof(gs.info[0].value.root)},
		{"info engine", unsafe.Offsetof(info.engine), wordSize + unsafe.Offsetof(gs.info[0].value.engine)},
		{"info name", unsafe.Offsetof(info.name), wordSize + unsafe.Offsetof(gs.info[0].value.name)},

		{"recMarker", unsafe.Offsetof(or.marker), recMarker * wordSize},
		{"recTime", unsafe.Offsetof(or.time), recTime * wordSize},
		{"recSeq", unsafe.Offsetof(or.seq), recSeq * wordSize},
		{"recKinds", unsafe.Offsetof(or.call), recKinds * wordSize},
		{"recRanks", unsafe.Offsetof(or.peer), recRanks * wordSize},
		{"recBytes", unsafe.Offsetof(or.bytes), recBytes * wordSize},
		{"recStart", unsafe.Offsetof(or.start), recStart * wordSize},
		{"recComm", unsafe.Offsetof(or.number), recComm * wordSize},
		{"recCallerTrace", unsafe.Offsetof(ca.trace), recCallerTrace * wordSize},
		{"recCallerSpan", unsafe.Offsetof(ca.span), recCallerSpan * wordSize},
		{"recCallerFlags", unsafe.Offsetof(ca.flags), recCallerFlags * wordSize},
		{"recCallerSeq", unsafe.Offsetof(ca.seq), recCallerSeq * wordSize},
		{"caller's recComm", unsafe.Offsetof(ca.number), recComm * wordSize},
		{"recLifeOpHead", unsafe.Offsetof(lr.opHead), recLifeOpHead * wordSize},
		{"recLifeKinds", unsafe.Offsetof(lr.act), recLifeKinds * wordSize},
		{"recLifePeer", unsafe.Offsetof(lr.peer), recLifePeer * wordSize},
		{"recLifeSeq", unsafe.Offsetof(lr.seq), recLifeSeq * wordSize},
		{"recStart", unsafe.Offsetof(lr.start), recStart * wordSize},
		{"recComm", unsafe.Offsetof(lr.number), recComm * wordSize},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %d, a compiler says %d", tt.name, tt.want, tt.got)
		}
	}
}

// The writer's bytes, read through the compiler's layout and not through the package's own decoder.
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
			"texts": []string{
				text(h.bootID[:]), text(h.host[:]), text(h.job[:]), text(h.program[:]), text(h.progVersion[:]),
			},
			"job": []int32{h.rank, h.jobSize}, "limits": []int64{h.slowAfter, h.stallAfter},
			"state": h.state, "heads": []uint64{h.opHead, h.lifeHead}, "times": []int64{h.terminated, h.seen},
		},
		fields{
			"magic": "CARILLON", "version": uint32(5), "size": uint64(34816),
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
			"ranks": []int32{op.peer, op.wait}, "bytes": op.bytes, "started": op.start > 0,
			"waits": op.waitSince >= op.start, "collectives": []uint64{s.begun, s.done}, "ended": s.lastEnd,
		},
		fields{
			"seqs": []uint64{seq, 77}, "in flight": [3]uint8{1},
			"kinds": []uint8{uint8(lifecycle.CallReduce), 11, 12, 15, uint8(PhaseTransfer)},
			"ranks": []int32{13, 2}, "bytes": uint64(14), "started": true, "waits": true,
			"collectives": []uint64{77, 0}, "ended": int64(0),
		})
	check("info",
		fields{
			"id": info.id, "parent": info.parent, "number": info.number, "root": info.root, "state": info.state,
			"shape": []int32{info.rank, info.size, info.nodes},
			"texts": []string{text(info.engine[:]), text(info.name[:])},
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
			"ranks": []int32{or.peer, or.wait}, "bytes": or.bytes, "same start": or.start == op.start,
			"number": or.number, "slot": or.slot,
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
	var r record
	store(&r, 1<<32|8, 5, 3, 1<<63, 4, 1, 5, 9, 2)
	if want := marker(8, 5, r[1:]); r[0] != want || r[2] != 1<<63 || r[7] != 2 {
		t.Errorf("store writes %#x, and marker is %#x", r, want)
	}
	// A writer in another language can be checked against this number.
	if got, want := check(1, []uint64{2, 3}), uint64(0x9f735053); got != want {
		t.Errorf("check(1, 2, 3) is %#x, want %#x", got, want)
	}
}
