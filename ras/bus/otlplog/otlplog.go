package otlplog

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// New makes a sink, "otlp", that emits a log record for each event. A Logger that blocks holds up only the sink's
// queue. It must obey its context, as Run waits for it. Pushed counts what the Logger took, whether the SDK exported it
// or not.
func New(b *bus.Bus, filter bus.Filter, to log.Logger) bus.Sink {
	return bus.NewSink(b, "otlp", filter, func(ctx context.Context, ev *bus.Event) error {
		to.Emit(ctx, Record(ev, time.Now()))
		return nil
	})
}

// Record is the event as a log record that is observed now.
func Record(ev *bus.Event, now time.Time) log.Record {
	var r log.Record
	r.SetEventName(ev.Type)
	r.SetTimestamp(ev.Time)
	r.SetObservedTimestamp(now)
	r.SetSeverityText(ev.Severity.String())
	switch ev.Severity {
	case bus.Critical:
		r.SetSeverity(log.SeverityError)
	case bus.Warning:
		r.SetSeverity(log.SeverityWarn)
	default:
		r.SetSeverity(log.SeverityInfo)
	}
	r.SetBody(attribute.StringValue(ev.Text))
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{
		{semconv.EventID, ev.ID},
		{semconv.EventSource, ev.Source},
		{semconv.EventType, ev.Type},
		{semconv.EventStage, ev.Stage.String()},
		{semconv.EventSubject, ev.Subject},
		{semconv.EventKey, ev.Key},
		{semconv.EventCause, ev.Cause},
		{semconv.Job, ev.Job},
		{semconv.EventReason, ev.Reason},
		{semconv.EventRank, ev.Rank},
		{semconv.EventData, string(ev.JSON())},
	} {
		if a.value != "" {
			r.AddAttributes(a.key.String(a.value))
		}
	}
	if ev.Repeats > 0 {
		r.AddAttributes(semconv.EventRepeats.Int64(int64(ev.Repeats)))
	}
	if ev.Suppressed > 0 {
		r.AddAttributes(semconv.EventSuppressed.Int64(int64(ev.Suppressed)))
	}
	return r
}
