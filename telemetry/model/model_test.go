package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const ms = int64(time.Millisecond)

var (
	world     = tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	allReduce = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
)

// process is a Process that gets events of world, as generation 1, with times in milliseconds.
type process struct{ *model.Process }

func newProcess(limits model.Limits) process { return process{model.New(limits)} }

func (p process) life(at int64, r tape.LifeRecord) model.Step {
	r.Time, r.Start = at*ms, r.Start*ms
	return p.Apply(&tape.Event{Comm: world, Generation: 1, IsLife: true, Life: r})
}

func (p process) act(at int64, stage tape.Stage, act tape.Act, seq uint64, start int64) model.Step {
	return p.life(at, tape.LifeRecord{Stage: stage, Act: act, Seq: seq, Start: start, Peer: -1})
}

func (p process) op(at int64, stage tape.Stage, seq uint64, start int64, wait int32) model.Step {
	return p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
		Time: at * ms, Stage: stage, Seq: seq, Start: start * ms, Signature: allReduce, Wait: wait,
		Phase: tape.PhaseTransfer,
	}})
}

func slot(generation uint32, seq uint64, start int64, inFlight bool) tape.Slot {
	s := tape.Slot{
		CommInfo: world, Generation: generation, Launched: seq, Completed: seq, Seq: seq, Op: allReduce,
		OpStart: start * ms, Wait: -1, State: lifecycle.StateReady,
	}
	if inFlight {
		s.Completed, s.Phase = seq-1, tape.PhaseTransfer
	}
	return s
}

