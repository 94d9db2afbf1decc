package otlplog

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Config describes a Sink.
type Config struct {
	// Bus is where the events come from. Required.
	Bus *bus.Bus
	// Logger takes the records. Required. A Logger that blocks holds the queue up, and nothing else.
	Logger log.Logger
	Filter bus.Filter
	// Queue is how many events wait; 0 means the Bus's.
	Queue int
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("otlplog.Config.Bus is nil: allowed is a Bus"))
	}
	if c.Logger == nil {
		errs = append(errs, errors.New("otlplog.Config.Logger is nil: allowed is a Logger"))
	}
	return errors.Join(errs...)
}

// Sink emits a log record for each event. It is a bus.Sink.
type Sink struct {
	cfg    Config
	sub    *bus.Subscription
	counts bus.Counts
}

// New makes a Sink, which queues from now on and emits while Run runs.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	sub := cfg.Bus.Attach(bus.SubscriptionConfig{Filter: cfg.Filter, Queue: cfg.Queue, After: bus.FromStart})
	return &Sink{cfg: cfg, sub: sub}, nil
}

// Name implements bus.Sink.
func (*Sink) Name() string { return "otlp" }

// Stats implements bus.Sink. Pushed is what the Logger took; whether it was exported, the SDK knows.
func (s *Sink) Stats() bus.Stats { return s.counts.Stats(s.sub.Dropped()) }

// Run implements bus.Sink. It returns when the Logger has: a Logger is to obey its context.
func (s *Sink) Run(ctx context.Context) error {
	defer s.sub.Close()
	return bus.Each(ctx, s.sub, func(ev *bus.Event) error {
		s.cfg.Logger.Emit(ctx, Record(ev, time.Now()))
		if !ev.Notice() {
			s.counts.Pushed(1)
		}
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
	r.AddAttributes(
		attribute.String(string(semconv.EventID), ev.ID),
		attribute.String(string(semconv.EventSource), ev.Source),
		attribute.String(string(semconv.EventType), ev.Type),
		attribute.String(string(semconv.EventStage), ev.Stage.String()),
	)
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{
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
