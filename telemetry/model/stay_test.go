package model_test

import (
	"math"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestStay counts what looks see of a device: what it is certainly in, and all that it may be in.
func TestStay(t *testing.T) {
	const every = 100 // ms between two looks
	idle := func(s *tape.Slot) { s.Completed = s.Launched }
	in := func(*tape.Slot) {}
	message := func(s *tape.Slot) { s.Op.Call = lifecycle.CallRecv }
	rooted := func(s *tape.Slot) { s.Op.Call = lifecycle.CallBroadcast }
	queued := func(s *tape.Slot) { s.Reached, s.Phase = false, tape.PhaseQueued }
	unknown := func(s *tape.Slot) { s.Reached = false }
	unproven := func(s *tape.Slot) { idle(s); s.Unproven = true }
	captured := func(s *tape.Slot) { idle(s); s.Captured = 1 }
	unmarked := func(s *tape.Slot) { idle(s); s.Marked = false }
	unused := func(s *tape.Slot) { *s = tape.Slot{CommInfo: s.CommInfo, Generation: 1, Wait: -1} }
	onHost := func(s *tape.Slot) { s.Engine = "host" }
	for _, c := range []struct {
		name               string
		is                 func(*tape.Slot)
		looks              int
		oneOp              bool
		over, inside, busy time.Duration // without what fades
		ops                float64
	}{
		{"idle", idle, 20, false, 2 * time.Second, 0, 0, 0},
		{"inside", in, 20, false, 2 * time.Second, 2 * time.Second, 2 * time.Second, 20},
		{"inside one", in, 30, true, 3 * time.Second, time.Second, 3 * time.Second, 1},
		{"message", message, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"rooted", rooted, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"queued", queued, 20, false, 2 * time.Second, 0, 0, 0},
		{"it isn't known what the stream does", unknown, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"nothing tells whether the last is done", unproven, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"for long", unproven, 60, true, 6 * time.Second, 0, 4500 * time.Millisecond, 0},
		{"graphs", captured, 60, true, 6 * time.Second, 0, 6 * time.Second, 0},
		{"without marks", unmarked, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"never used", unused, 20, false, 2 * time.Second, 0, 0, 0},
		{"an engine that tells of waits", onHost, 20, false, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, other := newProcess(model.Limits{}), newProcess(model.Limits{})
			start := int64(time.Hour)
			p.Watch(start)
			for i := range c.looks {
				now, seq := start+int64(i+1)*every*ms, uint64(i+1)
				began := now
				if c.oneOp {
					seq, began = 1, start
				}
				s := tape.Slot{
					CommInfo: world, Generation: 1, Marked: true, Wait: -1, Launched: seq, Completed: seq - 1, Seq: seq,
					Begun: seq, Done: seq - 1, OpStart: began, CallStart: began, LastEnd: began + 1, Op: allReduce,
					Phase: tape.PhaseStream, Reached: true,
				}
				s.Engine = "nccl 2.28.9"
				c.is(&s)
				p.Look([]tape.Slot{s}, nil)
				other.Look([]tape.Slot{s}, nil)
				p.Watch(now)
			}
			other.DevicesAs(p.Devices())
			got := other.Comm(1).Stay
			about := func(got, want float64) bool { return math.Abs(got-want) <= 0.12*want } // 6 s fade by a tenth
			if !about(float64(got.Over), float64(c.over)) || !about(float64(got.Inside), float64(c.inside)) ||
				!about(float64(got.Busy), float64(c.busy)) || !about(got.Ops, c.ops) {
				t.Errorf("it is %+v", got)
			}
			if c.over > 0 && !about(got.Looks, float64(c.looks)) {
				t.Errorf("%v looks, want %d", got.Looks, c.looks)
			}
		})
	}
}

// TestStayFades: what was a minute ago hardly counts.
func TestStayFades(t *testing.T) {
	p := newProcess(model.Limits{})
	s := tape.Slot{
		CommInfo: world, Generation: 1, Marked: true, Wait: -1, Launched: 1, Seq: 1, Begun: 1, OpStart: 1,
		Op: allReduce, Phase: tape.PhaseStream, Reached: true,
	}
	s.Engine = "nccl 2.28.9"
	p.Look([]tape.Slot{s}, nil)
	p.Watch(int64(time.Second))
	before := p.Comm(1).Stay
	s.Completed = 1
	p.Look([]tape.Slot{s}, nil)
	p.Watch(int64(61 * time.Second))
	after := p.Comm(1).Stay
	if before.Inside <= 0 || after.Inside > before.Inside/5 || after.Ops > 0.2 {
		t.Errorf("it was %+v, and a minute later it is %+v", before, after)
	}
	if after.Over > int64(1500*time.Millisecond) {
		t.Errorf("a look after a minute stands for %v", time.Duration(after.Over))
	}
}