// String shows what is in progress, a line for each communicator.
func (p process) String() string {
	var b strings.Builder
	for c := range p.Comms() {
		fmt.Fprintf(&b, "%d %s:", c.Generation, c.State)
		for _, a := range c.Acts {
			fmt.Fprintf(&b, " %s %d since %d", a.Kind, a.Seq, a.Start/ms)
			if a.Phase != tape.PhaseNone {
				fmt.Fprintf(&b, " in %s", a.Phase)
			}
			b.WriteByte(';')
		}
		if o := c.InFlight(); o != nil {
			fmt.Fprintf(&b, " %s %d since %d", o.Signature.Call, o.Seq, o.Start/ms)
			if o.Wait >= 0 {
				fmt.Fprintf(&b, " waits for %d since %d", o.Wait, o.WaitSince/ms)
			}
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " begun %d done %d", c.Begun, c.Done)
		if c.Failure != nil {
			fmt.Fprintf(&b, " failed %s", c.Failure.Code)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (p process) expect(t *testing.T, when, want string) {
	t.Helper()
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestLife follows a communicator from its init to its end.
func TestLife(t *testing.T) {
	p := newProcess(model.Limits{})
	if s := p.act(10, tape.StageStart, tape.ActInit, 0, 0); !s.Began || s.Act.Start != 10*ms {
		t.Errorf("the step of the start is %+v", s)
	}
	p.life(11, tape.LifeRecord{Stage: tape.StagePhase, Act: tape.ActInit, Phase: tape.PhaseRendezvous, Peer: -1})
	p.life(12, tape.LifeRecord{
		Stage: tape.StagePhase, Act: tape.ActInit, Phase: tape.PhaseConnect, Peer: -1, Text: "why",
	})
	p.expect(t, "in an init", "1 none: init 0 since 10 in connect; begun 0 done 0\n")
	s := p.life(15, tape.LifeRecord{
		Stage: tape.StageEnd, Act: tape.ActInit, Start: 10, State: lifecycle.StateReady, Peer: -1,
	})
	want := []model.Phase{
		{Phase: tape.PhaseRendezvous, Start: 11 * ms, End: 12 * ms},
		{Phase: tape.PhaseConnect, Start: 12 * ms, End: 15 * ms, Text: "why"},
	}
	if diff := cmp.Diff(want, s.Act.Phases); diff != "" || s.Act.End != 15*ms || s.Began {
		t.Errorf("the init ended at %d with phases (-want +got):\n%s", s.Act.End, diff)
	}
	p.expect(t, "after it", "1 ready: begun 0 done 0\n")
	p.act(20, tape.StageStart, tape.ActSplit, 1, 0)
	p.act(30, tape.StageEnd, tape.ActAbort, 0, 29)
	p.expect(t, "after an abort", "")
	if open := p.OpenActs(); len(open) != 1 || open[0].Kind != tape.ActSplit {
		t.Errorf("open are %v: the split's end comes after the abort's", open)
	}
	if s = p.act(31, tape.StageEnd, tape.ActSplit, 1, 20); s.Began || len(p.OpenActs()) != 0 {
		t.Errorf("the split's end is that of another: %+v", s)
	}
	if ended := p.Ended(); len(ended) != 1 || ended[0] != s.Comm || ended[0].End.Kind != tape.ActAbort {
		t.Errorf("ended are %v", ended)
	}
	p.Look([]tape.Slot{slot(1, 1, 0, false)}, nil) // the table was read before the abort
	p.expect(t, "a look at an older table", "")
}

// TestOverdue: for operations on a device, ends are ends of launches; an operation whose start is recorded again is not
// done.
func TestOverdue(t *testing.T) {
	p := newProcess(model.Limits{})
	op := func(at int64, stage tape.Stage, seq uint64, start int64, wait int32) {
		device := world
		device.Engine = "host+cuda"
		p.Apply(&tape.Event{Comm: device, Generation: 1, Op: tape.OpRecord{
			Time: at * ms, Stage: stage, Seq: seq, Start: start * ms, Signature: allReduce, Wait: wait,
		}})
	}
	op(11, tape.StageEnd, 1, 10, -1)
	op(21, tape.StageEnd, 2, 20, -1)
	p.expect(t, "two were launched", "1 none: begun 2 done 2\n")
	op(1010, tape.StageStart, 1, 10, -1)
	op(1011, tape.StageWait, 1, 10, 3)
	op(1021, tape.StageEnd, 3, 1020, -1)
	p.expect(t, "the first is not done", "1 none: all_reduce 1 since 10 waits for 3 since 1011; begun 3 done 0\n")
	op(2000, tape.StageEnd, 1, 10, -1)
	p.expect(t, "it is", "1 none: begun 3 done 1\n")
}

// TestOperations begins several operations, which wait and end in any order.
func TestOperations(t *testing.T) {
	p := newProcess(model.Limits{})
	p.op(12, tape.StageWait, 2, 11, 3) // its start is recorded only now that it waits
	p.op(13, tape.StageWait, 1, 10, 2)
	p.expect(t, "two wait", "1 none: all_reduce 1 since 10 waits for 2 since 13; begun 2 done 0\n")
	p.op(15, tape.StageWait, 1, 10, 0)
	s := p.op(16, tape.StageEnd, 1, 10, -1)
	if o := s.Op; o.End != 16*ms || o.Wait != 0 || o.Longest != (model.Wait{Rank: 2, Time: 2 * ms, Ops: 1}) {
		t.Errorf("it ended as %+v", o)
	}
	p.expect(t, "the first ended", "1 none: all_reduce 2 since 11 waits for 3 since 12; begun 2 done 1\n")
	if o := p.op(20, tape.StageEnd, 3, 19, -1).Op; o.Start != 19*ms || o.Wait != -1 {
		t.Errorf("of one that never waited there is only its end: %+v", o)
	}
	if last := s.Comm.Last; last.Seq != 3 {
		t.Errorf("the last one was %d", last.Seq)
	}
	for seq := range uint64(1000) {
		p.op(30, tape.StageStart, 10+seq, 30+int64(seq), -1)
	}
	if n := len(s.Comm.Ops); n > 64 || s.Comm.InFlight().Seq != 2 {
		t.Errorf("%d operations are remembered, the oldest is %d", n, s.Comm.InFlight().Seq)
	}
	p.Look([]tape.Slot{slot(1, 2000, 2000, true)}, nil)
	p.expect(t, "all but one are past", "1 ready: all_reduce 2000 since 2000; begun 1009 done 3\n")
}

// TestFailure: a failure is reported once, with the rank that the operation waited for.
func TestFailure(t *testing.T) {
	p := newProcess(model.Limits{})
	p.op(11, tape.StageWait, 7, 10, 3)
	failure := tape.LifeRecord{
		Stage: tape.StageEnd, Call: lifecycle.CallAllReduce, Seq: 7, Code: lifecycle.CodeTimeout, Peer: 3,
		State: lifecycle.StateFailed,
	}
	s := p.life(20, failure)
	if f := s.Comm.Failure; !s.Failed || f.Wait != -1 || f.Peer != 3 {
		t.Errorf("the failure is %+v", f)
	}
	if s = p.life(21, failure); s.Failed {
		t.Error("it failed a second time")
	}
	s = p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
		Time: 22 * ms, Stage: tape.StageEnd, Seq: 7, Start: 10 * ms, Signature: allReduce, Code: lifecycle.CodeTimeout,
	}})
	if f := s.Comm.Failure; f.Wait != 3 {
		t.Errorf("it waited for %d", f.Wait)
	}
	p.expect(t, "at the end", "1 failed: begun 7 done 0 failed timeout\n")
}

// The last operation is the one that ended last, but not one that failed because of another one's failure.
func TestLastFailed(t *testing.T) {
	p := newProcess(model.Limits{})
	end := func(at int64, seq uint64, code lifecycle.Code, phase tape.Phase) {
		p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: at * ms, Stage: tape.StageEnd, Seq: seq, Start: at*ms - 1, Signature: allReduce, Wait: -1, Code: code,
			Phase: phase,
		}})
	}
	for i, c := range []struct {
		code  lifecycle.Code
		phase tape.Phase
		last  uint64
		kept  lifecycle.Code
	}{
		{lifecycle.CodeOK, tape.PhaseNone, 1, lifecycle.CodeOK},
		{lifecycle.CodeInvalidArgument, tape.PhaseRefused, 2, lifecycle.CodeInvalidArgument},
		{lifecycle.CodeMismatch, tape.PhaseNone, 3, lifecycle.CodeMismatch},
		{lifecycle.CodeFailed, tape.PhaseNone, 3, lifecycle.CodeMismatch},
	} {
		end(int64(i+1), uint64(i+1), c.code, c.phase)
		now := slot(1, uint64(i+1), int64(i+1), false)
		now.LastEnd = int64(i+1) * ms
		p.Look([]tape.Slot{now}, nil)
		for comm := range p.Comms() {
			if comm.Last.Seq != c.last || comm.Last.Code != c.kept {
				t.Errorf("after the end of operation %d the last one is %d, want %d", i+1, comm.Last.Seq, c.last)
			}
		}
	}
}

