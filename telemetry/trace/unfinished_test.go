package trace_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// The operation that was in flight when a process died has the span that it would have had, with an error.
func TestUnfinishedOperation(t *testing.T) {
	p := newProjector(t, nil)
	sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
	p.op(world, tape.OpRecord{Time: 4 * ms, Stage: tape.StageStart, Seq: 7, Signature: sig})
	slot := tape.Slot{
		CommInfo: world, Generation: 1, Launched: 7, Completed: 6, Seq: 7, Op: sig, OpStart: 4 * ms,
		Phase: tape.PhaseTransfer, Wait: 2, WaitSince: 5 * ms,
	}
	idle := slot
	idle.Generation, idle.Completed = 2, 7
	p.model.Look([]tape.Slot{slot, idle}, nil)
	p.Unfinished()
	spans := p.spans()
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	s := spans[0]
	id := trace.OpTraceID(world.ID, world.Rank, sig, 7)
	if s.SpanContext.TraceID() != id || s.SpanContext.SpanID() != trace.SpanID(id, world.Rank) ||
		s.Name != "ccl.all_reduce" {
		t.Errorf("%s has the ids %s and %s", s.Name, s.SpanContext.TraceID(), s.SpanContext.SpanID())
	}
	if !s.StartTime.Equal(wall(4*ms)) || !s.EndTime.Equal(wall(5*ms)) {
		t.Errorf("it lasts from %v to %v", s.StartTime, s.EndTime)
	}
	if s.Status.Code != codes.Error ||
		!strings.Contains(s.Status.Description, "in phase transfer, waiting for rank 2") {
		t.Errorf("status %+v", s.Status)
	}
	for _, kv := range s.Attributes {
		if kv.Key == semconv.ErrorType && kv.Value.AsString() != semconv.ErrorUnfinished {
			t.Errorf("error.type is %q", kv.Value.AsString())
		}
	}
}

func TestFromLeavesOutWhatEndedBefore(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.From = 3 * ms })
	for i := range 4 {
		at := int64(i) * 2 * ms
		p.act(world, tape.LifeRecord{
			Act: tape.ActSplit, Call: lifecycle.CallSplit, Seq: uint64(i),
			State: lifecycle.StateReady,
		}, at, at+ms)
	}
	var got []string
	for _, s := range p.spans() {
		if !s.EndTime.Before(wall(3*ms)) && s.StartTime.Before(wall(4*ms)) {
			got = append(got, s.Name)
		} else if s.EndTime.Before(wall(3 * ms)) {
			t.Errorf("%s ended at %v", s.Name, s.EndTime)
		}
	}
	if len(got) != 1 {
		t.Errorf("%q of the span at the border, want one", got)
	}
}
