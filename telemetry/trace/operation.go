package trace

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// endOp makes the span of an operation that ended, if it failed, was slow or stalled, or is sampled.
func (p *Projector) endOp(m *model.Comm, o *model.Op) {
	problem := problemOf(o.Code, "")
	slow := p.slow(o, o.End)
	if problem == nil && !slow && !p.samples(m.ID, o) {
		return
	}
	if problem != nil && o.Wait >= 0 {
		problem.text += ": was waiting for " + p.cfg.Process.Name(m, int(o.Wait))
	}
	p.emit(p.opSpan(m, o, slow, problem))
}

// slow tells whether an operation was slow at a time.
func (p *Projector) slow(o *model.Op, now int64) bool {
	return o.Slow || o.Stalls > 0 || now-o.Start >= int64(p.cfg.Slow)
}

// samples tells whether to make a span of an operation that ended well and in time.
func (p *Projector) samples(comm lifecycle.CommID, o *model.Op) bool {
	if p.cfg.SampleEvery < 0 {
		return false
	}
	seq := o.Seq
	if o.Signature.Call == lifecycle.CallSendRecv { // several share a number; their traces have one rank
		seq ^= uint64(o.Start)
	}
	return tape.Sampled(comm, seq, uint64(p.cfg.SampleEvery))
}

// opSpan is one rank's part in an operation that ended.
func (p *Projector) opSpan(m *model.Comm, o *model.Op, slow bool, problem *problem) *span {
	attrs := attributesOf(m)
	attrs.op(&p.cfg, &o.Signature, o.Seq, o.Algorithm)
	if slow || problem != nil {
		attrs.wait(o.Phase, o.Wait)
	}
	attrs.when(slow, semconv.OpSlow.Bool(true))
	attrs.when(o.Captured(), semconv.OpCaptured.Bool(true))
	attrs.when(o.Stalls > 0, semconv.StallNumber.Int(o.Stalls))
	return &span{
		id:    p.opPart(m, &o.Signature, o.Seq),
		name:  semconv.CallSpan(o.Signature.Call),
		start: o.Start, end: o.End,
		attrs:   attrs,
		links:   append(p.origins.links(m), callerLinks(o.Caller)...),
		problem: problem,
	}
}

// emitDevice makes the span of an operation as measured on its device. It is a root, as the operation's own span may
// not be sampled. The spans of its parts, which NCCL may report, are roots, too.
func (p *Projector) emitDevice(m *model.Comm, o *model.Op) {
	s := p.opSpan(m, o, false, nil)
	s.id = s.id.child(tagDevice, m.Rank, 0).root()
	s.name += semconv.DeviceSuffix
	s.attrs = append(s.attrs, semconv.OpDepth.String(semconv.DepthDevice))
	p.emit(s)
}

// emitKernel makes the span of an operation's kernel, or of a phase of it.
func (p *Projector) emitKernel(m *model.Comm, r *tape.OpRecord) {
	id := p.opPart(m, &r.Signature, r.Seq).child(tagKernel, m.Rank, 0).root()
	name := semconv.CallSpan(r.Signature.Call) + semconv.KernelSuffix
	if r.Phase != tape.PhaseNone {
		id, name = id.child(tagPhase, m.Rank, uint64(r.Phase)), name+semconv.PhaseSeparator+r.Phase.String()
	}
	p.emit(&span{
		id: id, name: name, start: r.Start, end: r.Time,
		attrs: append(attributesOf(m), semconv.OpSeq.Int64(int64(r.Seq)), semconv.OpDepth.String(semconv.DepthKernel)),
	})
}

// emitProxied makes the span of the data that an operation sent to a rank of another node, below the operation's span
// (for NCCL, a root), or of a step of it. Data sent by the time that an operation becomes slow gets a started span, as
// the operation does. o is nil if its start is unknown.
func (p *Projector) emitProxied(m *model.Comm, o *model.Op, r *tape.OpRecord) {
	sent := r.Proxied()
	s := span{
		id:    p.opPart(m, &r.Signature, r.Seq).child(tagProxied, m.Rank, uint64(sent.Peer)),
		name:  semconv.SpanProxied,
		start: sent.Start, end: sent.End,
		attrs: append(attributesOf(m), semconv.OpSeq.Int64(int64(r.Seq)), semconv.ProxyPeer.Int(int(sent.Peer)),
			semconv.ProxyCarrier.Int(int(sent.Carrier)), semconv.ProxyBytes.Int64(int64(sent.Bytes))),
		problem: problemOf(sent.Code, ""),
	}
	switch {
	case sent.Step:
		s.id, s.name = s.id.child(tagStep, m.Rank, uint64(sent.Start)), semconv.SpanProxyStep
	case sent.Code == lifecycle.CodeInProgress:
		s.id, s.name = s.id.child(tagStarted, m.Rank, uint64(sent.Peer)), s.name+semconv.StartedSuffix
		s.end = s.start
	}
	s.attrs.when(o != nil && p.slow(o, sent.End), semconv.OpSlow.Bool(true))
	if m.NCCL() {
		s.id = s.id.root()
		s.attrs = append(s.attrs, semconv.OpDepth.String(semconv.DepthProxy))
	}
	s.attrs.when(sent.Waited != tape.PhaseNone, semconv.ProxyWait.String(sent.Waited.String()))
	p.emit(&s)
}

// opPart is the identity of a rank's own span of an operation: a root if no other rank takes part.
func (p *Projector) opPart(m *model.Comm, sig *tape.Signature, seq uint64) identity {
	id := p.part(m, OpTraceID(m.ID, m.Rank, *sig, seq), tagSpan)
	if ownTrace(sig.Call) {
		id = id.root()
	}
	return id
}
