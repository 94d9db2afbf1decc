package trace

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

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
	births *births
	last   int64 // time of the last event
}

// actKey is one rank's part in one act.
type actKey struct {
	comm lifecycle.CommID
	rank int
	act  tape.Act
	seq  uint64
}

// openAct is an act that has started and not ended.
type openAct struct {
	comm       tape.CommInfo // as its last record knew it
	start      tape.LifeRecord
	phase      tape.Phase // PhaseNone before the first one
	phaseSince int64
}

// maxOpen bounds the acts that are open at a time: far more than communicators have, unless the ends of many were missed.
const maxOpen = 16 << 10

// New makes a Projector for the tape of the process that cfg describes, with the exporter that the OTEL_* variables name. ctx bounds
// the making of the exporter. The error names the variable and what it takes.
func New(ctx context.Context, cfg Config) (*Projector, error) {
	if cfg.Wall == nil {
		return nil, errors.New("trace: Config.Wall is nil; give it the tape's Header.Wall")
	}
	cfg.setDefaults()
	p := &Projector{cfg: cfg, open: make(map[actKey]*openAct), births: newBirths()}
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
	if !ev.IsLife {
		p.last = max(p.last, ev.Op.Time)
		p.observeOp(&ev.Comm, &ev.Op)
		return
	}
	p.last = max(p.last, ev.Life.Time)
	switch ev.Life.Stage {
	case tape.StageStart:
		p.start(&ev.Comm, &ev.Life)
	case tape.StagePhase:
		p.phase(&ev.Comm, &ev.Life)
	case tape.StageEnd:
		if ev.Life.Act == tape.ActNone {
			p.emitFailure(&ev.Comm, &ev.Life)
		} else {
			p.end(&ev.Comm, &ev.Life)
		}
	case tape.StageMisuse:
		p.emitMisuse(&ev.Comm, &ev.Life)
	case tape.StageNone, tape.StageWait: // nothing that a span shows
	}
}

// Close ends the acts that are still open, as unfinished, and exports what is queued until ctx ends. The error is ctx's, if spans were
// left behind.
func (p *Projector) Close(ctx context.Context) error {
	if p.pipe == nil {
		return nil
	}
	now := p.last
	if p.cfg.Now != nil {
		now = p.cfg.Now()
	}
	p.abandon(p.oldest(), now)
	return p.pipe.provider.Shutdown(ctx)
}

func keyOf(comm *tape.CommInfo, r *tape.LifeRecord) actKey {
	return actKey{comm: comm.ID, rank: comm.Rank, act: r.Act, seq: r.Seq}
}

// identity is the rank's span in the act's trace.
func (k actKey) identity() identity {
	return rankSpan(ActTraceID(k.comm, k.act, k.seq), k.rank)
}

func (p *Projector) start(comm *tape.CommInfo, r *tape.LifeRecord) {
	key := keyOf(comm, r)
	if r.Act == tape.ActInit {
		p.births.inited(comm.ID)
	}
	p.keep(key, &openAct{comm: *comm, start: *r})
	p.emitStarted(key, comm, r)
}

func (p *Projector) phase(comm *tape.CommInfo, r *tape.LifeRecord) {
	key := keyOf(comm, r)
	act := p.open[key]
	if act == nil { // its start was overwritten before it was read
		act = &openAct{comm: *comm, start: *r}
		act.start.Time = startOf(r)
		p.keep(key, act)
	}
	act.comm = *comm
	p.endPhase(key, act, r.Time, nil)
	act.phase, act.phaseSince = r.Phase, r.Time
}

func (p *Projector) end(comm *tape.CommInfo, r *tape.LifeRecord) {
	key := keyOf(comm, r)
	act := p.open[key]
	delete(p.open, key)
	if act == nil {
		act = &openAct{comm: *comm, start: *r}
		act.start.Time = startOf(r)
	}
	if r.Act == tape.ActInit {
		p.births.inited(comm.ID)
	}
	act.comm = *comm
	problem := problemOf(r.Code, r.Text)
	p.endPhase(key, act, r.Time, problem)
	p.emitAct(key, act, r, problem)

	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow:
		if !r.Child.IsZero() {
			p.births.made(r.Child, key.identity().trace)
		}
	case tape.ActNone, tape.ActInit, tape.ActRevoke, tape.ActFinalize, tape.ActDestroy, tape.ActAbort, tape.ActGroup, tape.ActLeak:
	}
}

// keep remembers an act until it ends. What a tape doesn't end for want of records is given up when there is too much of it.
func (p *Projector) keep(key actKey, act *openAct) {
	p.open[key] = act
	if len(p.open) > maxOpen {
		p.abandon(p.oldest()[:1], p.last)
	}
}

// oldest lists the open acts in the order in which they started.
func (p *Projector) oldest() []actKey {
	return slices.SortedFunc(maps.Keys(p.open), func(a, b actKey) int {
		return cmp.Compare(p.open[a].start.Time, p.open[b].start.Time)
	})
}

// abandon ends open acts at a time, as unfinished.
func (p *Projector) abandon(keys []actKey, now int64) {
	for _, key := range keys {
		act := p.open[key]
		delete(p.open, key)
		r := act.start
		r.Stage, r.Time = tape.StageEnd, max(now, act.start.Time)
		problem := unfinished(act)
		p.endPhase(key, act, r.Time, problem)
		p.emitAct(key, act, &r, problem)
	}
}

// startOf is when an act began, by a record that may know it.
func startOf(r *tape.LifeRecord) int64 {
	if r.Start > 0 && r.Start < r.Time {
		return r.Start
	}
	return r.Time
}
