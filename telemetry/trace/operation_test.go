package trace_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// TestSamplingOfOperations checks the rate, and that another rank's projector chooses the same operations.
func TestSamplingOfOperations(t *testing.T) {
	const ops, every = 20_000, 50
	var chosen [2][]string
	for rank := range chosen {
		p := newProjector(t, func(c *trace.Config) { c.SampleEvery = every })
		comm := tape.CommInfo{ID: lifecycle.CommID{5}, Rank: rank, Size: 2}
		for seq := uint64(1); seq <= ops; seq++ {
			p.op(comm, tape.OpRecord{
				Time: int64(seq) * ms, Start: int64(seq)*ms - 10, Stage: tape.StageEnd, Seq: seq, Wait: -1,
				Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64},
			})
		}
		for _, s := range p.spans() {
			chosen[rank] = append(chosen[rank], s.SpanContext.TraceID().String())
			if s.Name != "ccl.all_reduce" || s.EndTime.Sub(s.StartTime) != 10 {
				t.Fatalf("unexpected span %s of %s", s.Name, s.EndTime.Sub(s.StartTime))
			}
		}
	}
	if diff := cmp.Diff(chosen[0], chosen[1]); diff != "" {
		t.Errorf("the ranks chose different operations:\n%s", diff)
	}
	if n := len(chosen[0]); n < ops/every*3/4 || n > ops/every*5/4 {
		t.Errorf("%d of %d operations chosen, want about 1 in %d", n, ops, every)
	}
}

// TestSamplingOfSendRecvs: SendRecvs are sampled one by one.
func TestSamplingOfSendRecvs(t *testing.T) {
	const ops, every = 20_000, 50
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = every })
	for i := int64(1); i <= ops; i++ {
		r := tape.OpRecord{
			Time: i*ms + 10, Start: i * ms, Stage: tape.StageEnd, Seq: uint64(i), Wait: -1,
			Signature: tape.Signature{Call: lifecycle.CallSendRecv, Peer: -1},
		}
		step := p.op(world, r)
		if spanned := p.SpanOf(&step).IsSampled(); spanned != p.Emitted().IsValid() {
			t.Fatalf("send-receive %d: its log line says that its span is kept: %v", i, spanned)
		}
	}
	if n := len(p.spans()); n < ops/every*3/4 || n > ops/every*5/4 {
		t.Errorf("%d of %d send-receives have a span, want about 1 in %d", n, ops, every)
	}
}

// TestMeasuredOnDevice: an operation measured on its device has a separate span for that, besides its call's span, and
// is not in flight.
func TestMeasuredOnDevice(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	r := tape.OpRecord{
		Stage: tape.StageEnd, Time: 2 * ms, Start: ms, Seq: 1, Wait: -1,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64},
	}
	p.op(world, r)
	r.Stage, r.Time = tape.StageDevice, 8*ms
	if step := p.op(world, r); len(step.Comm.Ops) > 0 {
		t.Errorf("in flight are %v", step.Comm.Ops)
	}
	spans := p.spans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	call, device := spans[0], spans[1]
	if device.Name != "ccl.all_reduce (device)" || device.EndTime.Sub(device.StartTime) != time.Duration(7*ms) ||
		device.StartTime != call.StartTime || device.Parent.IsValid() ||
		device.SpanContext.TraceID() != call.SpanContext.TraceID() ||
		device.SpanContext.SpanID() == call.SpanContext.SpanID() ||
		!slices.Contains(device.Attributes, semconv.OpDepth.String("device")) ||
		slices.Contains(call.Attributes, semconv.OpDepth.String("device")) {
		t.Errorf("beside %+v it is %+v", call, device)
	}
}

// TestCaptured: the span of a call that captured an operation in a graph says so, and the operation is not in flight.
func TestCaptured(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	r := tape.OpRecord{
		Stage: tape.StageEnd, Time: 2 * ms, Start: ms, Seq: 1, Wait: -1,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64},
	}
	p.op(world, r)
	r.Seq, r.Phase = 2, tape.PhaseCaptured
	if step := p.op(world, r); len(step.Comm.Ops) > 0 || step.Comm.Captured != 1 {
		t.Errorf("in flight are %v, captured %d", step.Comm.Ops, step.Comm.Captured)
	}
	spans := p.spans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, s := range spans {
		if slices.Contains(s.Attributes, semconv.OpCaptured.Bool(true)) != (i == 1) {
			t.Errorf("operation %d has the attributes %v", i+1, s.Attributes)
		}
	}
}

