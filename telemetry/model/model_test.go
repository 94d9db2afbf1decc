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
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const ms = int64(time.Millisecond)

var (
	world     = tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	allReduce = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
)

// process is a Process that is told of world, as generation 1, with times in milliseconds.
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

// String is what goes on, a line for each communicator.
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
	p.Look([]tape.Slot{slot(1, 1, 0, false)}, nil) // which was read before the abort
	p.expect(t, "a look at an older table", "")
}

// TestOverdue: of operations on a device, ends are those of launches; one whose start comes again is not done.
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

// TestOperations begins several, which wait and end in any order.
func TestOperations(t *testing.T) {
	p := newProcess(model.Limits{})
	p.op(12, tape.StageWait, 2, 11, 3) // its start is told only now that it waits
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

// TestFailure tells it once, with the rank that the operation waited for.
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

// TestDropped has acts of which the ends were missed.
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

// TestLook has the table tell what the rings don't.
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
	for seq := range uint64(1000) { // an ordinary operation has no records, but for a few
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

// TestThresholds grow with what is normal, for a kind and size alone.
func TestThresholds(t *testing.T) {
	p := newProcess(model.Limits{})
	check := func(when string, o *model.Op, slow, stalled time.Duration) {
		t.Helper()
		if gotSlow, gotStalled := p.Thresholds(o); gotSlow != int64(slow) || gotStalled != int64(stalled) {
			t.Errorf("%s: slow at %v, stalled at %v; want %v and %v",
				when, time.Duration(gotSlow), time.Duration(gotStalled), slow, stalled)
		}
	}
	o, large := &model.Op{Signature: allReduce}, &model.Op{Signature: allReduce}
	large.Signature.Bytes = 1 << 30
	check("nothing known", o, time.Second, 5*time.Second)
	for seq := range uint64(10) {
		p.op(int64(seq)*2000+2000, tape.StageEnd, seq, int64(seq)*2000+1, -1)
	}
	p.op(100_000, tape.StageEnd, 10, 100_000-3600, -1)
	if n := p.Normal(o); n < int64(1900*time.Millisecond) ||
		n > int64(2300*time.Millisecond) {
		t.Errorf("it normally takes %v, of 2 s", time.Duration(n))
	}
	check("another size", large, time.Second, 5*time.Second)

	tally := tape.Tally{
		Call: allReduce.Call, SizeClass: tape.SizeClass(1 << 30), Ordinary: 100,
		OrdinaryTime: 400 * time.Second,
	}
	p.Look(nil, []tape.Tally{tally})
	check("counted in a tally", large, 8*time.Second, 32*time.Second)
	p.Look(nil, []tape.Tally{tally})
	check("nothing new in it", large, 8*time.Second, 32*time.Second)

	for seq := range uint64(5) {
		p.act(int64(seq)*4000+3000, tape.StageEnd, tape.ActSplit, seq, int64(seq)*4000)
	}
	if slow, stalled := p.Thresholds(&model.Act{Kind: tape.ActSplit}); slow != 6000*ms || stalled != 24_000*ms {
		t.Errorf("a split of 3 s is slow at %v, stalled at %v", time.Duration(slow), time.Duration(stalled))
	}
	if slow, stalled := p.Thresholds(&model.Act{Kind: tape.ActInit}); slow != 1000*ms || stalled != 5000*ms {
		t.Errorf("an init is slow at %v, stalled at %v", time.Duration(slow), time.Duration(stalled))
	}
}

// TestStalledAndPaused asks at several times, with a pause of the process in between.
func TestStalledAndPaused(t *testing.T) {
	p := newProcess(model.Limits{Slow: time.Second, Floor: 3 * time.Second})
	late := func(now int64) (all []uint32) {
		for _, c := range p.Late(now * ms) {
			all = append(all, c.Generation)
		}
		return all
	}
	p.act(0, tape.StageStart, tape.ActInit, 0, 0)
	p.Look([]tape.Slot{slot(1, 1, 500, false), slot(2, 1, 1000, true)}, nil)
	a, o := p.Comm(1).Acts[0], p.Comm(2).InFlight()
	watch := stall.New(p.Process)
	for _, tt := range []struct {
		now         int64
		act, op     bool
		news        bool
		late        int
		resumed     bool
		description string
	}{
		{now: 999, description: "young"},
		{now: 1999, late: 1, description: "the init is slow"},
		{now: 3000, act: true, news: true, late: 2, description: "it stalls"},
		{now: 3500, act: true, late: 2, description: "no news"},
		{now: 4000, act: true, op: true, news: true, late: 2, description: "the operation stalls, too"},
		{
			now: 60_000, resumed: true, act: true, op: true, late: 2,
			description: "what stalled before the pause still does",
		},
	} {
		if tt.resumed {
			p.Resumed(4001*ms, tt.now*ms)
		}
		if got := len(late(tt.now)); got != tt.late {
			t.Errorf("%s: %d late, want %d", tt.description, got, tt.late)
		}
		news := slices.ContainsFunc(watch.Check(tt.now*ms), stall.Report.News)
		if p.Stalled(a, tt.now*ms) != tt.act || p.Stalled(o, tt.now*ms) != tt.op || news != tt.news {
			t.Errorf("%s: the act %v, the operation %v, news %v", tt.description, p.Stalled(a, tt.now*ms),
				p.Stalled(o, tt.now*ms), news)
		}
	}
	if p.Age(500*ms, 61_000*ms) != 4501*ms || p.Age(4000*ms, 61_000*ms) != 1001*ms ||
		p.Age(4001*ms, 61_000*ms) != 1000*ms || p.Age(60_500*ms, 61_000*ms) != 500*ms || p.Awake(61_000*ms) != 1000*ms {
		t.Error("ages count the pause")
	}
	p.op(61_000, tape.StageStart, 9, 60_900, -1)
	if young := p.Comm(1).InFlight(); p.Stalled(young, 63_000*ms) {
		t.Error("what began after the pause is old")
	}
	p.act(61_500, tape.StageEnd, tape.ActInit, 0, 0)
	if !slices.ContainsFunc(watch.Check(61_600*ms), stall.Report.News) {
		t.Error("that the init is over is news")
	}
	ended := model.Op{Signature: allReduce, Progress: model.Progress{Start: 0, End: 3000 * ms}}
	if !p.Stalled(&ended, 0) {
		t.Error("one that took 3 s stalled")
	}
	if newProcess(model.Limits{}).Awake(5) != 0 {
		t.Error("one that never paused says since when it is awake")
	}
}

// TestReturnIsReadLate: a device is stuck in an operation. The record of the call's return is read when the table has
// shown that already, and shows nothing else any more.
func TestReturnIsReadLate(t *testing.T) {
	p := newProcess(model.Limits{})
	stuck := []tape.Slot{{
		CommInfo: world, Generation: 1, Marked: true, Wait: -1, Launched: 1, Seq: 1, OpStart: 100 * ms,
		CallStart: 100 * ms, Op: allReduce, Phase: tape.PhaseStream,
	}}
	p.Look(stuck, nil)
	p.op(101, tape.StageEnd, 1, 100, -1)
	p.Look(stuck, nil)
	if late := p.Late(3_600_000 * ms); len(late) != 1 {
		t.Errorf("late are %v, want one", late)
	}
}

// TestWatch takes an operation of a device for as old as its device's coming to it, as far as was seen.
func TestWatch(t *testing.T) {
	at := func(launched, completed, seq uint64, start int64, progress uint64) []tape.Slot {
		return []tape.Slot{{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Size: 2}, Generation: 1, Marked: true, Wait: -1,
			Launched: launched, Completed: completed, Seq: seq, OpStart: start * ms, CallStart: start * ms,
			LastEnd: start*ms + 1, Op: allReduce, Phase: tape.PhaseStream, Unproven: launched == completed,
			Progress: progress,
		}}
	}
	p, other := newProcess(model.Limits{}), newProcess(model.Limits{})
	for _, look := range []struct {
		now   int64
		slots []tape.Slot
		since int64 // of what is in flight
	}{
		{4000, at(3, 0, 1, 100, 5), 100}, // since when it is there is not known
		{4100, at(3, 0, 1, 100, 5), 100},
		{4200, at(3, 1, 2, 200, 6), 4100},
		{4300, at(3, 1, 2, 200, 6), 4100},
		{4350, at(3, 1, 2, 200, 7), 4300},  // it has come to it, or done what has no mark any more
		{4400, at(4, 3, 4, 4370, 8), 4370}, // launched since
		{4500, at(4, 4, 4, 4370, 9), 0},
		{8000, at(5, 4, 5, 7950, 9), 7950},
	} {
		p.Look(look.slots, nil)
		p.Watch(look.now * ms)
		other.Look(look.slots, nil)
		other.DevicesAs(p.Devices())
		for _, p := range []*model.Process{p.Process, other.Process} {
			since := int64(0)
			if o := p.Comm(1).InFlight(); o != nil {
				since = o.Since() / ms
			}
			if since != look.since {
				t.Errorf("at %d it is there since %d, want %d", look.now, since, look.since)
			}
			if p.Unproven(p.Comm(1), 9380*ms) {
				t.Errorf("at %d, what moved last at 4400 stalls at 9380", look.now)
			}
		}
	}
	p.Look(at(5, 5, 5, 7950, 9), nil)
	if !p.Unproven(p.Comm(1), 13_000*ms) {
		t.Error("what was launched at 7950 does not stall at 13000")
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
	if diff := cmp.Diff(want, waits); diff != "" || over != 900*ms {
		t.Errorf("over %v (-want +got):\n%s", time.Duration(over), diff)
	}
}

// TestHabit knows a loop of two calls, the odd call in it, and the next one.
func TestHabit(t *testing.T) {
	p := newProcess(model.Limits{})
	at := int64(0)
	run := func(sig tape.Signature) model.Step {
		at += 10
		return p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: (at + 5) * ms, Start: at * ms, Stage: tape.StageEnd, Seq: uint64(at), Signature: sig,
		}})
	}
	barrier := tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}
	var s model.Step
	for range 10 {
		run(allReduce)
		s = run(barrier)
	}
	habit := s.Comm.Of.History.Habit()
	if len(habit.Odd) != 0 || habit.Next == nil || habit.Next.Usual.Signature != allReduce || len(habit.Trail) != 20 {
		t.Errorf("after ten steps: %+v", habit)
	}
	inFlight := model.Call{Generation: 1, Signature: barrier, Seq: 999, Start: (at + 10) * ms}
	habit = s.Comm.Of.History.Habit(inFlight)
	if len(habit.Odd) != 1 || habit.Odd[0].Did.Seq != 999 || habit.Odd[0].Usual.Signature != allReduce {
		t.Errorf("a barrier in place of an all-reduce: %+v", habit.Odd)
	}
}

