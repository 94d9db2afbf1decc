package trace

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Projector turns the events of one tape into spans. Observe and Close belong to one goroutine, the one that follows the tape;
// Store and Stats may be used by any.
type Projector struct {
	cfg    Config
	pipe   *pipeline // nil: OTEL_SDK_DISABLED
	store  *Store
	open   map[actKey]*openAct
	waits  map[uint32]waiting           // by subject.local: what the operation in flight waits for
	latest map[uint32]oteltrace.TraceID // by subject.local: the act that began last, while the communicator lives
	births *births
	salt   uint64 // tells this process's spans apart where there is no rank
	last   int64  // time of the last event
	ending bool   // what comes now never ended

	called map[opKey]tape.SpanContext // the callers of operations in flight, where there are any
	told   map[opKey]int              // operations that were told to be slow, and how often to stall

	emitted identity // the span that the event being observed, or observed last, was made into
}

// actKey is one rank's part in one act. The rank itself is not in it: a child of a split has none until the split is done.
type actKey struct {
	comm uint32 // tape.Event.Generation: no other communicator of the process has it
	act  tape.Act
	seq  uint64
}

// openAct is an act that has started and not ended.
type openAct struct {
	who    subject         // as its last record knew it
	start  tape.LifeRecord // its first record, with the time at which the act began
	phase  phase           // the one that it is in; PhaseNone before the first
	phases []phase         // those that ended before the rank was known
}

// phase is a part of an act.
type phase struct {
	kind       tape.Phase
	start, end int64
	problem    *problem
}

// waiting is the rank that an operation waited for last; the record of its end doesn't tell.
type waiting struct {
	op   opKey
	rank int32
}

// subject is one rank of a communicator: who does something.
type subject struct {
	tape.CommInfo
	local uint32 // tape.Event.Generation
}

// maxOpen bounds the acts that are open at a time: far more than communicators have, unless the ends of many were missed.
const maxOpen = 16 << 10

// New makes a Projector for the tape of the process that cfg describes, with the exporter that the OTEL_* variables name. ctx bounds
// the making of the exporter. A variable that can't be used is logged with its value and what it takes, and no error unless cfg.MustExport:
// the job that is traced goes on.
func New(ctx context.Context, cfg Config) (*Projector, error) {
	if cfg.Wall == nil {
		return nil, errors.New("trace: Config.Wall is nil; give it the tape's Header.Wall")
	}
	if cfg.Delivered != nil && cfg.Now == nil {
		return nil, errors.New("trace: Config.Delivered is told by Config.Now, which is nil; give it tape.Now")
	}
	cfg.setDefaults()
	p := &Projector{
		cfg: cfg, open: make(map[actKey]*openAct), waits: make(map[uint32]waiting), latest: make(map[uint32]oteltrace.TraceID),
		called: make(map[opKey]tape.SpanContext), told: make(map[opKey]int), births: newBirths(), salt: processSalt(cfg.Host, cfg.PID),
	}
	if sdkDisabled() {
		p.store = NewStore(1)
		return p, nil
	}
	pipe, err := newPipeline(ctx, &p.cfg)
	if err != nil {
		return nil, err
	}
	p.pipe, p.store = pipe, pipe.store
	return p, nil
}

// Store holds the last traces. It stays readable after Close.
func (p *Projector) Store() *Store { return p.store }

// Stats counts the spans that were to be exported; all zero if none are.
func (p *Projector) Stats() Stats {
	if p.pipe == nil {
		return Stats{}
	}
	return p.pipe.stats()
}

// Observe takes the tape's next event. It reads ev only during the call, and never blocks on an exporter.
func (p *Projector) Observe(ev *tape.Event) {
	if p.pipe == nil {
		return
	}
	p.emitted = identity{}
	who := subject{ev.Comm, ev.Generation}
	if ev.IsLife {
		p.last = max(p.last, ev.Life.Time)
		p.observeLife(&who, &ev.Life)
	} else {
		p.last = max(p.last, ev.Op.Time)
		p.observeOp(&who, &ev.Op)
	}
	if g := p.pipe.gate; g != nil && p.emitted != (identity{}) && g.dropped.Load() == 0 {
		g.deliveries.queued(g.queued.Load(), p.last)
	}
}

func (p *Projector) observeLife(who *subject, r *tape.LifeRecord) {
	switch r.Stage {
	case tape.StageStart:
		p.start(who, r)
	case tape.StagePhase:
		p.phase(who, r)
	case tape.StageEnd:
		if r.Act == tape.ActNone {
			p.emitFailure(who, r)
		} else {
			p.end(who, r)
		}
	case tape.StageMisuse:
		p.emitMisuse(who, r)
	case tape.StageNone, tape.StageWait: // nothing that a span shows
	}
}

// Emitted is the span that the last event was made into, the event's own if several were; invalid if none was, as for most operations. It
// belongs to the goroutine that calls Observe.
func (p *Projector) Emitted() oteltrace.SpanContext { return p.emitted.context() }

