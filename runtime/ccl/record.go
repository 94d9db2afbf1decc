package ccl

import (
	"context"
	"reflect"
	"unsafe"

	"go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// act is a lifecycle act of a communicator in progress: its start is on the tape, its phases and its end follow.
type act struct {
	c   *core
	rec tape.LifeRecord
	// members translates ranks of the communicator that the act makes into ranks of c, if errors name the former.
	members []int
	// foreignRanks says that errors name ranks of another communicator, whose ranks in c are unknown.
	foreignRanks bool
}

// act returns the act of a call, not started yet. seq is its number among acts of its kind on this communicator.
func (c *core) act(ctx context.Context, call lifecycle.Call, seq uint64, site lifecycle.Site) *act {
	return &act{c: c, rec: tape.LifeRecord{
		Act: actOf[call], Call: call, Stage: tape.StageStart, Seq: seq, Start: tape.Now(), State: c.life.State(),
		Peer: -1, Site: site, Caller: callerSpan(ctx),
	}}
}

// initAct returns the act by which call makes this communicator. (For its parent, the same call is a split, shrink or
// grow.)
func (c *core) initAct(ctx context.Context, call lifecycle.Call, site lifecycle.Site) *act {
	a := c.act(ctx, call, 0, site)
	a.rec.Act = tape.ActInit
	return a
}

// start records the act's start, and the communicator's state during it.
func (a *act) start() *act {
	a.c.tape.State(a.c.life.State())
	a.c.tape.Life(a.rec)
	return a
}

// stopped returns the error of the operations that the act stops because of cause, which may be nil.
func (a *act) stopped(code lifecycle.Code, detail string, cause error) *UsageError {
	if cause != nil {
		a.rec.Text = cause.Error() // for the record of the end
		detail += ": " + a.rec.Text
	} else if refusal := a.c.refusal.Load(); refusal != nil {
		detail += "; its last call was refused: " + *refusal
	}
	err := a.c.usage(a.rec.Call, code, "%s", detail)
	err.First, err.Cause = a.rec.Site, cause
	return err
}

func (a *act) phase(p tape.Phase) {
	rec := a.rec
	rec.Stage, rec.Phase = tape.StagePhase, p
	a.c.tape.Phase(p)
	a.c.tape.Life(rec)
}

// end records the act's end, and the communicator's state after it.
func (a *act) end(err error) {
	peer, text := culprit(err), a.rec.Text
	if peer >= 0 && int(peer) < len(a.members) {
		peer = int32(a.members[peer])
	}
	if a.foreignRanks {
		peer = -1
	}
	if err != nil {
		text = err.Error()
	}
	a.conclude(lifecycle.CodeOf(err), peer, text)
}

// conclude is end with the parts of the error given separately, for an error that names ranks of another communicator.
func (a *act) conclude(code lifecycle.Code, peer int32, text string) {
	rec := a.rec
	rec.Stage, rec.Phase = tape.StageEnd, tape.PhaseNone
	rec.State, rec.Code, rec.Peer, rec.Text = a.c.life.State(), code, peer, text
	rec.Shared = a.c.shared.Load()
	a.c.tape.State(rec.State)
	a.c.tape.Life(rec)
}

// actOf maps a call to its act; an operation has tape.ActNone.
var actOf = map[lifecycle.Call]tape.Act{
	lifecycle.CallInitRank: tape.ActInit, lifecycle.CallInitRankConfig: tape.ActInit,
	lifecycle.CallInitRankScalable: tape.ActInit, lifecycle.CallInitAll: tape.ActInit,
	lifecycle.CallSplit: tape.ActSplit, lifecycle.CallShrink: tape.ActShrink, lifecycle.CallGrow: tape.ActGrow,
	lifecycle.CallRevoke: tape.ActRevoke, lifecycle.CallFinalize: tape.ActFinalize,
	lifecycle.CallDestroy: tape.ActDestroy, lifecycle.CallAbort: tape.ActAbort,
	lifecycle.CallGroupStart: tape.ActGroup, lifecycle.CallGroupEnd: tape.ActGroup,
}

// callerSpan returns the span in ctx, for a link to it.
func callerSpan(ctx context.Context) tape.SpanContext {
	return spanContext(trace.SpanContextFromContext(ctx))
}

func spanContext(sc trace.SpanContext) tape.SpanContext {
	if !sc.IsValid() {
		return tape.SpanContext{}
	}
	return tape.SpanContext{TraceID: sc.TraceID(), SpanID: sc.SpanID(), Flags: byte(sc.TraceFlags())}
}

// started records the start of an operation, with the span in ctx if there is one. The caller has the turn.
func (c *Comm) started(
	ctx context.Context, at int64, number uint64, sig *tape.Signature, algorithm uint8,
) (launched uint64) {
	if c.tape == nil {
		return 0
	}
	return c.tape.StartFrom(at, c.caller.of(ctx), number, sig, algorithm)
}

// lastCaller caches the span in the context of the last operation: most operations have the same context as the one
// before.
type lastCaller struct {
	// ctx is nil or of a type of package context; such contexts don't change.
	ctx   context.Context
	span  *tape.SpanContext // nil if there is none, otherwise &found
	found tape.SpanContext
}

// of returns the span in ctx, nil if there is none. It is valid until the next call.
func (l *lastCaller) of(ctx context.Context) *tape.SpanContext {
	if sameContext(ctx, l.ctx) {
		return l.span
	}
	return l.look(ctx)
}

// sameContext reports whether two contexts are identical, by type and address, as not all can be compared with ==.
func sameContext(a, b context.Context) bool {
	type words [2]uintptr
	return *(*words)(unsafe.Pointer(&a)) == *(*words)(unsafe.Pointer(&b))
}

func (l *lastCaller) look(ctx context.Context) *tape.SpanContext {
	l.ctx, l.span = nil, nil
	t := reflect.TypeOf(ctx)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == "context" {
		l.ctx = ctx
	}
	if span := trace.SpanFromContext(ctx); span != noSpan { // checked first, because a span's context is large
		if l.found = spanContext(span.SpanContext()); l.found != (tape.SpanContext{}) {
			l.span = &l.found
		}
	}
	return l.span
}

// noSpan is the span of a context without one.
var noSpan = trace.SpanFromContext(context.Background())