// TestTogether knows which calls of a trail were made in a group: before those ahead of them returned.
func TestTogether(t *testing.T) {
	p := newProcess(model.Limits{})
	var s model.Step
	for i, times := range [][2]int64{{10, 12}, {12, 14}, {20, 30}, {22, 30}, {24, 30}, {30, 31}} {
		s = p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: times[1], Start: times[0], Stage: tape.StageEnd, Seq: uint64(i + 1), Signature: allReduce,
		}})
	}
	var together []uint64
	for _, c := range s.Comm.Of.History.Habit().Trail {
		if c.Together {
			together = append(together, c.Seq)
		}
	}
	if want := []uint64{4, 5}; !slices.Equal(together, want) {
		t.Errorf("together with those before them are %v, want %v", together, want)
	}
}

// TestMomentOfThePast folds a tape as it was at each of its moments.
func TestMomentOfThePast(t *testing.T) {
	events := []tape.Event{
		{IsLife: true, Life: tape.LifeRecord{
			Stage: tape.StageStart, Act: tape.ActSplit, Seq: 1, Time: 10 * ms,
			Start: 10 * ms,
		}},
		{Op: tape.OpRecord{Stage: tape.StageEnd, Seq: 1, Start: 20 * ms, Time: 30 * ms, Signature: allReduce}},
		{IsLife: true, Life: tape.LifeRecord{
			Stage: tape.StageEnd, Act: tape.ActSplit, Seq: 1, Time: 40 * ms,
			Start: 10 * ms,
		}},
		{
			IsLife: true,
			Life:   tape.LifeRecord{Stage: tape.StageEnd, Act: tape.ActGrow, Seq: 1, Time: 60 * ms, Start: 50 * ms},
		},
	}
	for now, want := range map[int64]string{
		15: "1 none: split 1 since 10; begun 0 done 0\n",
		25: "1 none: split 1 since 10; all_reduce 1 since 20; begun 1 done 0\n",
		35: "1 none: split 1 since 10; begun 1 done 1\n",
		45: "1 none: begun 1 done 1\n",
		55: "1 none: grow 1 since 50; begun 1 done 1\n",
		75: "1 none: all_reduce 2 since 70; begun 1 done 1\n",
	} {
		p := newProcess(model.Limits{})
		for i := range events {
			ev := events[i]
			ev.Comm, ev.Generation = world, 1
			p.Until(&ev, now*ms)
		}
		later := slot(1, 2, 70, true)
		later.State = lifecycle.StateFailed // which it came to be later
		p.LookBack([]tape.Slot{later}, now*ms)
		p.expect(t, fmt.Sprint("at ", now), want)
	}
}

