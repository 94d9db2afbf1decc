package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// span is a span to be, with the tape's times.
type span struct {
	id         identity
	name       string
	start, end int64
	attrs      []attribute.KeyValue
	links      []oteltrace.Link
	problem    *problem
}

// problem is why a span's status is Error.
type problem struct{ errorType, text string }

// problemOf is the problem of a record, nil if it has none. ErrInProgress is an answer, not a problem.
func problemOf(code lifecycle.Code, text string) *problem {
	if code == lifecycle.CodeOK || code == lifecycle.CodeInProgress {
		return nil
	}
	if text == "" {
		text = code.String()
	}
	return &problem{errorType: code.String(), text: text}
}

// unfinished is the problem of an act that the tape doesn't end.
func unfinished(act *openAct) *problem {
	text := "unfinished: the tape ends before the " + semconv.ActName(act.start.Act) + " does"
	if act.phase != tape.PhaseNone {
		text += ", in phase " + semconv.PhaseName(act.phase)
	}
	return &problem{errorType: semconv.ErrorUnfinished, text: text}
}

// emit makes the span and ends it: everything of it is known, its times are explicit.
func (p *Projector) emit(s *span) {
	_, sp := p.pipe.tracer.Start(s.id.startContext(context.Background()), s.name,
		oteltrace.WithTimestamp(p.cfg.Wall(s.start)),
		oteltrace.WithAttributes(s.attrs...),
		oteltrace.WithLinks(s.links...))
	if s.problem != nil {
		sp.SetAttributes(semconv.ErrorType.String(s.problem.errorType))
		sp.SetStatus(codes.Error, s.problem.text)
	}
	sp.End(oteltrace.WithTimestamp(p.cfg.Wall(s.end)))
}

// emitStarted announces an act: a span without length below the one that will come when the act ends.
func (p *Projector) emitStarted(key actKey, comm *tape.CommInfo, r *tape.LifeRecord) {
	attrs := append(commAttributes(comm), callAttributes(r)...)
	p.emit(&span{
		id:    key.identity().child(tagStarted, key.rank, 0),
		name:  semconv.ActSpan(r.Act) + semconv.StartedSuffix,
		start: r.Time, end: r.Time,
		attrs: append(attrs, siteAttributes(r.Site)...),
	})
}

// emitAct is one rank's part in an act that has ended.
func (p *Projector) emitAct(key actKey, act *openAct, r *tape.LifeRecord, problem *problem) {
	attrs := append(commAttributes(&act.comm), callAttributes(r)...)
	if r.State != lifecycle.StateNone {
		attrs = append(attrs, semconv.CommState.String(r.State.String()))
	}
	if !r.Child.IsZero() {
		attrs = append(attrs, semconv.SplitChildID.String(r.Child.String()))
	}
	if r.Act == tape.ActGroup {
		attrs = append(attrs, semconv.GroupOps.Int64(int64(r.Ops)))
	}
	if problem != nil && act.phase != tape.PhaseNone {
		attrs = append(attrs, semconv.Phase.String(semconv.PhaseName(act.phase)))
	}
	site := r.Site
	if site.IsZero() {
		site = act.start.Site
	}
	caller := r.Caller
	if caller == (tape.SpanContext{}) {
		caller = act.start.Caller
	}
	p.emit(&span{
		id:    key.identity(),
		name:  semconv.ActSpan(r.Act),
		start: act.start.Time, end: r.Time,
		attrs:   append(attrs, siteAttributes(site)...),
		links:   append(p.actLinks(&act.comm, r.Act), callerLinks(caller)...),
		problem: problem,
	})
}

// actLinks connects an act to the life that it belongs to.
func (p *Projector) actLinks(comm *tape.CommInfo, act tape.Act) []oteltrace.Link {
	switch {
	case act != tape.ActInit:
		return []oteltrace.Link{link(p.births.of(comm.ID, comm.Rank), semconv.LinkBirth)}
	case !comm.Parent.IsZero():
		// The rank had another number in the parent, which the tape doesn't tell: link to rank 0's span.
		return []oteltrace.Link{link(p.births.of(comm.Parent, 0), semconv.LinkParent)}
	default:
		return nil
	}
}

// endPhase ends the phase that the act is in, if it is in one.
func (p *Projector) endPhase(key actKey, act *openAct, now int64, problem *problem) {
	if act.phase == tape.PhaseNone {
		return
	}
	p.emit(&span{
		id:    key.identity().child(tagPhase, key.rank, uint64(act.phase)),
		name:  semconv.ActSpan(key.act) + semconv.PhaseSeparator + semconv.PhaseName(act.phase),
		start: act.phaseSince, end: now,
		attrs:   commAttributes(&act.comm),
		problem: problem,
	})
}

