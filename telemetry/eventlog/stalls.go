package eventlog

import (
	"context"
	"log/slog"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// ObserveStall takes a report of something that takes, or took, too long. It reads r only during the call. What stalls
// is logged when it begins to and when it has ended, at one level; the reports in between repeat the first.
func (l *Log) ObserveStall(r *stall.Report) {
	ctx := context.Background()
	level := slog.LevelInfo
	if r.Count > 0 {
		level = slog.LevelWarn
	}
	if r.Stage == stall.Stalled && r.Count > 1 || !l.cfg.Handler.Enabled(ctx, level) {
		return
	}
	if l.cfg.SpanOfStall != nil {
		ctx = oteltrace.ContextWithSpanContext(ctx, l.cfg.SpanOfStall(r))
	}
	var buf [24]slog.Attr
	attrs := append(commAttrs(buf[:0], &r.Comm.CommInfo), slog.String(semconv.LogCall, r.Kind()))
	if r.Act == tape.ActNone {
		attrs = signature(append(attrs, slog.Uint64(semconv.LogSeq, r.Seq)), &r.Op)
	} else {
		attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.ActSeq))
	}
	attrs = phase(attrs, r.Phase)
	attrs = some(attrs, r.Wait >= 0, slog.Int(semconv.LogWait, int(r.Wait)))
	attrs = append(attrs, slog.Duration(semconv.LogAge, words.Round(r.Age())))
	attrs = some(attrs, r.Normal > 0, slog.Duration(semconv.LogNormal, words.Round(r.Normal)))
	attrs = append(attrs, slog.String(semconv.LogSubsystem, semconv.SubsystemRAS))
	message := semconv.SpanStall
	if r.Stage != stall.Stalled { // which is what the name says
		message += " (" + r.Stage.String() + ")"
	}
	l.emit(ctx, level, r.Now, message, attrs...)
}