// TestLookBackAtAStream: a call that launched an operation had returned, and what proves that the stream has done it
// may be of a later moment.
func TestLookBackAtAStream(t *testing.T) {
	for _, marked := range []bool{false, true} {
		p := newProcess(model.Limits{Floor: 5 * time.Millisecond})
		p.Until(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Stage: tape.StageEnd, Seq: 1, Start: 20 * ms, Time: 21 * ms, Signature: allReduce,
		}}, 30*ms)
		later := slot(1, 2, 70, true)
		later.Marked = marked
		p.LookBack([]tape.Slot{later}, 30*ms)
		if got := p.Unproven(p.Comm(1), 30*ms); got != marked {
			t.Errorf("marked %v: unproven is %v", marked, got)
		}
	}
}

// TestLookBackAtMessages: what is counted later than the moment, in a call that has not returned, is not of it.
func TestLookBackAtMessages(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		launched, call, ends int64 // when the operation in flight and the last call began, and when the last one ended
		want                 bool
	}{
		{"all calls had ended", 20, 20, 21, true},
		{"a call has begun since", 20, 40, 21, false},
		{"a call has ended since", 20, 20, 40, false},
		{"all was idle, and is", 0, 20, 21, true},
		{"all was idle, and a call has ended since", 0, 40, 41, false},
	} {
		p := newProcess(model.Limits{})
		p.Until(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Stage: tape.StageEnd, Seq: 1, Start: 10 * ms, Time: 11 * ms, Signature: allReduce,
		}}, 30*ms)
		later := slot(1, 2, max(tt.launched, tt.call), tt.launched > 0)
		if tt.launched > 0 {
			later.OpStart = tt.launched * ms
		}
		later.Marked, later.CallStart, later.LastEnd = true, tt.call*ms, tt.ends*ms
		later.Counted, later.Messages[0] = true, tape.PeerMessages{Rank: 1, Sent: 2}
		p.LookBack([]tape.Slot{later}, 30*ms)
		if c := p.Comm(1); c.Counted != tt.want || tt.want && c.Messages[1].Sent != 2 {
			t.Errorf("%s: counted %t, %v", tt.name, c.Counted, c.Messages)
		}
	}
}

