package trace

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Projector turns the steps of one process's model into spans. Observe, ObserveStall, Unfinished, Interrupt and Close
// belong to the model's owner; Store, Stats and Flush may be used by any goroutine.
type Projector struct {
	cfg      Config
	provider *sdktrace.TracerProvider // of the exporter and processors, if any
	tracer   oteltrace.Tracer
	store    *Store
	gate     *gate // nil: nothing is exported
	disabled bool  // OTEL_SDK_DISABLED: no spans are made
	origins  *origins
	salt     uint64   // makes this process's spans differ from others' while it has no rank
	last     int64    // time of the last event
	sentTo   int64    // acts and operations that began until then and are open have an unfinished span
	ending   bool     // spans of open acts and operations are being made
	emitted  identity // the span of the last event
}

// New makes a Projector for the tape of the process that cfg describes, with the exporter that the OTEL_* variables
// name; ctx bounds how long making it may take. An unusable variable is logged with its value and the allowed values;
// it is an error only with cfg.MustExport, so that the traced job goes on.
func New(ctx context.Context, cfg Config) (*Projector, error) {
	if cfg.Wall == nil {
		return nil, errors.New("trace: Config.Wall is nil; give it the tape's Header.Wall")
	}
	if cfg.Delivered != nil && cfg.Now == nil {
		return nil, errors.New("trace: Config.Delivered needs Config.Now, which is nil; give it tape.Now")
	}
	if cfg.Process == nil {
		return nil, errors.New("trace: Config.Process is nil; give it the model whose steps are observed")
	}
	cfg.setDefaults()
	p := &Projector{
		cfg: cfg, store: NewStore(cfg.StoreTraces), disabled: otlp.Disabled(), origins: newOrigins(),
		salt: processSalt(cfg.Host, cfg.PID), sentTo: cfg.Sent,
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Store holds the last traces. It stays readable after Close.
func (p *Projector) Store() *Store { return p.store }

// Stats counts exported and lost spans; all zero without an exporter.
func (p *Projector) Stats() Stats {
	if p.gate == nil {
		return Stats{}
	}
	return p.gate.Stats()
}

// Observe takes the next step of Config.Process. It reads s only during the call, and never blocks on an exporter.
// Steps of a communicator whose description is no longer on the tape make no span.
func (p *Projector) Observe(s *model.Step) {
	if p.disabled {
		return
	}
	p.emitted = identity{}
	p.last = max(p.last, s.Time())
	for _, a := range s.Dropped {
		p.abandon(a, p.last, "")
	}
	if s.Comm == nil {
		return
	}
	if !s.Was.IsZero() {
		p.renamed(s.Comm, s.Was)
	}
	switch r := &s.Event.Op; {
	case s.IsLife:
		p.observeLife(s.Comm, s)
	case !r.Signature.Call.IsOperation(): // it is an act's internal operation
	case r.Stage == tape.StageEnd:
		p.endOp(s.Comm, s.Op)
	case r.Stage == tape.StageDevice:
		p.emitDevice(s.Comm, s.Op)
	case r.Stage == tape.StageKernel:
		p.emitKernel(s.Comm, r)
	case r.IsProxied():
		p.emitProxied(s.Comm, s.Op, r)
	}
	if g := p.gate; g != nil && p.emitted != (identity{}) && g.Stats().Dropped == 0 {
		g.deliveries.queued(g.Admitted(), p.last)
	}
}

// renamed moves the open acts of a communicator, such as the init of a world, to the traces of its new id.
func (p *Projector) renamed(m *model.Comm, was lifecycle.CommID) {
	for _, a := range m.Acts {
		if a.Kind == tape.ActInit {
			p.origins.addInit(m.ID)
		}
		p.store.countOpen(ActTraceID(was, a.Kind, a.Seq), -1)
		p.store.countOpen(actTrace(m, a), 1)
		p.emitStarted(m, a, &a.First)
	}
}

func (p *Projector) observeLife(m *model.Comm, s *model.Step) {
	r := &s.Life
	switch {
	case r.Stage == tape.StageMisuse:
		p.emitMisuse(m, s)
	case s.Act == nil:
		if r.Stage == tape.StageEnd && r.Act == tape.ActNone {
			p.emitFailure(m, r)
		}
	default:
		p.observeAct(m, s)
	}
}

// observeAct makes the spans of an act that has begun, changed its phase or ended.
func (p *Projector) observeAct(m *model.Comm, s *model.Step) {
	a, r := s.Act, &s.Life
	if s.Began {
		if a.Kind == tape.ActInit {
			p.origins.addInit(m.ID)
		}
		if r.Stage != tape.StageEnd {
			p.store.countOpen(actTrace(m, a), 1)
		}
	}
	switch r.Stage {
	case tape.StageStart:
		p.emitStarted(m, a, r)
	case tape.StagePhase:
		if m.Rank >= 0 { // phases without a rank wait until it is known
			p.emitPhases(m, a, 0, nil)
		}
	case tape.StageEnd:
		p.finish(m, a, r, problemOf(r.Code, r.Text))
		if a.Kind != tape.ActInit && !r.Child.IsZero() {
			p.origins.addSplit(r.Child, actTrace(m, a))
		}
	default:
	}
}

func actTrace(m *model.Comm, a *model.Act) oteltrace.TraceID { return ActTraceID(m.ID, a.Kind, a.Seq) }

// finish makes the spans of an act that ended with record r.
func (p *Projector) finish(m *model.Comm, a *model.Act, r *tape.LifeRecord, problem *problem) {
	p.emitPhases(m, a, r.Time, problem)
	p.emitAct(m, a, r, problem)
	p.store.countOpen(actTrace(m, a), -1)
}

// abandon ends an open act as unfinished. why is as for unfinished.
func (p *Projector) abandon(a *model.Act, now int64, why string) {
	m, r := a.Comm, a.First
	r.Stage, r.Time = tape.StageEnd, max(now, a.Start)
	p.finish(m, a, &r, unfinished(a.Kind.String(), why, a.Phase))
}

// unfinished returns the problem of an act or operation that didn't end. why is a clause, "SIGTERM comes"; "" means
// that the record of the end was missed.
func unfinished(what, why string, phase tape.Phase) *problem {
	text := "unfinished: " + why + " before the " + what + " does"
	if why == "" {
		text = "unfinished: the record of the end of the " + what + " was missed"
	}
	if phase != tape.PhaseNone {
		text += ", in phase " + phase.String()
	}
	return &problem{errorType: semconv.ErrorUnfinished, text: text}
}

// Emitted is the span of the last event; invalid if it has none, as for most operations. Only the goroutine that calls
// Observe may call it.
func (p *Projector) Emitted() oteltrace.SpanContext { return p.emitted.context() }

// Close ends the open acts as unfinished, and exports the queued spans until ctx ends. The error is ctx's, if spans
// were left.
func (p *Projector) Close(ctx context.Context) error {
	p.ending = true
	p.abandonAll(tapeEnds)
	return p.Leave(ctx)
}

// Leave is Close for a tape that another reader will continue to read: open acts stay open.
func (p *Projector) Leave(ctx context.Context) error {
	err := p.provider.Shutdown(ctx)
	if p.gate != nil { // the provider ends nothing if ctx has ended
		err = errors.Join(err, p.gate.Shutdown(ctx))
	}
	return err
}

// tapeEnds is why an act or operation is unfinished, if nothing else is known.
const tapeEnds = "the tape ends"

// Unfinished ends the open acts and the operations in flight as unfinished, now or, without Config.Now, at the time of
// the last event. It is for the tape of a process that has ended: call it before Close, and after model.Process.Look.
// The spans have the ids that they would have had at a regular end.
func (p *Projector) Unfinished() {
	p.ending = true
	p.Interrupt(tapeEnds)
}

// Interrupt is Unfinished for a process that is about to end. why is the reason, as a clause: "SIGTERM comes". An act
// or operation that still ends regularly gets a second span with the same ids. Flush sends the spans.
func (p *Projector) Interrupt(why string) {
	now := p.now()
	p.abandonAll(why)
	for c := range p.cfg.Process.Comms() {
		p.unfinishedOp(c, now, why)
	}
	p.sentTo = max(p.sentTo, now)
}

// Exports tells whether spans leave the process.
func (p *Projector) Exports() bool { return p.gate != nil }

// Complete tells whether all spans that were made before the last Flush without an error have been exported: there is
// an exporter, and it lost none.
func (p *Projector) Complete() bool {
	if p.gate == nil {
		return false
	}
	stats := p.gate.Stats()
	return stats.Dropped == 0 && stats.Failed == 0
}

// Flush exports the queued spans, until ctx ends, for callers that feed events faster than they can be exported. The
// error is ctx's.
func (p *Projector) Flush(ctx context.Context) error { return p.provider.ForceFlush(ctx) }

// abandonAll ends the open acts that were not reported as unfinished before.
func (p *Projector) abandonAll(why string) {
	now := p.now()
	for _, a := range p.cfg.Process.OpenActs() {
		if !p.reported(a.Start) {
			p.abandon(a, now, why)
		}
	}
}

// unfinishedOp makes the span of the communicator's operation in flight, as it was at now.
func (p *Projector) unfinishedOp(c *model.Comm, now int64, why string) {
	in := c.InFlight()
	if in == nil || !in.Signature.Call.IsOperation() || p.reported(in.Start) {
		return
	}
	problem := unfinished(in.Signature.Call.String(), why, in.Phase)
	if in.Wait >= 0 {
		problem.text += ", waiting for " + p.cfg.Process.Name(c, int(in.Wait))
	}
	o := *in
	o.End = max(now, o.Start, o.WaitSince)
	p.emit(p.opSpan(c, &o, p.slow(&o, o.End), problem))
}

// reported tells whether an act or operation that began at start was reported as unfinished before.
func (p *Projector) reported(start int64) bool { return p.sentTo != 0 && start <= p.sentTo }

// now is the end time of unfinished acts and operations.
func (p *Projector) now() int64 {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return p.last
}
