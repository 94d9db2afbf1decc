package trace

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxCalled bounds the operations in flight of which something is remembered. More are in flight only if the ends of many were missed.
const maxCalled = 16 << 10

// opKey is one operation in flight. Several of a communicator can be.
type opKey struct {
	comm uint32 // tape.Event.Generation
	call lifecycle.Call
	peer int32
	seq  uint64
}

func keyOfOp(comm uint32, sig *tape.Signature, seq uint64) opKey {
	return opKey{comm, sig.Call, sig.Peer, seq}
}

// observeOp makes the span of an operation that ended, if it failed, was slow or stalled, or is among the sampled ones. What an act does on
// the wire (a split tells the ranks of each other) is no operation of the user's: the act's span speaks for it.
func (p *Projector) observeOp(who *subject, r *tape.OpRecord) {
	switch r.Stage {
	case tape.StageStart:
		if r.Caller != (tape.SpanContext{}) {
			bound(p.called)
			p.called[keyOfOp(who.local, &r.Signature, r.Seq)] = r.Caller
		}
	case tape.StageWait:
		p.waits[who.local] = waiting{keyOfOp(who.local, &r.Signature, r.Seq), r.Wait}
	case tape.StageEnd:
		p.endOp(who, r, p.recall(who, r))
	default:
	}
}

// bound empties m when it is too large.
func bound[V any](m map[opKey]V) {
	if len(m) >= maxCalled {
		clear(m)
	}
}

// known is what is known of an operation that the record of its end doesn't tell.
type known struct {
	caller tape.SpanContext
	stalls int  // how often it was told to stall
	slow   bool // it was told to be slow, or was
}

// recall is what is known of an operation that ends with r, which is forgotten.
func (p *Projector) recall(who *subject, r *tape.OpRecord) (k known) {
	if len(p.called)+len(p.told) > 0 { // few have either
		key := keyOfOp(who.local, &r.Signature, r.Seq)
		k.caller = p.called[key]
		k.stalls, k.slow = p.told[key]
		delete(p.called, key)
		delete(p.told, key)
	}
	k.slow = k.slow || r.Start > 0 && r.Time-r.Start >= int64(p.cfg.Slow)
	return k
}

// endOp makes the span of an operation that ended, if it is one to keep.
func (p *Projector) endOp(who *subject, r *tape.OpRecord, k known) {
	if !r.Signature.Call.IsOperation() || who.ID.IsZero() {
		return
	}
	problem := problemOf(r.Code, "")
	if problem == nil && !k.slow && !p.samples(who, r) {
		return
	}
	wait := int32(-1)
	if w, ok := p.waits[who.local]; ok && w.op == keyOfOp(who.local, &r.Signature, r.Seq) {
		wait = w.rank
	}
	if problem != nil && wait >= 0 {
		problem.text += ": was waiting for rank " + strconv.Itoa(int(wait))
	}
	op := p.ended(who, r, wait, problem, k)
	if op.ordinary() && !p.pipe.heard {
		p.keep(op)
		return
	}
	p.emit(op.span())
}

// samples tells whether an operation that ended well and in time is one to keep.
func (p *Projector) samples(who *subject, r *tape.OpRecord) bool {
	if p.cfg.SampleEvery < 0 {
		return false
	}
	return tape.Sampled(who.ID, r.Seq, uint64(p.cfg.SampleEvery))
}

// endedOp is one rank's part in an operation that ended: all that its span tells, so that it can be made at any time.
type endedOp struct {
	cfg     *Config
	id      identity
	who     subject
	origin  origin
	record  tape.OpRecord
	wait    int32 // the rank that it waited for last, -1 for none
	problem *problem
	known
}

func (p *Projector) ended(who *subject, r *tape.OpRecord, wait int32, problem *problem, k known) *endedOp {
	return &endedOp{
		cfg: &p.cfg, id: p.opPart(who, OpTraceID(who.ID, who.Rank, r.Signature, r.Seq), &r.Signature),
		who: *who, origin: p.births.origin(who), record: *r, wait: wait, problem: problem, known: k,
	}
}