// The record of a communicator's end has the counts of its messages; if it has none, those of the last look are old.
func TestMessagesAtTheEnd(t *testing.T) {
	before := slot(1, 2, 70, false)
	before.Counted, before.Messages[0] = true, tape.PeerMessages{Rank: 1, Sent: 2, Received: 1}
	for _, at := range [][]tape.PeerMessages{nil, {}, {{Rank: 1, Sent: 3, Received: 3}, {Rank: 2, Sent: 1}}} {
		p := newProcess(model.Limits{})
		p.Look([]tape.Slot{before}, nil)
		if c := p.Comm(1); !c.Counted || c.Messages[1] != (model.Messages{Sent: 2, Received: 1}) {
			t.Errorf("after a look, it has %v, counted %t", c.Messages, c.Counted)
		}
		p.life(80, tape.LifeRecord{Stage: tape.StageEnd, Act: tape.ActDestroy, Start: 79, Peer: -1, Messages: at})
		c := p.Known(1)
		if c.Counted != (at != nil) || at != nil && len(c.Messages) != len(at) {
			t.Errorf("with %v, it has %v, counted %t", at, c.Messages, c.Counted)
		}
		for _, m := range at {
			want := model.Messages{Sent: uint64(m.Sent), Received: uint64(m.Received)}
			if got := c.Messages[m.Rank]; got != want {
				t.Errorf("with rank %d, it has %v, want %v", m.Rank, got, want)
			}
		}
	}
}