// A group that the program ends late doesn't affect a group job that runs meanwhile.
func TestOpenGroupBesideAJob(t *testing.T) {
	p := newProcess(model.Limits{})
	p.act(10, tape.StageStart, tape.ActGroup, 3, 0)
	open := tape.LifeRecord{Act: tape.ActGroup, Call: lifecycle.CallGroupStart, Seq: 1_000_000_001, Peer: -1}
	open.Stage = tape.StageStart
	p.life(20, open)
	open.Stage = tape.StageEnd
	if s := p.life(30, open); len(s.Dropped) != 0 || len(s.Comm.Acts) != 1 || s.Comm.Acts[0].Seq != 3 {
		t.Errorf("%d dropped, %d open", len(s.Dropped), len(s.Comm.Acts))
	}
}

// The groups that a program had not ended on a communicator may be why that failed: they are known after its end, too.
func TestOpenGroupOfAFailed(t *testing.T) {
	for failed, want := range map[bool]int{false: 0, true: 1} {
		p := newProcess(model.Limits{})
		p.life(20, tape.LifeRecord{
			Act: tape.ActGroup, Call: lifecycle.CallGroupStart, Seq: 1_000_000_001, Stage: tape.StageStart, Peer: -1,
		})
		if failed {
			p.life(30, tape.LifeRecord{
				Stage: tape.StageEnd, Call: lifecycle.CallAllReduce, Seq: 7, Code: lifecycle.CodeMismatch, Peer: 1,
				State: lifecycle.StateFailed,
			})
		}
		p.act(40, tape.StageStart, tape.ActDestroy, 0, 0)
		s := p.act(41, tape.StageEnd, tape.ActDestroy, 0, 40)
		if got := len(s.Comm.OpenActs()); got != want {
			t.Errorf("of a communicator that failed %t, %d groups are open after its end, want %d", failed, got, want)
		}
	}
}