// ordinary tells whether the operation ended well, and in time.
func (o *endedOp) ordinary() bool { return o.problem == nil && !o.slow }

// start is when the operation began, if that is known.
func (o *endedOp) start() int64 {
	if r := &o.record; r.Start > 0 && r.Start < r.Time {
		return r.Start
	}
	return o.record.Time
}

func (o *endedOp) span() *span {
	r := &o.record
	attrs := append(commAttributes(&o.who), o.cfg.opAttributes(&r.Signature, r.Seq, r.Algorithm)...)
	if !o.ordinary() {
		attrs = append(attrs, waitAttributes(r.Phase, o.wait)...)
	}
	if o.slow {
		attrs = append(attrs, semconv.OpSlow.Bool(true))
	}
	if o.stalls > 0 {
		attrs = append(attrs, semconv.StallNumber.Int(o.stalls))
	}
	return &span{
		id:    o.id,
		name:  semconv.CallSpan(r.Signature.Call),
		start: o.start(), end: r.Time,
		attrs:   attrs,
		links:   append(o.origin.links(o.who.Rank), callerLinks(o.caller)...),
		problem: o.problem,
	}
}

// keep gives the store a span of which nobody else hears. It is made when somebody asks for it: of a busy job thousands are kept for each one
// that is looked at.
func (p *Projector) keep(op *endedOp) {
	if p.leftOut() {
		return
	}
	start := p.cfg.Wall(op.start())
	p.store.keepOperation(op.id.trace, op.who.ID, func() Span { return op.span().kept(start) })
	p.emitted = op.id
}

// opPart is the identity of a rank's own span of an operation. One of operations that progress together is the rank's
// alone, and the root of its trace.
func (p *Projector) opPart(who *subject, trace oteltrace.TraceID, sig *tape.Signature) identity {
	id := p.part(who, trace, tagSpan)
	if together(sig.Call) {
		id.parent, id.remote = oteltrace.SpanID{}, false
	}
	return id
}

// waitAttributes tell what an operation was at when it was seen last: its phase, and the rank that it waited for.
func waitAttributes(phase tape.Phase, wait int32) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if phase != tape.PhaseNone {
		attrs = append(attrs, semconv.OpPhase.String(semconv.PhaseName(phase)))
	}
	if wait >= 0 {
		attrs = append(attrs, semconv.WaitRank.Int(int(wait)))
	}
	return attrs
}

// opAttributes describe an operation.
func (c *Config) opAttributes(sig *tape.Signature, seq uint64, algorithm uint8) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		semconv.OpSeq.Int64(int64(seq)),
		semconv.OpBytes.Int64(int64(sig.Bytes)),
	}
	if sig.Call != lifecycle.CallBarrier {
		attrs = append(attrs, semconv.OpDataType.String(kernels.DataType(sig.DataType).String()))
	}
	switch sig.Call {
	case lifecycle.CallAllReduce, lifecycle.CallReduce, lifecycle.CallReduceScatter:
		attrs = append(attrs, semconv.OpReduction.String(kernels.Reduction(sig.Reduction).String()))
	default:
	}
	if sig.Peer >= 0 {
		switch sig.Call {
		case lifecycle.CallSend, lifecycle.CallRecv:
			attrs = append(attrs, semconv.OpPeer.Int(int(sig.Peer)))
		case lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallGather, lifecycle.CallScatter:
			attrs = append(attrs, semconv.OpRoot.Int(int(sig.Peer)))
		default:
		}
	}
	if c.AlgorithmName != nil {
		if name := c.AlgorithmName(algorithm); name != "" {
			attrs = append(attrs, semconv.OpAlgorithm.String(name))
		}
	}
	return attrs
}