// emitMisuse is a refused call. It stands in the trace of the act that made it a mistake, below this rank's part in it, or, where
// there is no such act, in a trace of its own.
func (p *Projector) emitMisuse(comm *tape.CommInfo, r *tape.LifeRecord) {
	key := actKey{comm: comm.ID, rank: comm.Rank, act: tape.ActNone, seq: uint64(r.Time)}
	first := firstAct(r.Code)
	key.act = first
	var id identity
	links := []oteltrace.Link{link(p.births.of(comm.ID, comm.Rank), semconv.LinkBirth)}
	if first != tape.ActNone {
		key.seq = 0
		own := key.identity()
		id = own.child(tagMisuse, comm.Rank, uint64(r.Time))
		links = append(links, link(own, semconv.LinkFirst))
	} else {
		// It happened on this rank alone: the root is here.
		trace := key.identity().trace
		id = identity{trace: trace, span: spanID(tagMisuse, trace, comm.Rank, uint64(r.Time))}
	}
	name := semconv.ActSpan(r.Act)
	if r.Act == tape.ActNone {
		name = semconv.CallSpan(r.Call)
	}
	attrs := append(commAttributes(comm), callAttributes(r)...)
	attrs = append(attrs, semconv.CommState.String(r.State.String()))
	attrs = append(attrs, siteAttributes(r.Site)...)
	p.emit(&span{
		id:    id,
		name:  name,
		start: r.Time, end: r.Time,
		attrs:   append(attrs, firstAttributes(r.First)...),
		links:   append(links, callerLinks(r.Caller)...),
		problem: problemOf(r.Code, r.Text),
	})
}

// firstAct is the act after which a call is refused with that code: ActNone if the code doesn't tell of one.
func firstAct(code lifecycle.Code) tape.Act {
	switch code {
	case lifecycle.CodeFinalized:
		return tape.ActFinalize
	case lifecycle.CodeDestroyed:
		return tape.ActDestroy
	case lifecycle.CodeAborted:
		return tape.ActAbort
	case lifecycle.CodeRevoked:
		return tape.ActRevoke
	default:
		return tape.ActNone
	}
}

// emitFailure says that a communicator failed, and in full why. Where the failed call is a collective it stands in that operation's trace;
// the ranks that notice a failure in another way meet in a trace of their own.
func (p *Projector) emitFailure(comm *tape.CommInfo, r *tape.LifeRecord) {
	var id identity
	if semconv.Collective(r.Call) {
		op := rankSpan(OpTraceID(comm.ID, comm.Rank, tape.Signature{Call: r.Call}, r.Seq), comm.Rank)
		id = op.child(tagFailure, comm.Rank, 0)
	} else {
		id = rankSpan(ActTraceID(comm.ID, tape.ActNone, r.Seq), comm.Rank)
	}
	attrs := append(commAttributes(comm), callAttributes(r)...)
	attrs = append(attrs, semconv.CommState.String(r.State.String()))
	p.emit(&span{
		id:    id,
		name:  semconv.SpanFailure,
		start: startOf(r), end: r.Time,
		attrs:   append(attrs, siteAttributes(r.Site)...),
		links:   append([]oteltrace.Link{link(p.births.of(comm.ID, comm.Rank), semconv.LinkBirth)}, callerLinks(r.Caller)...),
		problem: problemOf(r.Code, r.Text),
	})
}

// observeOp makes the span of an operation that ended, if it failed or is among the sampled ones.
func (p *Projector) observeOp(comm *tape.CommInfo, r *tape.OpRecord) {
	if r.Stage != tape.StageEnd || comm.ID.IsZero() {
		return
	}
	problem := problemOf(r.Code, "")
	if problem == nil && p.cfg.SampleEvery < 0 {
		return
	}
	trace := OpTraceID(comm.ID, comm.Rank, r.Signature, r.Seq)
	if problem == nil && !sampled(trace, uint64(p.cfg.SampleEvery)) {
		return
	}
	if problem != nil && r.Wait >= 0 {
		problem.text += ": was waiting for rank " + rankText(r.Wait)
	}
	start := r.Time
	if r.Start > 0 && r.Start < r.Time {
		start = r.Start
	}
	p.emit(&span{
		id:    rankSpan(trace, comm.Rank),
		name:  semconv.CallSpan(r.Signature.Call),
		start: start, end: r.Time,
		attrs:   append(commAttributes(comm), p.opAttributes(r, problem != nil)...),
		links:   []oteltrace.Link{link(p.births.of(comm.ID, comm.Rank), semconv.LinkBirth)},
		problem: problem,
	})
}

func link(to identity, kind string) oteltrace.Link {
	return oteltrace.Link{
		SpanContext: to.context(),
		Attributes:  []attribute.KeyValue{semconv.LinkKind.String(kind)},
	}
}

// callerLinks links to the caller's own span, if there is one.
func callerLinks(c tape.SpanContext) []oteltrace.Link {
	sc := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: c.TraceID, SpanID: c.SpanID, TraceFlags: oteltrace.TraceFlags(c.Flags),
	})
	if !sc.IsValid() {
		return nil
	}
	return []oteltrace.Link{{
		SpanContext: sc,
		Attributes:  []attribute.KeyValue{semconv.LinkKind.String(semconv.LinkCaller)},
	}}
}

// firstTime is a moment as FirstTime has it.
func firstTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
