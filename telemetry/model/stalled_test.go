package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestThresholds: thresholds grow with the normal duration, only for the same kind and size.
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

// TestStalledAndPaused checks at several times, with a pause of the process in between.
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

// TestReturnIsReadLate: a device is stuck in an operation. The record of the call's return is read after the table has
// shown the return, and the table shows nothing new afterwards.
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

// TestWatch: an operation on a device is as old as the time at which the device was seen to reach it.
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
		since int64 // of the operation in flight
	}{
		{4000, at(3, 0, 1, 100, 5), 100}, // unknown since when it is there
		{4100, at(3, 0, 1, 100, 5), 100},
		{4200, at(3, 1, 2, 200, 6), 4100},
		{4300, at(3, 1, 2, 200, 6), 4100},
		{4350, at(3, 1, 2, 200, 7), 4300},  // it has reached it, or done operations without marks
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
