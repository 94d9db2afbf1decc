package trace

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// span is a span before it is made. Times are on the tape's clock.
type span struct {
	id         identity
	name       string
	start, end int64
	attrs      attributes
	links      []oteltrace.Link
	problem    *problem
}

// problem is why a span's status is Error.
type problem struct{ errorType, text string }

// problemOf is the problem of a record, nil if it has none. ErrInProgress is a regular result, not a problem.
func problemOf(code lifecycle.Code, text string) *problem {
	if code == lifecycle.CodeOK || code == lifecycle.CodeInProgress {
		return nil
	}
	if text == "" {
		text = code.String()
	}
	return &problem{errorType: code.String(), text: text}
}

// moment is the duration of a span that marks a moment. Jaeger warns that a duration of 0 is negative.
const moment = time.Nanosecond

// emit makes a span. Without an exporter or a processor the span only goes to the store, which saves the SDK's cost.
func (p *Projector) emit(s *span) {
	if p.disabled || p.alreadyExported() {
		return
	}
	// The time of day may be set meanwhile, so the duration is measured by the tape's clock.
	start, took := p.cfg.Wall(s.start), max(time.Duration(s.end-s.start), moment)
	if s.problem != nil {
		s.attrs = append(s.attrs, semconv.ErrorType.String(s.problem.errorType))
	}
	p.store.keep(s, start, took)
	p.emitted = s.id
	if p.gate == nil && len(p.cfg.Processors) == 0 {
		return
	}
	_, sp := p.tracer.Start(s.id.startContext(context.Background()), s.name,
		oteltrace.WithTimestamp(start),
		oteltrace.WithAttributes(s.attrs...),
		oteltrace.WithLinks(s.links...))
	if s.problem != nil {
		sp.SetStatus(codes.Error, s.problem.text)
	}
	sp.End(oteltrace.WithTimestamp(start.Add(took)))
}

// alreadyExported tells whether the process that wrote the tape has exported the spans of the last event. Only the time
// of the event counts: phases of an act that hangs may have ended long before.
func (p *Projector) alreadyExported() bool {
	return !p.ending && (p.last < p.cfg.From || p.cfg.Sent != 0 && p.last <= p.cfg.Sent)
}

// emitStarted makes the started span of an act, below the span that is made when the act ends. Its id depends on the
// process: until its ranks have met, a world may share its trace with worlds of other runs.
func (p *Projector) emitStarted(m *model.Comm, a *model.Act, r *tape.LifeRecord) {
	id := p.part(m, actTrace(m, a), tagStarted)
	if m.Rank >= 0 {
		id = rankSpan(id.trace, m.Rank).child(tagStarted, m.Rank, p.salt)
	}
	attrs := attributesOf(m)
	attrs.call(r)
	attrs.site(r.Site)
	p.emit(&span{
		id:    id,
		name:  semconv.ActSpan(a.Kind) + semconv.StartedSuffix,
		start: a.Start, end: a.Start,
		attrs: attrs,
	})
}

// part is the identity of a rank's own span in a trace; while the rank is unknown, that of its process's span.
func (p *Projector) part(m *model.Comm, trace oteltrace.TraceID, tag string) identity {
	if m.Rank >= 0 {
		return rankSpan(trace, m.Rank)
	}
	return identity{
		trace: trace, span: spanID(tag, trace, m.Rank, p.salt+uint64(m.Generation)),
		parent: SpanID(trace, 0), remote: true,
	}
}

// emitPhases makes the spans of ended phases that have none yet; with a problem, also that of the current phase.
func (p *Projector) emitPhases(m *model.Comm, a *model.Act, now int64, problem *problem) {
	own := p.part(m, actTrace(m, a), tagSpan)
	phases := slices.Clip(a.Phases[a.Reported:])
	a.Reported = len(a.Phases)
	if problem != nil && a.Phase != tape.PhaseNone {
		phases = append(phases, model.Phase{Phase: a.Phase, Start: a.PhaseStart, End: now, Text: a.PhaseText})
	}
	for i, ph := range phases {
		n := uint64(ph.Phase)
		if m.Rank < 0 {
			n += p.salt + uint64(m.Generation)<<8
		}
		s := span{
			id:    own.child(tagPhase, m.Rank, n),
			name:  semconv.ActSpan(a.Kind) + semconv.PhaseSeparator + ph.Phase.String(),
			start: ph.Start, end: ph.End,
			attrs: attributesOf(m),
		}
		s.attrs.when(ph.Text != "", semconv.PhaseReason.String(ph.Text))
		if i == len(phases)-1 {
			s.problem = problem
		}
		p.emit(&s)
	}
}