// TestDropped has acts whose ends were missed.
func TestDropped(t *testing.T) {
	p := newProcess(model.Limits{})
	for seq := range uint64(3) {
		p.act(10+int64(seq), tape.StageStart, tape.ActGroup, seq, 0)
	}
	if s := p.act(20, tape.StageEnd, tape.ActGroup, 2, 12); len(s.Dropped) != 2 || len(s.Comm.Acts) != 0 {
		t.Errorf("groups are made one after another: %d dropped, %d open", len(s.Dropped), len(s.Comm.Acts))
	}
	p.act(30, tape.StageStart, tape.ActSplit, 1, 0)
	if s := p.act(31, tape.StageStart, tape.ActSplit, 1, 0); len(s.Dropped) != 1 || len(s.Comm.Acts) != 1 {
		t.Errorf("one that begins anew: %d dropped, %d open", len(s.Dropped), len(s.Comm.Acts))
	}
	p.Look(nil, nil)
	p.expect(t, "gone from one table, which may be older", "1 none: split 1 since 31; begun 0 done 0\n")
	p.Look(nil, nil)
	p.expect(t, "gone from two", "")
	other := &tape.Event{Comm: world, Generation: 2, Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce}}
	if s := p.Apply(other); len(s.Dropped) != 1 || s.Dropped[0].Kind != tape.ActSplit {
		t.Errorf("the next step tells of %v", s.Dropped)
	}
	if s := p.Apply(other); s.Dropped != nil {
		t.Error("it is told twice")
	}
	for seq := range uint64(2000) {
		p.act(40, tape.StageStart, tape.ActGrow, seq, 0)
	}
	if n := len(p.OpenActs()); n > 1024 {
		t.Errorf("%d acts are open", n)
	}
}

// TestLook: the table shows what the rings don't.
func TestLook(t *testing.T) {
	p := newProcess(model.Limits{})
	waiting := slot(1, 5, 100, true)
	waiting.Wait, waiting.WaitSince = 2, 110*ms
	p.Look([]tape.Slot{waiting, slot(2, 3, 90, false)}, nil)
	p.expect(t, "at first",
		"1 ready: all_reduce 5 since 100 waits for 2 since 110; begun 0 done 0\n2 ready: begun 0 done 0\n")
	o := p.Comm(1).InFlight()
	if s := p.op(105, tape.StageStart, 5, 100, -1); s.Op != o {
		t.Error("the record of its start makes another operation of it")
	}
	for seq := range uint64(1000) { // most ordinary operations have no records
		p.Look([]tape.Slot{slot(1, 6+seq, 200+int64(seq), true), slot(2, 3, 90, false)}, nil)
	}
	p.expect(t, "many later", "1 ready: all_reduce 1005 since 1199; begun 5 done 0\n2 ready: begun 0 done 0\n")
	if n := len(p.Comm(1).Ops); n > 2 {
		t.Errorf("%d operations are remembered: the one with a record, and the one in flight", n)
	}
	p.Look([]tape.Slot{slot(1, 1006, 1200, false)}, nil)
	p.Forget([]tape.Slot{slot(2, 3, 90, false)})
	p.expect(t, "the other ended a moment ago, and its end is unread",
		"1 ready: begun 5 done 0\n2 ready: begun 0 done 0\n")
	p.Forget(nil)
	p.expect(t, "idle, and the other is gone", "1 ready: begun 5 done 0\n")
}

