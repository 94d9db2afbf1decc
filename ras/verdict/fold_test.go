package verdict_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestFoldQueues: an operation that was launched on a stream behind one of another communicator has not begun; one that
// was launched together with it, or on another stream, may have.
func TestFoldQueues(t *testing.T) {
	const first, later = int64(time.Hour), int64(time.Hour + time.Second)
	var slots []tape.Slot
	for i, s := range []struct {
		stream     uint32
		start, end int64 // of the call; its end may be unknown
	}{
		{7, first, 0},
		{7, first + int64(time.Microsecond), 0},
		{7, later, 0},
		{9, later, 0},
		{8, first, first + int64(time.Microsecond)},
		{8, first + int64(time.Microsecond), 0},
		{8, first + int64(2*time.Microsecond), 0},
	} {
		slots = append(slots, tape.Slot{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Size: 2}, Generation: uint32(i + 1),
			Launched: 1, Seq: 1, Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}, Wait: -1,
			OpStart: s.start, CallStart: s.start, LastEnd: s.end, Stream: s.stream, Marked: true,
			Phase: tape.PhaseStream,
		})
	}
	p := model.New(model.Limits{})
	p.Look(slots, nil)
	var n verdict.Note
	n.Fold(p, first+int64(time.Minute))
	for i, want := range []tape.Phase{
		tape.PhaseStream, tape.PhaseStream, tape.PhaseQueued, tape.PhaseStream,
		tape.PhaseStream, tape.PhaseStream, tape.PhaseQueued,
	} {
		if got := n.Slots[i].Phase; got != want {
			t.Errorf("operation %d is in phase %v, want %v", i, got, want)
		}
	}
}

// TestFoldProven: a device has completed what marks prove or, without marks, what has ended; nothing is known if these
// are gone.
func TestFoldProven(t *testing.T) {
	of := func(generation uint32, marked bool) tape.Slot {
		return tape.Slot{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{byte(generation)}, Size: 2}, Generation: generation, Wait: -1,
			Launched: 9, Completed: 9, Seq: 9, Begun: 9, Done: 8, OpStart: 1, LastEnd: 2, Marked: marked, Proven: 5,
		}
	}
	p := model.New(model.Limits{})
	p.Look([]tape.Slot{of(1, true), of(2, false)}, nil)
	p.Apply(&tape.Event{ // of a communicator that is no longer in the table
		Slot: 3, Generation: 3, Comm: tape.CommInfo{ID: lifecycle.CommID{3}, Size: 2, Engine: "nccl 2.28.9"},
		Op: tape.OpRecord{
			Time: 2, Stage: tape.StageEnd, Seq: 9, Signature: tape.Signature{Call: lifecycle.CallAllReduce}, Start: 1,
		},
	})
	var n verdict.Note
	n.Fold(p, int64(time.Minute))
	for i, want := range []uint64{5, 8, 0} {
		if got := n.Slots[i].Proven; got != want {
			t.Errorf("of communicator %d, %d are proven, want %d", i+1, got, want)
		}
	}
}

// TestFoldMoves: a queued operation is as old as the last time at which its stream did something.
func TestFoldMoves(t *testing.T) {
	const start, second = int64(time.Hour), int64(time.Second)
	look := func(completed uint64) []tape.Slot {
		first := tape.Slot{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Size: 2}, Generation: 1, Marked: true, Launched: 9,
			Completed: completed, Seq: completed + 1, Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1},
			Wait: -1, OpStart: start + int64(completed), CallStart: start, Stream: 7, Phase: tape.PhaseStream,
			Progress: completed,
		}
		behind := first
		behind.ID, behind.Generation, behind.Completed, behind.Seq = lifecycle.CommID{2}, 2, 8, 9
		behind.OpStart, behind.Progress = start+second, 1
		return []tape.Slot{first, behind}
	}
	p := model.New(model.Limits{})
	for i, completed := range []uint64{3, 4, 5, 5} {
		p.Look(look(completed), nil)
		p.Watch(start + int64(i+2)*second)
	}
	var n verdict.Note
	n.Fold(p, start+9*second)
	for i, want := range []time.Duration{6 * time.Second, 6 * time.Second} {
		if got := n.Slots[i].Age; got != want {
			t.Errorf("operation %d is %v old, want %v", i, got, want)
		}
	}
}
