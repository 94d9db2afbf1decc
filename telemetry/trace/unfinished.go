package trace

import (
	"context"
	"strconv"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Unfinished makes the spans of the operations that are in flight, as unfinished now, or at the time of the last event
// without Config.Now: for the tape of a process that is gone, before Close, when the model was shown the in-flight
// table. Their ids are those that the operations' spans would have had.
func (p *Projector) Unfinished() {
	p.ending = true
	now := p.now()
	for c := range p.cfg.Process.Comms() {
		p.unfinishedOp(c, now, "the tape ends")
	}
}

// Complete says whether every span that was made before the last Flush without an error has been exported: there is an
// exporter, and none was dropped or refused.
func (p *Projector) Complete() bool {
	if p.pipe == nil || p.pipe.gate == nil {
		return false
	}
	stats := p.pipe.stats()
	return stats.Dropped == 0 && stats.Failed == 0
}

// unfinishedOp makes the span of the communicator's operation in flight, as far as it had come at now. why is what
// comes before its end.
func (p *Projector) unfinishedOp(c *model.Comm, now int64, why string) {
	in := c.InFlight()
	if p.pipe == nil || in == nil || !in.Signature.Call.IsOperation() || p.said(in.Start) {
		return
	}
	text := "unfinished: " + why + " before the " + in.Signature.Call.String() + " does"
	if in.Phase != tape.PhaseNone {
		text += ", in phase " + in.Phase.String()
	}
	if in.Wait >= 0 {
		text += ", waiting for rank " + strconv.Itoa(int(in.Wait))
	}
	o := *in
	o.End = max(now, o.Start, o.WaitSince)
	slow := o.Slow || o.Stalls > 0 || o.End-o.Start >= int64(p.cfg.Slow)
	p.emit(p.ended(memberOf(c), &o, slow, &problem{errorType: semconv.ErrorUnfinished, text: text}).span())
}

// Flush exports what is queued, until ctx ends. It is for callers that feed events faster than they can be exported and
// wants to lose none. The error is ctx's.
func (p *Projector) Flush(ctx context.Context) error {
	if p.pipe == nil {
		return nil
	}
	return p.pipe.provider.ForceFlush(ctx)
}
