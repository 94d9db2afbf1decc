package model_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestStay counts what looks see of a device: the operations that it is certainly in, and those that it may be in.
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
		over, inside, busy time.Duration
		ops                int
	}{
		{"idle", idle, 20, false, 2 * time.Second, 0, 0, 0},
		{"inside", in, 20, false, 2 * time.Second, 2 * time.Second, 2 * time.Second, 20},
		{"inside one", in, 30, true, 3 * time.Second, time.Second, 3 * time.Second, 1},
		{"message", message, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"rooted", rooted, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"queued", queued, 20, false, 2 * time.Second, 0, 0, 0},
		{"it isn't known what the stream does", unknown, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"nothing tells whether the last is done", unproven, 20, false, 2 * time.Second, 0, 2 * time.Second, 0},
		{"for long", unproven, 60, true, 6 * time.Second, 0, 4900 * time.Millisecond, 0},
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
			want := model.Span{
				Looks: c.looks, Over: int64(c.over), Inside: int64(c.inside), Busy: int64(c.busy), Ops: c.ops,
				Done: got.Done,
			}
			if c.over == 0 { // there are no looks
				want.Looks = 0
			}
			if got != (model.Stay{Span: want, Newer: want}) {
				t.Errorf("it is %+v, want %+v", got, want)
			}
		})
	}
}

// TestStayWindow: time before the window doesn't count, and time before its newer half doesn't count in that half.
func TestStayWindow(t *testing.T) {
	const second = int64(time.Second)
	p := newProcess(model.Limits{})
	s := tape.Slot{
		CommInfo: world, Generation: 1, Marked: true, Wait: -1, Launched: 1, Seq: 1, Begun: 1, OpStart: 1,
		Op: allReduce, Phase: tape.PhaseStream, Reached: true,
	}
	s.Engine = "nccl 2.28.9"
	look := func(now int64) model.Stay {
		p.Look([]tape.Slot{s}, nil)
		p.Watch(now)
		return p.Comm(1).Stay
	}
	one := model.Span{Looks: 1, Over: second, Inside: second, Busy: second, Ops: 1}
	if got := look(100 * second); got != (model.Stay{Span: one, Newer: one}) {
		t.Errorf("of one look it is %+v", got)
	}
	s.Completed, s.Done, s.Phase, s.Reached = 1, 1, tape.PhaseNone, false
	idle := model.Span{Looks: 1, Over: second, Done: 1} // a look stands for a second at most
	both := one
	both.Looks, both.Over, both.Done = 2, 2*second, 1
	if got := look(110 * second); got != (model.Stay{Span: both, Newer: idle}) {
		t.Errorf("ten seconds later it is %+v", got)
	}
	idle.Looks, idle.Over = 2, 2*second
	if got := look(120 * second); got != (model.Stay{Span: idle, Newer: model.Span{Looks: 1, Over: second}}) {
		t.Errorf("twenty seconds later it is %+v", got)
	}
}