// TestOldTable has an operation end between the reading of the table and the look at it.
func TestOldTable(t *testing.T) {
	p := newProcess(model.Limits{})
	p.op(10, tape.StageStart, 1, 10, -1)
	p.op(20, tape.StageEnd, 1, 10, -1)
	p.Look([]tape.Slot{slot(1, 1, 10, true)}, nil)
	p.expect(t, "it has ended", "1 ready: begun 1 done 1\n")
}

// TestSlotless keeps a communicator that found no place in the table for as long as it has an open act.
func TestSlotless(t *testing.T) {
	p := newProcess(model.Limits{})
	ev := tape.Event{Comm: world, Slot: -1, Generation: 1, IsLife: true, Life: tape.LifeRecord{
		Stage: tape.StageStart, Act: tape.ActInit, Time: 10 * ms,
	}}
	p.Apply(&ev)
	p.Look(nil, nil)
	p.Look(nil, nil)
	p.Forget(nil)
	p.expect(t, "in its init", "1 none: init 0 since 10; begun 0 done 0\n")
	ev.Life.Stage = tape.StageEnd
	p.Apply(&ev)
	p.Forget(nil)
	p.expect(t, "after it", "")
}

// TestUndescribed has an event of a communicator that the tape doesn't describe.
func TestUndescribed(t *testing.T) {
	p := newProcess(model.Limits{})
	undescribed := tape.Event{
		Generation: 1, IsLife: true, Life: tape.LifeRecord{Stage: tape.StageEnd, Act: tape.ActInit},
	}
	if s := p.Apply(&undescribed); s.Comm != nil || s.Act != nil || s.Info().Name != "" {
		t.Errorf("the step is %+v", s)
	}
	p.act(10, tape.StageStart, tape.ActInit, 0, 0)
	if s := p.Apply(&undescribed); s.Comm == nil || s.Act == nil || s.Info().Name != "world" {
		t.Errorf("described before, the step is %+v", s)
	}
}

// TestWaits sums up for which ranks operations waited.
func TestWaits(t *testing.T) {
	p := newProcess(model.Limits{})
	at := int64(1000)
	for seq := range uint64(10) {
		p.op(at, tape.StageWait, seq, at-1, int32(seq%2))
		at += 100
		p.op(at, tape.StageWait, seq, at-101, -1)
		p.op(at, tape.StageEnd, seq, at-101, -1)
	}
	waits, over := p.Comm(1).Waits(at * ms)
	want := []model.Wait{{Rank: 0, Time: 500 * ms, Ops: 5}, {Rank: 1, Time: 500 * ms, Ops: 5}}
	if diff := cmp.Diff(want, waits); diff != "" || over != 1000*ms {
		t.Errorf("over %v (-want +got):\n%s", time.Duration(over), diff)
	}
	// An operation that waits for a rank a second time is one all the same.
	p.op(at, tape.StageWait, 9, at-101, 1)
	at += 100
	p.op(at, tape.StageWait, 9, at-201, -1)
	want[1].Time += 100 * ms
	if waits, _ = p.Comm(1).Waits(at * ms); !cmp.Equal(want, waits) {
		t.Errorf("waited twice: %+v, want %+v", waits, want)
	}
	// Only a part of a long wait counts, but its whole time is known, too.
	p.op(at, tape.StageWait, 11, at, 1)
	at += 3000
	p.op(at, tape.StageWait, 11, at-3000, -1)
	waits, over = p.Comm(1).Waits(at * ms)
	want[1] = model.Wait{Rank: 1, Time: 1600 * ms, Ops: 6, Long: 1, LongTime: 3000 * ms}
	if diff := cmp.Diff(want, waits); diff != "" || over != 4100*ms || waits[1].Whole() != 3600*ms {
		t.Errorf("over %v (-want +got):\n%s", time.Duration(over), diff)
	}
	// A window that begins with a long wait includes only the part that counts.
	p = newProcess(model.Limits{})
	p.op(0, tape.StageWait, 1, 0, 1)
	p.op(60_000, tape.StageWait, 1, 0, -1)
	waits, over = p.Comm(1).Waits(60_000 * ms)
	want = []model.Wait{{Rank: 1, Time: 1000 * ms, Ops: 1}}
	if diff := cmp.Diff(want, waits); diff != "" || over != 1000*ms {
		t.Errorf("over %v (-want +got):\n%s", time.Duration(over), diff)
	}
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits model.Limits
		want   bool
	}{
		"defaults":         {model.Limits{}, true},
		"floor below slow": {model.Limits{Floor: 100 * time.Millisecond}, true},
		"slow above floor": {model.Limits{Slow: 6 * time.Second}, false},
		"negative":         {model.Limits{Floor: -1}, false},
		"too little":       {model.Limits{Slow: time.Microsecond}, false},
		"too much":         {model.Limits{Floor: 48 * time.Hour}, false},
	} {
		if got := c.limits.Valid(); got != c.want {
			t.Errorf("%s: valid %v, want %v", name, got, c.want)
		}
	}
}

