package trace

import (
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// SpanOf is the span that tells of an event, for who tells of it in another way: the act's or operation's own on this rank, also while it
// is not there yet; of a refused call or a failure the span that is made of it. The context is not sampled if it is an operation of which no
// span is made. Call it from Observe's goroutine, behind Observe.
func (p *Projector) SpanOf(ev *tape.Event) oteltrace.SpanContext {
	who := subject{ev.Comm, ev.Generation}
	if !ev.IsLife {
		trace := OpTraceID(who.ID, who.Rank, ev.Op.Signature, ev.Op.Seq)
		sc := p.part(&who, trace, tagSpan).context()
		if ev.Op.Stage == tape.StageEnd && p.emitted.span == sc.SpanID() { // slow or stalled ones too
			return sc
		}
		if ev.Op.Code == lifecycle.CodeOK && !p.samples(&who, &ev.Op) {
			return sc.WithTraceFlags(0)
		}
		return sc
	}
	switch r := &ev.Life; {
	case r.Stage == tape.StageMisuse:
		return p.misuse(&who, r).context()
	case r.Act == tape.ActNone:
		return p.failure(&who, r).context()
	default:
		return p.part(&who, ActTraceID(who.ID, r.Act, r.Seq), tagSpan).context()
	}
}

// misuse is the place of a refused call's span; see emitMisuse.
func (p *Projector) misuse(who *subject, r *tape.LifeRecord) identity {
	if r.Act == tape.ActLeak {
		return p.part(who, ActTraceID(who.ID, tape.ActLeak, 0), tagSpan)
	}
	if first, _ := p.before(who, r); first.IsValid() {
		return p.part(who, first, tagSpan).child(tagMisuse, who.Rank, uint64(r.Time))
	}
	// It happened on this rank alone: the root is here.
	trace := ActTraceID(who.ID, tape.ActNone, uint64(r.Time))
	return identity{trace: trace, span: spanID(tagMisuse, trace, who.Rank, uint64(r.Time))}
}

// failure is the place of a communicator's failure; see emitFailure.
func (p *Projector) failure(who *subject, r *tape.LifeRecord) identity {
	if semconv.Collective(r.Call) {
		trace := OpTraceID(who.ID, who.Rank, tape.Signature{Call: r.Call}, r.Seq)
		return p.part(who, trace, tagSpan).child(tagFailure, who.Rank, 0)
	}
	return p.part(who, ActTraceID(who.ID, tape.ActNone, r.Seq), tagFailure)
}
