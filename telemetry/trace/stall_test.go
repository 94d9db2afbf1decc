package trace_test

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// hung is an all-reduce that waits for rank 3 from 1 ms on.
func hung(stage stall.Stage, count int, now int64) *stall.Report {
	return &stall.Report{
		Stage: stage, Comm: &model.Comm{CommInfo: world, Generation: uint32(world.ID[0])},
		Op: reduce, Seq: 7, Phase: tape.PhaseTransfer,
		Algorithm: 2,
		Start:     ms, Now: now, Wait: 3, WaitSince: 2 * ms, Threshold: 5 * time.Second, Normal: 3 * time.Millisecond,
		Count: count,
	}
}

var reduce = tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 1024}

// TestHangWhileItHangs is the whole story of one operation: its announcement, its stalls, its end.
func TestHangWhileItHangs(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = -1 })
	comm := uint32(world.ID[0])
	p.observe(&tape.Event{Comm: world, Generation: comm, Op: tape.OpRecord{
		Stage: tape.StageStart, Time: ms, Seq: 7, Signature: reduce, Wait: -1,
		Caller: tape.SpanContext{TraceID: [16]byte{0xca, 0x11}, SpanID: [8]byte{0xe1}, Flags: 1},
	}})
	p.op(world, tape.OpRecord{Stage: tape.StageWait, Time: 2 * ms, Seq: 7, Signature: reduce, Wait: 3})
	p.stall(hung(stall.Slow, 0, 1001*ms))
	if got, ok := p.Store().Trace(trace.OpTraceID(world.ID, 1, reduce, 7)); !ok || got.Open != 1 {
		t.Errorf("while it hangs the store has %+v, %v: want one that is open", got, ok)
	}
	p.stall(hung(stall.Stalled, 1, 5001*ms))
	p.stall(hung(stall.Stalled, 2, 10_001*ms))
	p.op(world, tape.OpRecord{
		Stage: tape.StageEnd, Time: 11_900 * ms, Start: ms, Seq: 7, Signature: reduce,
		Algorithm: 2, Wait: -1,
	})
	p.stall(hung(stall.Cleared, 2, 12_000*ms))
	if got, _ := p.Store().Trace(trace.OpTraceID(world.ID, 1, reduce, 7)); got.Open != 0 || len(got.Spans) != 4 {
		t.Errorf("afterwards the store has %d spans, %d open", len(got.Spans), got.Open)
	}
	p.op(world, tape.OpRecord{
		Stage: tape.StageEnd, Time: 11_901 * ms, Start: 11_900 * ms, Seq: 8, Signature: reduce,
		Wait: -1,
	})
	recorded(t, "hang.txt", describe(p.spans()))
}

// TestStallSpans: spans of stalls have their own ids, and the operation's own span as their parent.
func TestStallSpans(t *testing.T) {
	p := newProjector(t, nil)
	for n := range 5 {
		p.stall(hung(stall.Stalled, n+1, int64(n+5)*1000*ms))
	}
	op := trace.OpTraceID(world.ID, 1, reduce, 7)
	seen := map[oteltrace.SpanID]bool{}
	for _, s := range p.spans() {
		if s.SpanContext.TraceID() != op || s.Parent.SpanID() != trace.SpanID(op, 1) || s.Status.Code != codes.Error ||
			s.Name != "ccl.stall" {
			t.Errorf("%s in %v below %v is %v", s.Name, s.SpanContext.TraceID(), s.Parent.SpanID(), s.Status)
		}
		if seen[s.SpanContext.SpanID()] {
			t.Errorf("span id %v twice", s.SpanContext.SpanID())
		}
		seen[s.SpanContext.SpanID()] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d spans, want 5", len(seen))
	}
}

