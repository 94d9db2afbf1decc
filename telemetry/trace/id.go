package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The tags make hashes of different things differ. They must never change, as all exported ids depend on them.
const (
	tagAct  = "ccl/act"
	tagOp   = "ccl/op"
	tagPair = "ccl/pair"
	tagBoth = "ccl/both"

	tagSpan    = "ccl/span"
	tagStarted = "ccl/started"
	tagDevice  = "ccl/device"
	tagKernel  = "ccl/kernel"
	tagProxied = "ccl/proxied"
	tagStep    = "ccl/step"
	tagPhase   = "ccl/phase"
	tagMisuse  = "ccl/misuse"
	tagFailure = "ccl/failure"
	tagStall   = "ccl/stall"
)

// ActTraceID is the id of an act's trace: the same on every rank of the communicator, and whenever the tape is read.
// seq is the act's number among its kind (tape.LifeRecord.Seq). A split's trace belongs to the parent.
func ActTraceID(comm lifecycle.CommID, act tape.Act, seq uint64) oteltrace.TraceID {
	return traceID(tagAct, comm, byte(act), seq)
}

// OpTraceID is the id of the trace of one operation, as the given rank sees it. Collectives with the same number share
// a trace whatever their kind, so that mismatched calls are seen side by side. A send and the receive that takes its
// message share one, too. Operations that progress together have a trace of their rank alone.
func OpTraceID(comm lifecycle.CommID, rank int, sig tape.Signature, seq uint64) oteltrace.TraceID {
	switch sig.Call {
	case lifecycle.CallSend:
		return pairTraceID(tagPair, comm, int32(rank), sig.Peer, seq)
	case lifecycle.CallRecv:
		return pairTraceID(tagPair, comm, sig.Peer, int32(rank), seq)
	default:
		if ownTrace(sig.Call) {
			return pairTraceID(tagBoth, comm, int32(rank), -1, seq)
		}
		return traceID(tagOp, comm, 0, seq)
	}
}

// ownTrace tells whether operations of a call progress together, and so have a trace of their rank alone.
func ownTrace(call lifecycle.Call) bool {
	return call == lifecycle.CallSendRecv || call == lifecycle.CallGroupEnd
}

// SpanID is the id of the span by which a rank takes part in a trace. Rank 0's is the root.
func SpanID(trace oteltrace.TraceID, rank int) oteltrace.SpanID {
	return spanID(tagSpan, trace, rank, 0)
}

// digest hashes a tag, an id and more. They fit into one SHA-256 block.
func digest(tag string, id [16]byte, more []byte) [sha256.Size]byte {
	var buf [64]byte
	b := append(append(buf[:0], tag...), id[:]...)
	return sha256.Sum256(append(b, more...))
}

// traceID is the id of the trace of an act or a collective.
func traceID(tag string, comm lifecycle.CommID, kind byte, seq uint64) oteltrace.TraceID {
	sum := digest(tag, comm, binary.LittleEndian.AppendUint64(append(make([]byte, 0, 16), kind), seq))
	return oteltrace.TraceID(sum[:16])
}

// pairTraceID is traceID for the n-th message from one rank to another.
func pairTraceID(tag string, comm lifecycle.CommID, from, to int32, n uint64) oteltrace.TraceID {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), uint32(from))
	b = binary.LittleEndian.AppendUint32(b, uint32(to))
	sum := digest(tag, comm, binary.LittleEndian.AppendUint64(b, n))
	return oteltrace.TraceID(sum[:16])
}

// spanID hashes a rank's part in a trace; n distinguishes parts with the same tag.
func spanID(tag string, trace oteltrace.TraceID, rank int, n uint64) oteltrace.SpanID {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), uint32(rank))
	sum := digest(tag, trace, binary.LittleEndian.AppendUint64(b, n))
	return oteltrace.SpanID(sum[:8])
}

// processSalt is a number that differs between the processes of a job.
func processSalt(host string, pid int) uint64 {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(host), uint64(pid)))
	return binary.LittleEndian.Uint64(sum[:8])
}

// identity is a span's own ids and its parent's.
type identity struct {
	trace  oteltrace.TraceID
	span   oteltrace.SpanID
	parent oteltrace.SpanID // invalid for a root
	remote bool             // the parent is another rank's span
}

// rankSpan is the identity of a rank's own span in a trace.
func rankSpan(trace oteltrace.TraceID, rank int) identity {
	id := identity{trace: trace, span: SpanID(trace, rank)}
	if rank != 0 {
		id.parent, id.remote = SpanID(trace, 0), true
	}
	return id
}

// child is the identity of a span below id, made by the same rank.
func (id identity) child(tag string, rank int, n uint64) identity {
	return identity{trace: id.trace, span: spanID(tag, id.trace, rank, n), parent: id.span}
}

// root returns the identity without a parent.
func (id identity) root() identity {
	id.parent, id.remote = oteltrace.SpanID{}, false
	return id
}

// context is the span's own span context, for links.
func (id identity) context() oteltrace.SpanContext {
	return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: id.trace, SpanID: id.span, TraceFlags: oteltrace.FlagsSampled,
	})
}

// identityKey is the context key under which a span's identity reaches the generator.
type identityKey struct{}

// startContext is the context to start the span in: it has the parent and the new span's ids.
func (id identity) startContext(ctx context.Context) context.Context {
	if id.parent.IsValid() {
		ctx = oteltrace.ContextWithSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: id.trace, SpanID: id.parent, TraceFlags: oteltrace.FlagsSampled, Remote: id.remote,
		}))
	}
	return context.WithValue(ctx, identityKey{}, id)
}

// generator is the sdktrace.IDGenerator that hands out the computed ids. Every span of the package is started in a
// context made by startContext; any other span gets ids that OpenTelemetry considers invalid, and is never exported.
type generator struct{}

// NewIDs returns the ids of a root span.
func (generator) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	id, _ := ctx.Value(identityKey{}).(identity)
	return id.trace, id.span
}

// NewSpanID returns the id of a span that has a parent.
func (generator) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	id, _ := ctx.Value(identityKey{}).(identity)
	return id.span
}
