package trace

import (
	"context"
	"strconv"

	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Unfinished makes the span of the operation that the slot shows in flight, as unfinished now, or at the time of the last event without
// Config.Now: for the tape of a process that is gone, before Close. Its ids are those that the operation's span would have had. A slot with nothing in flight makes none.
func (p *Projector) Unfinished(s *tape.Slot) {
	p.ending = true
	if !p.sent(s.OpStart) {
		p.unfinishedOp(s, p.now(), "the tape ends")
	}
}

// sent says whether what began, or ended, at that time was sent before.
func (p *Projector) sent(at int64) bool { return p.cfg.Sent != 0 && at <= p.cfg.Sent }

// Complete says whether every span that was made before the last Flush without an error has been exported: there is an exporter, and none was
// dropped or refused.
func (p *Projector) Complete() bool {
	if p.pipe == nil || p.pipe.gate == nil {
		return false
	}
	stats := p.pipe.stats()
	return stats.Dropped == 0 && stats.Failed == 0
}

// unfinishedOp makes the span of the operation that s shows in flight, as far as it had come at now. why is what comes before its end.
func (p *Projector) unfinishedOp(s *tape.Slot, now int64, why string) {
	if p.pipe == nil || s.Launched == s.Completed || !s.Op.Call.IsOperation() || s.ID.IsZero() {
		return
	}
	text := "unfinished: " + why + " before the " + s.Op.Call.String() + " does"
	if s.Phase != tape.PhaseNone {
		text += ", in phase " + semconv.PhaseName(s.Phase)
	}
	if s.Wait >= 0 {
		text += ", waiting for rank " + strconv.Itoa(int(s.Wait))
	}
	who := subject{s.CommInfo, s.Generation}
	r := tape.OpRecord{
		Time: max(now, s.OpStart, s.WaitSince), Stage: tape.StageEnd, Seq: s.Seq, Signature: s.Op, Algorithm: s.Algorithm,
		Phase: s.Phase, Start: s.OpStart,
	}
	p.emit(p.ended(&who, &r, s.Wait, &problem{errorType: semconv.ErrorUnfinished, text: text}, p.recall(&who, &r)).span())
}

// Flush exports what is queued, until ctx ends. It is for whoever feeds events faster than they can be exported and wants to lose none. The
// error is ctx's.
func (p *Projector) Flush(ctx context.Context) error {
	if p.pipe == nil {
		return nil
	}
	return p.pipe.provider.ForceFlush(ctx)
}