// TestStalledActs: an init hangs in a phase, and a split that has no rank for its child yet.
func TestStalledActs(t *testing.T) {
	p := newProjector(t, nil)
	for generation, r := range map[uint32]stall.Report{
		1: {Comm: &model.Comm{CommInfo: world}, Act: tape.ActInit, Phase: tape.PhaseConnect, Wait: -1},
		2: {
			Comm: &model.Comm{CommInfo: world}, Act: tape.ActSplit, ActSeq: 4,
			Op: tape.Signature{Call: lifecycle.CallSplit, Peer: -1}, Seq: 11, Wait: 2,
		},
		5: { // its ranks are not the job's
			Comm: &model.Comm{CommInfo: rails}, Act: tape.ActFinalize, Wait: 1,
		},
		3: {
			Comm: &model.Comm{CommInfo: tape.CommInfo{ID: lifecycle.CommID{9}, Rank: -1, Size: 2}}, Act: tape.ActInit,
			Phase: tape.PhaseRendezvous, Wait: -1,
		},
		4: {
			Comm: &model.Comm{CommInfo: tape.CommInfo{ID: lifecycle.CommID{9}, Rank: -1, Size: 2}}, Act: tape.ActInit,
			Phase: tape.PhaseRendezvous, Wait: -1,
		},
	} {
		r.Comm.Generation, r.Start, r.Now, r.Count = generation, ms, 6001*ms, 1
		r.Stage = stall.Slow
		p.stall(&r)
		r.Stage = stall.Stalled
		p.stall(&r)
		r.Stage = stall.Cleared
		p.stall(&r)
	}
	got := map[string]int{}
	ids := map[oteltrace.SpanID]bool{}
	for _, s := range p.spans() {
		got[s.Status.Description]++
		ids[s.SpanContext.SpanID()] = true
	}
	for text, n := range map[string]int{
		"init has not ended after 6s, in phase connect":    1,
		"split has not ended after 6s: waiting for rank 2": 1,
		"init has not ended after 6s, in phase rendezvous": 2,

		"finalize has not ended after 6s: waiting for rank 1 of \"rails\"": 1,
	} {
		if got[text] != n {
			t.Errorf("%q %d times, want %d; there are %v", text, got[text], n, got)
		}
	}
	if len(ids) != 5 {
		t.Errorf("%d ids of 5 spans: two members of one process have the same", len(ids))
	}
}

// TestFinding: a stall's span has the finding about it.
func TestFinding(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) {
		c.Finding = func(comm lifecycle.CommID, seq uint64) (trace.Finding, bool) {
			return trace.Finding{
					Rank: 2, Reason: "not_called", Text: "rank 2 never called all_reduce 7",
				},
				comm == world.ID && seq == 7
		}
	})
	p.stall(hung(stall.Stalled, 1, 6000*ms))
	other := hung(stall.Stalled, 1, 6000*ms)
	other.Seq = 8
	p.stall(other)
	spans := p.spans()
	if got := spans[0].Status.Description; got != "rank 2 never called all_reduce 7" {
		t.Errorf("status is %q", got)
	}
	text := describe(spans[:1])
	for _, want := range []string{
		"ccl.verdict.rank=2", "ccl.verdict.reason=not_called",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(describe(spans[1:]), "verdict") {
		t.Error("the finding is on another operation's stall too")
	}
}

// TestSlowOperationsAreKept though they are not sampled and nobody announced them: a tape that is read afterwards shows
// them, too.
func TestSlowOperationsAreKept(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery, c.Slow = -1, 100*time.Millisecond })
	for seq, d := range []int64{99, 100, 5000} {
		p.op(world, tape.OpRecord{
			Stage: tape.StageEnd, Start: 10 * ms, Time: (10 + d) * ms, Seq: uint64(seq),
			Signature: reduce, Wait: -1,
		})
	}
	spans := p.spans()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want the two slow ones", len(spans))
	}
	for i, d := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		if got := spans[i].EndTime.Sub(spans[i].StartTime); got != d || !spans[i].StartTime.Equal(wall(10*ms)) {
			t.Errorf("span %d: from %v for %v", i, spans[i].StartTime, got)
		}
	}
}

// TestSlowOnesAreNotOrdinary: sampled operations don't push them out of the store.
func TestSlowOnesAreNotOrdinary(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.StoreTraces, c.SampleEvery = 8, 1 })
	p.stall(hung(stall.Slow, 0, 1001*ms))
	for seq := range uint64(100) {
		p.op(world, tape.OpRecord{
			Stage: tape.StageEnd, Start: ms, Time: 2 * ms, Seq: 100 + seq, Signature: reduce, Wait: -1,
		})
	}
	if acts := p.Store().Acts(0); len(acts) != 1 || acts[0].Spans[0].Name != "ccl.all_reduce (started)" {
		t.Errorf("the announcement isn't among %d", len(acts))
	}
}