func TestRanks(t *testing.T) {
	p := newProcess(model.Limits{})
	child := world
	child.ID, child.Parent, child.Rank, child.Size = lifecycle.CommID{2}, world.ID, 0, 2
	p.act(10, tape.StageStart, tape.ActInit, 0, 0)
	p.Apply(&tape.Event{
		Comm: child, Generation: 2, Root: 1,
		Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce},
	})
	n := 0
	for _, r := range p.Ranks() {
		if n++; r.Root != 1 || r.Number != 1 || r.Size != 4 {
			t.Errorf("rank %+v", r)
		}
	}
	if n != 1 || p.Known(2).Of != p.Known(1).Of {
		t.Errorf("%d ranks, of two communicators of one", n)
	}
}

// Communicators that descend from none are the one rank's that a process has. Of two parts of one communicator each is
// another rank's, and what comes then is that of the rank with the same number.
func TestRanksOfCommunicatorsWithoutAParent(t *testing.T) {
	p := newProcess(model.Limits{})
	apply := func(generation uint32, id byte, rank, size int) *model.Rank {
		info := tape.CommInfo{ID: lifecycle.CommID{id}, Name: "c", Rank: rank, Size: size}
		return p.Apply(&tape.Event{
			Comm: info, Generation: generation,
			Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce},
		}).Comm.Of
	}
	first := apply(1, 1, 2, 8)
	if again := apply(2, 2, 0, 2); again != first || first.Number != 2 || first.Size != 8 {
		t.Errorf("a second communicator is rank %+v's, the first %+v's", again, first)
	}
	second := apply(3, 1, 3, 8)
	if second == first || second.Number != 3 {
		t.Errorf("both parts of one communicator are rank %+v's", second)
	}
	if a, b := apply(4, 3, 3, 8), apply(5, 3, 2, 8); a != second || b != first {
		t.Errorf("numbers 3 and 2 are ranks %+v and %+v", a, b)
	}
	if third := apply(6, 4, 0, 4); third == first || third == second || len(p.Ranks()) != 3 {
		t.Errorf("a number that none has is rank %+v's, of %d", third, len(p.Ranks()))
	}
}

// What a rank did later tells that a communicator was there before, and how far: unless that was its beginning.
func TestUntilTellsFromWhatCameLater(t *testing.T) {
	for want, events := range map[string][]tape.OpRecord{
		"1 ready: begun 4 done 4\n": {
			{Stage: tape.StageEnd, Seq: 5, Start: 50 * ms, Time: 60 * ms, Signature: allReduce},
			{Stage: tape.StageEnd, Seq: 6, Start: 70 * ms, Time: 80 * ms, Signature: allReduce},
		},
		"": {
			{Stage: tape.StageEnd, Seq: 1, Start: 50 * ms, Time: 60 * ms, Signature: allReduce},
			{Stage: tape.StageEnd, Seq: 2, Start: 70 * ms, Time: 80 * ms, Signature: allReduce},
		},
	} {
		p := newProcess(model.Limits{})
		for _, r := range events {
			p.Until(&tape.Event{Comm: world, Generation: 1, Op: r}, 10*ms)
		}
		p.expect(t, "before", want)
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

// BenchmarkLook takes a table of ten thousand communicators that each have an operation in flight: the same one all the
// time, or each time another.
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

// A shrink's start says which ranks it leaves out, also on a tape that somebody has written anything onto.
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