// emitAct makes the span of one rank's part in an act that has ended.
func (p *Projector) emitAct(m *model.Comm, a *model.Act, r *tape.LifeRecord, problem *problem) {
	attrs := attributesOf(m)
	attrs.call(r)
	attrs.when(r.State != lifecycle.StateNone, semconv.CommState.String(r.State.String()))
	attrs.when(!r.Child.IsZero(), semconv.SplitChildID.String(r.Child.String()))
	phase := a.Phase
	if n := len(a.Phases); n > 0 && a.Phases[n-1].End == a.End {
		phase = a.Phases[n-1].Phase // in which it ended
	}
	attrs.when(problem != nil && phase != tape.PhaseNone, semconv.Phase.String(phase.String()))
	if r.Site.IsZero() {
		attrs.site(a.First.Site)
	} else {
		attrs.site(r.Site)
	}
	p.emit(&span{
		id:    p.part(m, actTrace(m, a), tagSpan),
		name:  semconv.ActSpan(a.Kind),
		start: a.Start, end: r.Time,
		attrs:   attrs,
		links:   append(p.actLinks(m, r), callerLinks(cmp.Or(r.Caller, a.First.Caller))...),
		problem: problem,
	})
}

// actLinks links an act to the acts that made its communicator, parent and child. The tape doesn't have the rank's
// number in another communicator, so such links lead to rank 0's span.
func (p *Projector) actLinks(m *model.Comm, r *tape.LifeRecord) []oteltrace.Link {
	var links []oteltrace.Link
	switch {
	case r.Act != tape.ActInit:
		links = append(links, p.origins.birthLink(m))
	case !m.Parent.IsZero():
		links = append(links, link(p.origins.span(m.Parent, 0).context(), semconv.LinkParent))
	}
	if !r.Child.IsZero() && p.origins.hasInit(r.Child) {
		links = append(links, link(p.origins.span(r.Child, 0).context(), semconv.LinkChild))
	}
	return links
}

// emitMisuse makes the span of a refused call. It is in the trace of the act that made the call a mistake, below this
// rank's span, or, if there is no such act, in a trace of its own. A refusal of the proxy during a collective is below
// this rank's span of the collective. A postponed call is in the trace of the act that it must wait for, and is no
// error. All ranks that leak a communicator share one trace.
func (p *Projector) emitMisuse(m *model.Comm, s *model.Step) {
	r := &s.Life
	links := []oteltrace.Link{p.origins.birthLink(m)}
	if first, why := before(m, s); r.Act != tape.ActLeak && first.IsValid() {
		links = append(links, link(p.part(m, first, tagSpan).context(), why))
	}
	attrs := attributesOf(m)
	attrs.call(r)
	attrs = append(attrs, semconv.CommState.String(r.State.String()))
	attrs.when(r.Code == lifecycle.CodeInProgress, semconv.Postponed.String(cmp.Or(r.Text, r.Code.String())))
	times, _ := r.Refused()
	attrs.when(times > 1, semconv.RefusedTimes.Int64(int64(times)))
	attrs.site(r.Site)
	attrs.first(r.First)
	p.emit(&span{
		id:    p.misuse(m, s),
		name:  semconv.LifeSpan(r),
		start: r.Time, end: r.Time,
		attrs:   attrs,
		links:   append(links, callerLinks(r.Caller)...),
		problem: problemOf(r.Code, r.Text),
	})
}

// before returns the trace of the act because of which a call was refused, if known, and the kind of the link to it: an
// earlier act makes the call illegal, or the call must wait for an unfinished act.
func before(m *model.Comm, s *model.Step) (trace oteltrace.TraceID, kind string) {
	if code := s.Life.Code; code != lifecycle.CodeInProgress {
		if first, known := firstActs[code]; known {
			trace = ActTraceID(m.ID, first, 0)
		}
		return trace, semconv.LinkFirst
	}
	if s.Comm.Latest != nil {
		trace = actTrace(m, s.Comm.Latest)
	}
	return trace, semconv.LinkBehind
}

// firstActs are the acts after which a call is refused with a code.
var firstActs = map[lifecycle.Code]tape.Act{
	lifecycle.CodeFinalized: tape.ActFinalize, lifecycle.CodeDestroyed: tape.ActDestroy,
	lifecycle.CodeAborted: tape.ActAbort, lifecycle.CodeRevoked: tape.ActRevoke,
}