// Close ends the acts that are still open, as unfinished, and exports what is queued until ctx ends. The error is ctx's, if spans were
// left behind.
func (p *Projector) Close(ctx context.Context) error {
	if p.pipe == nil {
		return nil
	}
	now := p.now()
	p.ending = true
	for _, act := range p.oldest() {
		if !p.sent(act.start.Time) {
			p.abandon(act, now, "the tape ends")
		}
	}
	return p.pipe.shutdown(ctx)
}

// now is the time at which what is open ends.
func (p *Projector) now() int64 {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return p.last
}

// Interrupt ends the acts that are open now, and the operations that slots show in flight, as unfinished: for a process that will be gone
// in a moment. why is what comes before they end ("SIGTERM comes"). One that ends all the same has another span then, with the same
// ids. Flush sends them. It belongs to Observe's goroutine, or to who keeps the two apart.
func (p *Projector) Interrupt(why string, slots []tape.Slot) {
	if p.pipe == nil {
		return
	}
	now := p.now()
	for _, act := range p.oldest() {
		p.abandon(act, now, why)
	}
	for i := range slots {
		p.unfinishedOp(&slots[i], now, why)
	}
}

func (p *Projector) start(who *subject, r *tape.LifeRecord) {
	act := p.begin(who, r)
	p.emitStarted(act, r)
}

func (p *Projector) phase(who *subject, r *tape.LifeRecord) {
	act := p.open[keyOf(who, r)]
	if act == nil { // its start was overwritten before it was read
		act = p.begin(who, r)
	}
	act.who = *who
	p.endPhase(act, r.Time, nil)
	act.phase = phase{kind: r.Phase, start: r.Time}
}

func (p *Projector) end(who *subject, r *tape.LifeRecord) {
	act := p.open[keyOf(who, r)]
	if act == nil {
		act = p.begin(who, r)
	}
	act.who = *who
	p.finish(act, r, problemOf(r.Code, r.Text))
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow:
		if !r.Child.IsZero() {
			p.births.made(r.Child, act.trace())
		}
	case tape.ActInit:
		if r.Code != lifecycle.CodeOK { // nothing waits for it, and its end may be the last that is heard of the communicator
			delete(p.latest, who.local)
		}
	case tape.ActDestroy, tape.ActAbort:
		delete(p.waits, who.local)
		delete(p.latest, who.local)
	default:
	}
}

func keyOf(who *subject, r *tape.LifeRecord) actKey {
	return actKey{comm: who.local, act: r.Act, seq: r.Seq}
}

// trace is the act's.
func (a *openAct) trace() oteltrace.TraceID {
	return ActTraceID(a.who.ID, a.start.Act, a.start.Seq)
}

// begin remembers an act until it ends. What a tape doesn't end for want of records is given up when there is too much of it.
func (p *Projector) begin(who *subject, r *tape.LifeRecord) *openAct {
	if r.Act == tape.ActInit {
		p.births.inited(who.ID)
	}
	key := keyOf(who, r)
	if before := p.open[key]; before != nil {
		p.abandon(before, r.Time, "another one begins")
	}
	act := &openAct{who: *who, start: *r}
	act.start.Time = startOf(r)
	p.open[key] = act
	p.latest[who.local] = act.trace()
	p.store.opened(act.trace())
	if len(p.open) > maxOpen {
		p.abandon(p.oldest()[0], p.last, "too many are open")
	}
	return act
}

// finish makes the spans of an act that ended with record r, and forgets it.
func (p *Projector) finish(act *openAct, r *tape.LifeRecord, problem *problem) {
	delete(p.open, keyOf(&act.who, r))
	p.endPhase(act, r.Time, problem)
	p.emitPhases(act)
	p.emitAct(act, r, problem)
	p.store.closed(act.trace())
}

// endPhase ends the phase that the act is in, if it is in one. Its span is made when the rank is known.
func (p *Projector) endPhase(act *openAct, now int64, problem *problem) {
	if act.phase.kind == tape.PhaseNone {
		return
	}
	act.phase.end, act.phase.problem = now, problem
	act.phases = append(act.phases, act.phase)
	if act.who.Rank >= 0 {
		p.emitPhases(act)
	}
}

// abandon ends an open act at a time, as unfinished because of why.
func (p *Projector) abandon(act *openAct, now int64, why string) {
	r := act.start
	r.Stage, r.Time = tape.StageEnd, max(now, act.start.Time)
	p.finish(act, &r, unfinished(act, why))
}

// oldest lists the open acts in the order in which they started.
func (p *Projector) oldest() []*openAct {
	return slices.SortedFunc(maps.Values(p.open), func(a, b *openAct) int {
		return cmp.Compare(a.start.Time, b.start.Time)
	})
}

// startOf is when an act began, by a record that may know it.
func startOf(r *tape.LifeRecord) int64 {
	if r.Start > 0 && r.Start < r.Time {
		return r.Start
	}
	return r.Time
}
