package trace

import (
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// SpanOf is the span that tells of a step, for readers that tell of it in another way: the act's or operation's own on
// this rank, also while it is not there yet; of a refused call or a failure the span that is made of it. The context is
// not sampled if it is an operation of which no span is made, and invalid if the communicator isn't known. Call it from
// Observe's goroutine, behind Observe.
func (p *Projector) SpanOf(s *model.Step) oteltrace.SpanContext {
	if s.Comm == nil || !s.IsLife && s.Op == nil {
		return oteltrace.SpanContext{}
	}
	m, r := memberOf(s.Comm), &s.Life
	switch {
	case !s.IsLife:
		o := s.Op
		sc := p.part(m, OpTraceID(m.ID, m.Rank, o.Signature, o.Seq), tagSpan).context()
		kept := o.End > 0 && p.emitted.span == sc.SpanID() // slow or stalled ones too
		if !kept && o.Code == lifecycle.CodeOK && !p.samples(m.ID, o) {
			return sc.WithTraceFlags(0)
		}
		return sc
	case r.Stage == tape.StageMisuse:
		return p.misuse(m, s).context()
	case r.Act == tape.ActNone:
		return p.failure(m, r).context()
	default:
		return p.part(m, ActTraceID(m.ID, r.Act, r.Seq), tagSpan).context()
	}
}

// SpanOfStall is the span of what a report tells of, which is made when it ends.
func (p *Projector) SpanOfStall(r *stall.Report) oteltrace.SpanContext {
	return p.part(&member{r.Comm, r.Generation}, stallTrace(r), tagSpan).context()
}

// misuse is the place of a refused call's span; see emitMisuse.
func (p *Projector) misuse(m *member, s *model.Step) identity {
	r := &s.Life
	if r.Act == tape.ActLeak {
		return p.part(m, ActTraceID(m.ID, tape.ActLeak, 0), tagSpan)
	}
	if first, _ := before(m, s); first.IsValid() {
		return p.part(m, first, tagSpan).child(tagMisuse, m.Rank, uint64(r.Time))
	}
	// It happened on this rank alone: the root is here.
	trace := ActTraceID(m.ID, tape.ActNone, uint64(r.Time))
	return identity{trace: trace, span: spanID(tagMisuse, trace, m.Rank, uint64(r.Time))}
}

// failure is the place of a communicator's failure; see emitFailure.
func (p *Projector) failure(m *member, r *tape.LifeRecord) identity {
	if r.Call.IsCollective() && r.Call.IsOperation() { // not a split
		trace := OpTraceID(m.ID, m.Rank, tape.Signature{Call: r.Call}, r.Seq)
		return p.part(m, trace, tagSpan).child(tagFailure, m.Rank, 0)
	}
	return p.part(m, ActTraceID(m.ID, tape.ActNone, r.Seq), tagFailure)
}
