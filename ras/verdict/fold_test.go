package verdict_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// What was launched on a stream behind an operation of another communicator has not begun; what was launched with it,
// or on another stream, may have.
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