// ordinary is an operation that never waited.
func ordinary() *tape.Event {
	return &tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
		Stage: tape.StageEnd, Signature: allReduce, Start: ms, Time: 2 * ms, Wait: -1,
	}}
}

func TestApplyDoesNotAllocate(t *testing.T) {
	p := newProcess(model.Limits{})
	ev := ordinary()
	for range 2000 { // until the history is full
		p.Apply(ev)
	}
	if n := testing.AllocsPerRun(1000, func() {
		ev.Op.Seq++
		p.Apply(ev)
	}); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}

// BenchmarkApply takes an operation that never waited.
func BenchmarkApply(b *testing.B) {
	p := newProcess(model.Limits{})
	ev := ordinary()
	b.ReportAllocs()
	for b.Loop() {
		ev.Op.Seq++
		p.Apply(ev)
	}
}

// BenchmarkLook takes a table of ten thousand communicators that each have an operation in flight: always the same one,
// or a new one each time.
func BenchmarkLook(b *testing.B) {
	for _, moving := range []bool{false, true} {
		b.Run(fmt.Sprintf("moving=%v", moving), func(b *testing.B) {
			p := newProcess(model.Limits{})
			var slots []tape.Slot
			for i := range 10_000 {
				s := slot(uint32(i+1), 1, 1, true)
				s.Root = 1 // all are of one rank
				slots = append(slots, s)
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range slots {
					if moving {
						slots[i].Seq++
						slots[i].OpStart++
					}
				}
				p.Look(slots, nil)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(slots)), "ns/communicator")
		})
	}
}

// A shrink's start says which ranks it leaves out; a tape may contain any text.
func TestWithout(t *testing.T) {
	for text, want := range map[string][]int{
		"without ranks 3,5-7": {3, 5, 6, 7}, "without ranks 4,...": {4, model.OtherRanks}, "": nil, "ranks 3": nil,
		"without ranks ": {model.OtherRanks}, "without ranks 1,x": {1, model.OtherRanks},
		"without ranks 0-99999999": {model.OtherRanks}, "without ranks 5-3": {model.OtherRanks},
	} {
		p := newProcess(model.Limits{})
		p.life(5, tape.LifeRecord{Stage: tape.StageStart, Act: tape.ActShrink, Seq: 1, Start: 5, Peer: -1, Text: text})
		for c := range p.Comms() {
			if got := c.Acts[0].Without(); !slices.Equal(got, want) {
				t.Errorf("%q leaves out %v, want %v", text, got, want)
			}
		}
	}
}