// TestClockThatJumps sets the time of day back by an hour at every look: spans last as long as they did.
func TestClockThatJumps(t *testing.T) {
	looks := 0
	p := newProjector(t, func(c *trace.Config) {
		c.Wall = func(mono int64) time.Time {
			looks++
			return wall(mono).Add(-time.Duration(looks) * time.Hour)
		}
	})
	p.act(world, tape.LifeRecord{Act: tape.ActInit, Call: lifecycle.CallInitRank}, ms, 9*ms)
	p.stall(hung(stall.Stalled, 1, 6001*ms))
	want := map[string]time.Duration{
		"ccl.comm.init (started)": 1, "ccl.comm.init": 8 * time.Millisecond,
		"ccl.stall": 6 * time.Second,
	}
	for _, s := range p.spans() {
		if got := s.EndTime.Sub(s.StartTime); got != want[s.Name] {
			t.Errorf("%s lasts %v, want %v", s.Name, got, want[s.Name])
		}
	}
	if looks < 3 {
		t.Errorf("the time of day was looked at %d times: the test shows nothing", looks)
	}
}

// TestCallersAreForgotten with the end of their operations.
func TestCallersAreForgotten(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	for seq := range uint64(3) {
		caller := tape.SpanContext{}
		if seq == 1 {
			caller = tape.SpanContext{TraceID: [16]byte{5}, SpanID: [8]byte{6}, Flags: 1}
		}
		p.op(world, tape.OpRecord{
			Stage: tape.StageStart, Time: ms, Seq: 4, Signature: reduce, Wait: -1, Caller: caller,
		})
		p.op(world, tape.OpRecord{Stage: tape.StageEnd, Start: ms, Time: 2 * ms, Seq: 4, Signature: reduce, Wait: -1})
	}
	for i, s := range p.spans() {
		if got := linked(s, semconv.LinkCaller); got != (i == 1) {
			t.Errorf("operation %d is linked to its caller: %v", i, got)
		}
	}
}

func linked(s tracetest.SpanStub, kind string) bool {
	for _, l := range s.Links {
		for _, kv := range l.Attributes {
			if kv.Key == semconv.LinkKind && kv.Value.AsString() == kind {
				return true
			}
		}
	}
	return false
}

// TestSendRecvsAreApart: all spans of one SendRecv, of whatever kind, are in its own trace.
func TestSendRecvsAreApart(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = -1 })
	both := tape.Signature{Call: lifecycle.CallSendRecv, Peer: -1, Bytes: 8}
	var located []oteltrace.SpanContext
	for i := int64(1); i <= 3; i++ {
		start := i * 20_000 * ms
		for n, stage := range []stall.Stage{stall.Slow, stall.Stalled, stall.Stalled, stall.Cleared} {
			p.stall(&stall.Report{
				Stage: stage, Comm: &model.Comm{CommInfo: world, Generation: uint32(world.ID[0])},
				Op: both, Seq: uint64(i), Wait: 2, Start: start,
				Now: start + 10_000*ms, Count: n,
			})
		}
		end := tape.OpRecord{
			Stage: tape.StageEnd, Time: start + 11_000*ms, Start: start, Seq: uint64(i), Signature: both,
			Wait: -1, Code: lifecycle.CodeRankDead,
		}
		if i < 3 {
			step := p.op(world, end)
			located = append(located, p.SpanOf(&step))
		} else { // the tape of a process that is gone ends in it
			p.model.Look([]tape.Slot{{
				CommInfo: world, Generation: uint32(world.ID[0]), Launched: 9, Completed: 8,
				Seq: uint64(i), Op: both, OpStart: start, Wait: 2,
			}}, nil)
			located = append(located, p.SpanOfStall(&stall.Report{
				Comm: &model.Comm{CommInfo: world}, Op: both, Seq: uint64(i), Start: start,
			}))
			p.Unfinished()
		}
	}
	spans := p.spans()
	if len(spans) != 3*4 {
		t.Fatalf("%d spans, want for each of three an announcement, two stalls and an end", len(spans))
	}
	traces := map[oteltrace.TraceID]bool{}
	for i, at := range located {
		op := spans[i*4+3]
		if traces[op.SpanContext.TraceID()] || op.Parent.IsValid() || at.SpanID() != op.SpanContext.SpanID() ||
			at.TraceID() != op.SpanContext.TraceID() {
			t.Errorf("send-receive %d is %v below %v, in a trace of another: %v; its log line is in %v", i,
				op.SpanContext, op.Parent.SpanID(), traces[op.SpanContext.TraceID()], at)
		}
		traces[op.SpanContext.TraceID()] = true
		for _, s := range spans[i*4 : i*4+3] {
			if s.SpanContext.TraceID() != op.SpanContext.TraceID() || s.Parent.SpanID() != op.SpanContext.SpanID() {
				t.Errorf("send-receive %d: %s is in another trace, or not below it", i, s.Name)
			}
		}
	}
}