// TestNCCLParts: the kernel of an NCCL operation, and the data it sent to another node, are in its trace and need no
// other span, as the operation's own may not be sampled.
func TestNCCLParts(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = -1 })
	nccl := world
	nccl.Engine = "nccl 2.28.9"
	op := func(stage tape.Stage, phase tape.Phase, start, end int64) {
		p.op(nccl, tape.OpRecord{
			Stage: stage, Phase: phase, Time: end, Start: start, Seq: 1, Wait: 0,
			Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64},
		})
	}
	op(tape.StageEnd, tape.PhaseNone, ms, 2*ms)
	op(tape.StageDevice, tape.PhaseStream, ms, 9*ms)
	op(tape.StageProxied, tape.PhaseNetwork, 4*ms, 7*ms)
	op(tape.StageKernel, tape.PhaseNone, 3*ms, 8*ms)
	op(tape.StageKernel, tape.PhaseAgree, 3*ms, 4*ms)
	var got []string
	spans := p.spans()
	for i, s := range spans {
		got = append(got, fmt.Sprintf("%s %v", s.Name, s.EndTime.Sub(s.StartTime)))
		below := s.Parent.IsValid()
		if below != (i == 3) || below && s.Parent.SpanID() != spans[2].SpanContext.SpanID() ||
			s.SpanContext.TraceID() != spans[0].SpanContext.TraceID() {
			t.Errorf("%s is %v, below %v", s.Name, s.SpanContext, s.Parent)
		}
	}
	want := []string{
		"ccl.all_reduce (device) 8ms", "ccl.proxy.operation 3ms", "ccl.all_reduce (kernel) 5ms",
		"ccl.all_reduce (kernel).agree 1ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestProxied: the data that an operation sent to another node is a span below the operation's, and its steps are below
// that. None is an operation in flight.
func TestProxied(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	r := tape.OpRecord{
		Stage: tape.StageProxied, Time: 4 * ms, Start: 2 * ms, Seq: 1, Wait: 1, Code: lifecycle.CodeInProgress,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: 5, Bytes: 64},
		Phase:     tape.PhaseCredit,
	}
	p.op(world, r)
	r.Time, r.Code = 6*ms, lifecycle.CodeOK
	p.op(world, r)
	r.Stage, r.Start, r.Signature.Bytes = tape.StageStep, 3*ms, 32
	if step := p.op(world, r); len(step.Comm.Ops) > 0 || step.Comm.Begun > 0 {
		t.Errorf("in flight are %v, and %d began", step.Comm.Ops, step.Comm.Begun)
	}
	p.op(world, tape.OpRecord{
		Stage: tape.StageEnd, Time: 7 * ms, Start: ms, Seq: 1, Wait: -1,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64},
	})
	spans := p.spans()
	var names []string
	for _, s := range spans {
		names = append(names, s.Name)
	}
	want := []string{"ccl.proxy.operation (started)", "ccl.proxy.operation", "ccl.proxy.step", "ccl.all_reduce"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	for child, parent := range map[int]int{0: 1, 1: 3, 2: 1} {
		if spans[child].Parent.SpanID() != spans[parent].SpanContext.SpanID() ||
			spans[child].SpanContext.TraceID() != spans[parent].SpanContext.TraceID() {
			t.Errorf("%s is not below %s", names[child], names[parent])
		}
		for _, a := range []attribute.KeyValue{
			semconv.ProxyPeer.Int(5), semconv.ProxyCarrier.Int(1), semconv.ProxyWait.String("credit"),
		} {
			if !slices.Contains(spans[child].Attributes, a) {
				t.Errorf("%s lacks %v", names[child], a)
			}
		}
	}
	if sent := spans[1]; sent.EndTime.Sub(sent.StartTime) != time.Duration(4*ms) ||
		!slices.Contains(sent.Attributes, semconv.ProxyBytes.Int(64)) || sent.Status.Code == codes.Error {
		t.Errorf("what was sent is %+v", sent)
	}
}

// TestWaitOfAnotherOperation: messages to different ranks have the same numbers, but separate waits.
func TestWaitOfAnotherOperation(t *testing.T) {
	p := newProjector(t, nil)
	send, recv := tape.Signature{Call: lifecycle.CallSend, Peer: 2}, tape.Signature{Call: lifecycle.CallRecv, Peer: 3}
	p.op(world, tape.OpRecord{Stage: tape.StageWait, Time: 2 * ms, Start: ms, Seq: 1, Signature: send, Wait: 2})
	p.op(world, tape.OpRecord{
		Stage: tape.StageEnd, Time: 3 * ms, Start: ms, Seq: 1, Signature: recv, Wait: -1,
		Code: lifecycle.CodeRankDead,
	})
	p.op(world, tape.OpRecord{
		Stage: tape.StageEnd, Time: 4 * ms, Start: ms, Seq: 1, Signature: send, Wait: -1,
		Code: lifecycle.CodeRankDead,
	})
	var got []string
	for _, s := range p.spans() {
		got = append(got, s.Name+": "+s.Status.Description)
	}
	want := []string{"ccl.recv: rank_dead", "ccl.send: rank_dead: was waiting for rank 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestEmitted asks after every event for its span.
func TestEmitted(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 2 })
	comm := tape.CommInfo{ID: lifecycle.CommID{7}, Name: "world", Rank: 1, Size: 2}
	p.life(comm, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: 1, Peer: -1})
	p.life(comm, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseConnect, Time: 2, Peer: -1,
	})
	p.life(comm, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Time: 3, Start: 1, Peer: -1})
	init := trace.ActTraceID(comm.ID, tape.ActInit, 0)
	if got := p.Emitted(); got.TraceID() != init || got.SpanID() != trace.SpanID(init, 1) {
		t.Errorf("after the init: %v/%v, want this rank's span in %v", got.TraceID(), got.SpanID(), init)
	}
	var kept int
	for seq := range uint64(100) {
		sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}
		before := len(p.exporter.GetSpans())
		p.op(comm, tape.OpRecord{Stage: tape.StageEnd, Seq: seq, Signature: sig, Time: 10, Start: 5, Wait: -1})
		got := p.Emitted()
		if got.IsValid() != (len(p.exporter.GetSpans()) > before) {
			t.Fatalf("operation %d: Emitted is %v with %d new spans", seq, got, len(p.exporter.GetSpans())-before)
		}
		if got.IsValid() {
			kept++
			if want := trace.OpTraceID(comm.ID, 1, sig, seq); got.TraceID() != want {
				t.Errorf("operation %d is in %v, want %v", seq, got.TraceID(), want)
			}
		}
	}
	if kept == 0 || kept == 100 {
		t.Errorf("%d of 100 operations were kept: the test shows nothing", kept)
	}
}