// emitFailure makes the span of a communicator's failure, with its full text. If the failed call is a collective, the
// span is in that operation's trace; other ranks that notice the failure share a trace for it.
func (p *Projector) emitFailure(m *model.Comm, r *tape.LifeRecord) {
	attrs := attributesOf(m)
	attrs.call(r)
	attrs = append(attrs, semconv.CommState.String(r.State.String()))
	attrs.site(r.Site)
	p.emit(&span{
		id:    p.failure(m, r),
		name:  semconv.SpanFailure,
		start: cmp.Or(min(r.Start, r.Time), r.Time), end: r.Time,
		attrs:   attrs,
		links:   append([]oteltrace.Link{p.origins.birthLink(m)}, callerLinks(r.Caller)...),
		problem: problemOf(r.Code, r.Text),
	})
}

func link(to oteltrace.SpanContext, kind string) oteltrace.Link {
	return oteltrace.Link{SpanContext: to, Attributes: []attribute.KeyValue{semconv.LinkKind.String(kind)}}
}

// callerLinks links to the caller's span, if there is one.
func callerLinks(c tape.SpanContext) []oteltrace.Link {
	sc := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: c.TraceID, SpanID: c.SpanID, TraceFlags: oteltrace.TraceFlags(c.Flags),
	})
	if !sc.IsValid() {
		return nil
	}
	return []oteltrace.Link{link(sc, semconv.LinkCaller)}
}

// SpanOf is the span of a step, for readers that refer to it, such as a log: this rank's span of the act or operation,
// even if it is made later, or the span of the refused call or failure. The context is not sampled if the operation
// gets no span, and invalid if the communicator is unknown. Call it from Observe's goroutine, after Observe.
func (p *Projector) SpanOf(s *model.Step) oteltrace.SpanContext {
	if s.Comm == nil || !s.IsLife && s.Op == nil {
		return oteltrace.SpanContext{}
	}
	m, r := s.Comm, &s.Life
	switch {
	case !s.IsLife:
		o := s.Op
		sc := p.opPart(m, &o.Signature, o.Seq).context()
		kept := o.End > 0 && p.emitted.span == sc.SpanID() // also a slow or stalled one
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

// SpanOfStall is the span of a report's act or operation, which is made when the act or operation ends.
func (p *Projector) SpanOfStall(r *stall.Report) oteltrace.SpanContext {
	return p.part(r.Comm, stallTrace(r), tagSpan).context()
}

// misuse is the identity of a refused call's span; see emitMisuse.
func (p *Projector) misuse(m *model.Comm, s *model.Step) identity {
	r := &s.Life
	if r.Act == tape.ActLeak {
		return p.part(m, ActTraceID(m.ID, tape.ActLeak, 0), tagSpan)
	}
	if first, _ := before(m, s); first.IsValid() {
		return p.part(m, first, tagSpan).child(tagMisuse, m.Rank, uint64(r.Time))
	}
	if r.Seq > 0 { // the proxy refused something during the operation
		if trace, ok := collectiveTrace(m, r); ok {
			return p.part(m, trace, tagSpan).child(tagMisuse, m.Rank, uint64(r.Time))
		}
	}
	// No other rank has a span in the trace: this one is the root.
	trace := ActTraceID(m.ID, tape.ActNone, uint64(r.Time))
	return identity{trace: trace, span: spanID(tagMisuse, trace, m.Rank, uint64(r.Time))}
}

// failure is the identity of the span of a communicator's failure; see emitFailure.
func (p *Projector) failure(m *model.Comm, r *tape.LifeRecord) identity {
	if trace, ok := collectiveTrace(m, r); ok {
		return p.part(m, trace, tagSpan).child(tagFailure, m.Rank, 0)
	}
	return p.part(m, ActTraceID(m.ID, tape.ActNone, r.Seq), tagFailure)
}

// collectiveTrace is the trace of the collective that a life record is about; ok is false if it is about something
// else, such as a split.
func collectiveTrace(m *model.Comm, r *tape.LifeRecord) (trace oteltrace.TraceID, ok bool) {
	if !r.Call.IsCollective() || !r.Call.IsOperation() {
		return trace, false
	}
	return OpTraceID(m.ID, m.Rank, tape.Signature{Call: r.Call}, r.Seq), true
}
