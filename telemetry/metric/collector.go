package metric

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// DefaultMaxNames is how many communicator names get series of their own.
const DefaultMaxNames = 16

// Places are how many communicators and tallies a tape has room for.
type Places struct{ Communicators, Tallies int }

// Config says where a Collector reads. Zero fields take the defaults that they name.
type Config struct {
	// Slots reads the in-flight table. It is called at every scrape, from any goroutine, and must be safe for that.
	// Required.
	Slots func() []tape.Slot

	// Tallies reads what the tape's writer has counted, with the same demands; nil if what Observe is given is all
	// there is.
	Tallies func() []tape.Tally

	// Now reads the tape's clock (CLOCK_MONOTONIC, nanoseconds). Required.
	Now func() int64

	// Missed counts the tape's records that were overwritten before the follower read them; nil leaves the metric out.
	Missed func() tape.Missed

	// Places is how many communicators and tallies the tape has room for; 0 leaves the metric of those that are free
	// out.
	Places Places

	// Spans counts what became of spans; nil leaves the metric out. It is trace.Projector.Stats in other words, so that
	// this package need not know that one.
	Spans func() SpanStats

	// Span is the span that was made of the step that Observe is given, invalid if none was: trace.Projector.Emitted,
	// when the Projector observes each step first. Durations get it as their exemplar. nil is no exemplars.
	Span func() oteltrace.SpanContext

	// Logs counts the log records that were lost; nil leaves the metric out. It is logsink.Sink.Stats in other words.
	Logs func() LogStats

	// Version is Carillon's; "" becomes "unknown".
	Version string

	// MaxNames bounds the communicator names with series of their own; 0 means DefaultMaxNames.
	MaxNames int
}

// SpanStats counts what became of the spans that were to be exported.
type SpanStats struct{ Exported, Dropped, Failed uint64 }

// LogStats counts the log records that were lost: on their way to the terminal, file or handler, and to the collector
// of logs.
type LogStats struct{ Local, Export uint64 }

// Collector is a prometheus.Collector for the communicators of one process. Collect may be called by any goroutine;
// Observe belongs to the model's owner.
type Collector struct {
	cfg        Config
	names      *names
	table      tableDescs
	acts       *acts
	operations *operations
	stalled    *stalled

	missed, free, spans, logs *prometheus.Desc
	build                     prometheus.Metric
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector makes a Collector; register it with a prometheus.Registry.
func NewCollector(cfg Config) (*Collector, error) {
	switch {
	case cfg.Slots == nil:
		return nil, errors.New("metric: Config.Slots is nil; give it the Slots method of the tape's reader")
	case cfg.Now == nil:
		return nil, errors.New("metric: Config.Now is nil; give it tape.Now")
	case cfg.MaxNames < 0:
		return nil, fmt.Errorf("metric: Config.MaxNames is %d; it is a number of names, 0 for %d", cfg.MaxNames,
			DefaultMaxNames)
	case cfg.MaxNames == 0:
		cfg.MaxNames = DefaultMaxNames
	}
	if cfg.Version == "" {
		cfg.Version = semconv.LabelValueUnknown
	}
	names := newNames(cfg.MaxNames)
	return &Collector{
		cfg:        cfg,
		names:      names,
		table:      newTableDescs(),
		acts:       newActs(names, cfg.Span),
		operations: newOperations(names, cfg.Span),
		stalled:    newStalled(names, cfg.Now),
		missed: prometheus.NewDesc(semconv.MetricTapeMissed,
			"Tape records that were overwritten before they were read, by ring.", []string{semconv.LabelRing}, nil),
		free: prometheus.NewDesc(semconv.MetricTapeFree,
			"Places of the tape that are free, by part. Without one, a new communicator is in the rings alone, or its "+
				"operations are read one by one.", []string{semconv.LabelPart}, nil),
		spans: prometheus.NewDesc(semconv.MetricSpans,
			"Spans to be exported, by what became of them: exported, dropped because the queue was "+
				"full, or failed in the exporter.", []string{semconv.LabelResult}, nil),
		logs: prometheus.NewDesc(semconv.MetricLogDropped,
			"Log records that were lost, because a queue was full or the receiver didn't take them, by where "+
				"they were to go: local or otlp.", []string{semconv.LabelSink}, nil),
		build: prometheus.MustNewConstMetric(prometheus.NewDesc(semconv.MetricBuildInfo,
			"Always 1; the labels say what is running.", []string{semconv.LabelVersion, semconv.LabelGoVersion}, nil),
			prometheus.GaugeValue, 1, cfg.Version, runtime.Version()),
	}, nil
}

// Observe takes the next step of the model. It reads s only during the call, and allocates only for a kind of operation
// or communicator name that is new.
func (c *Collector) Observe(s *model.Step) {
	if s.IsLife {
		c.acts.count(s)
	} else {
		c.operations.observe(s.Info(), s.Generation, &s.Event.Op)
	}
}

// ObserveStall takes what is slow or stalled, and what is not any more.
func (c *Collector) ObserveStall(r *stall.Report) { c.stalled.observe(r) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.table.describe(ch)
	c.acts.describe(ch)
	c.operations.describe(ch)
	c.stalled.describe(ch)
	if c.cfg.Missed != nil {
		ch <- c.missed
	}
	if c.cfg.Places.Communicators > 0 {
		ch <- c.free
	}
	if c.cfg.Spans != nil {
		ch <- c.spans
	}
	if c.cfg.Logs != nil {
		ch <- c.logs
	}
	ch <- c.build.Desc()
}

// Collect implements prometheus.Collector. It reads the in-flight table once.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	slots := c.cfg.Slots()
	c.table.collect(ch, summarize(slots, c.names, c.cfg.Now()))
	c.acts.collect(ch)
	var tallies []tape.Tally
	if c.cfg.Tallies != nil {
		tallies = c.cfg.Tallies()
	}
	c.operations.collect(ch, tallies)
	c.stalled.collect(ch)
	if c.cfg.Missed != nil {
		m := c.cfg.Missed()
		ch <- prometheus.MustNewConstMetric(c.missed, prometheus.CounterValue, float64(m.Life), "life")
		ch <- prometheus.MustNewConstMetric(c.missed, prometheus.CounterValue, float64(m.Op), "op")
	}
	if p := c.cfg.Places; p.Communicators > 0 {
		ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(p.Communicators-len(slots)),
			"communicators")
		ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(p.Tallies-len(tallies)), "tallies")
	}
	if c.cfg.Spans != nil {
		s := c.cfg.Spans()
		ch <- prometheus.MustNewConstMetric(c.spans, prometheus.CounterValue, float64(s.Exported), "exported")
		ch <- prometheus.MustNewConstMetric(c.spans, prometheus.CounterValue, float64(s.Dropped), "dropped")
		ch <- prometheus.MustNewConstMetric(c.spans, prometheus.CounterValue, float64(s.Failed), "failed")
	}
	if c.cfg.Logs != nil {
		l := c.cfg.Logs()
		ch <- prometheus.MustNewConstMetric(c.logs, prometheus.CounterValue, float64(l.Local), "local")
		ch <- prometheus.MustNewConstMetric(c.logs, prometheus.CounterValue, float64(l.Export), "otlp")
	}
	ch <- c.build
}
