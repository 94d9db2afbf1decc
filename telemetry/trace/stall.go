package trace

import (
	"fmt"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Finding is RAS's verdict on a stall.
type Finding struct {
	Rank   int    // the rank at fault, in the communicator of the operation; -1 for none
	Reason string // a stable name of the cause; "" for none
	Text   string // replaces this rank's own sentence; "" keeps that
}

// ObserveStall takes a report of an operation or act that is slow, stalled, or cleared. A slow operation gets a
// "(started)" span, as an act does when it starts; a stalled one gets a span for each report, from its start until the
// report. Observe the events that were on the tape when the report was made before calling it.
func (p *Projector) ObserveStall(r *stall.Report) {
	if p.disabled || r.Comm.ID.IsZero() {
		return
	}
	p.last = max(p.last, r.Now)
	switch {
	case r.Stage == stall.Stalled:
		p.emitStall(r)
	case r.Act != tape.ActNone: // it has its started span
	case r.Stage == stall.Slow:
		p.store.countOpen(stallTrace(r), 1)
		p.emitSlow(r)
	case r.Stage == stall.Cleared:
		p.store.countOpen(stallTrace(r), -1)
	}
}

// stallTrace is the trace of the act or operation that a report is about.
func stallTrace(r *stall.Report) oteltrace.TraceID {
	if r.Act != tape.ActNone {
		return ActTraceID(r.Comm.ID, r.Act, r.ActSeq)
	}
	return OpTraceID(r.Comm.ID, r.Comm.Rank, r.Op, r.Seq)
}

// emitSlow makes the started span of a slow operation, below the span that is made when the operation ends.
func (p *Projector) emitSlow(r *stall.Report) {
	m := r.Comm
	attrs := attributesOf(m)
	attrs.op(&p.cfg, &r.Op, r.Seq, r.Algorithm)
	attrs.wait(r.Phase, r.Wait)
	p.emit(&span{
		id:    p.part(m, stallTrace(r), tagSpan).child(tagStarted, m.Rank, 0),
		name:  semconv.CallSpan(r.Op.Call) + semconv.StartedSuffix,
		start: r.Start, end: r.Start,
		attrs: append(attrs, semconv.OpSlow.Bool(true)),
		links: append(p.origins.links(m), stallCaller(r)...),
	})
}

// emitStall makes the span of one report of a stall, below this rank's span of the act or operation.
func (p *Projector) emitStall(r *stall.Report) {
	m := r.Comm
	own := p.part(m, stallTrace(r), tagSpan)
	n := uint64(r.Count)
	if m.Rank < 0 {
		n += p.salt + uint64(m.Generation)<<32
	}
	reason := p.stallReason(r)
	attrs := attributesOf(m)
	attrs.stall(&p.cfg, r)
	if p.cfg.Finding != nil {
		if f, ok := p.cfg.Finding(m.ID, r.Seq); ok {
			attrs.when(f.Rank >= 0, semconv.VerdictRank.Int(f.Rank))
			attrs.when(f.Reason != "", semconv.VerdictReason.String(f.Reason))
			if f.Text != "" {
				reason = f.Text
			}
		}
	}
	p.emit(&span{
		id:    own.child(tagStall, m.Rank, n),
		name:  semconv.SpanStall,
		start: r.Start, end: r.Now,
		attrs:   append(attrs, semconv.StallReason.String(reason)),
		links:   append(p.origins.links(m), stallCaller(r)...),
		problem: &problem{errorType: semconv.ErrorStalled, text: reason},
	})
}

// stallCaller links to the caller of the operation in flight.
func stallCaller(r *stall.Report) []oteltrace.Link {
	if r.InFlight == nil {
		return nil
	}
	return callerLinks(r.InFlight.Caller)
}

// stallReason says what this rank alone knows about the stall, in a sentence.
func (p *Projector) stallReason(r *stall.Report) string {
	text := r.Act.String()
	if r.Act == tape.ActNone {
		text = fmt.Sprintf("%s %d", r.Op.Call, r.Seq)
	}
	text += fmt.Sprintf(" has not ended after %v", words.Round(r.Age()))
	if r.Normal > 0 {
		text += fmt.Sprintf(" (it normally takes %v)", words.Round(r.Normal))
	}
	if r.Phase != tape.PhaseNone {
		text += ", in phase " + r.Phase.String()
	}
	switch waited := waited(r); {
	case r.Wait >= 0 && waited > 0:
		text += fmt.Sprintf(": waiting for %s for %v", p.cfg.Process.Name(r.Comm, int(r.Wait)), words.Round(waited))
	case r.Wait >= 0:
		text += ": waiting for " + p.cfg.Process.Name(r.Comm, int(r.Wait))
	}
	return text
}

// waited is how long the operation has waited for the same rank; 0 if unknown.
func waited(r *stall.Report) time.Duration {
	if r.Wait < 0 || r.WaitSince <= 0 || r.WaitSince > r.Now {
		return 0
	}
	return time.Duration(r.Now - r.WaitSince)
}

// stall adds the stalled act or operation, and the numbers of the report.
func (a *attributes) stall(c *Config, r *stall.Report) {
	if r.Act != tape.ActNone {
		*a = append(*a, semconv.ActSeq.Int64(int64(r.ActSeq)))
		a.when(r.Phase != tape.PhaseNone, semconv.Phase.String(r.Phase.String()))
		a.wait(tape.PhaseNone, r.Wait)
	} else {
		a.op(c, &r.Op, r.Seq, r.Algorithm)
		a.wait(r.Phase, r.Wait)
	}
	waited := waited(r)
	a.when(waited > 0, semconv.WaitDuration.Float64(waited.Seconds()))
	*a = append(*a, semconv.StallNumber.Int(r.Count), semconv.StallAge.Float64(r.Age().Seconds()),
		semconv.StallThreshold.Float64(r.Threshold.Seconds()))
	a.when(r.Normal > 0, semconv.StallNormal.Float64(r.Normal.Seconds()))
}
