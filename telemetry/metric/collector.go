package metric

import (
	"cmp"
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Places are how many communicators and tallies a tape has room for.
type Places struct{ Communicators, Tallies int }

// Config has the sources of a Collector. Zero fields take the defaults named in their comments.
type Config struct {
	// Slots reads the in-flight table. It is called at every scrape, from any goroutine. Required.
	Slots func() []tape.Slot

	// Tallies reads the tape's tallies, and is called as Slots is; nil if there are none and Observe gets all
	// operations.
	Tallies func() []tape.Tally

	// Devices tells when devices reached the operations in flight, as model.Process.Devices does; nil if there are none
	// and operations are as old as their launch.
	Devices func() map[uint32]model.Device

	// Now reads the tape's clock (CLOCK_MONOTONIC, nanoseconds). Required.
	Now func() int64

	// Missed counts the tape's records that were overwritten before the follower read them. If Missed, Spans or Logs is
	// nil, its metrics are left out.
	Missed func() tape.Missed

	// Unexpected counts NCCL's unexpected calls to its profiler plug-in, as tape.Header does; nil leaves them out.
	Unexpected func() tape.Unexpected

	// Places is how many communicators and tallies the tape has room for; the zero value leaves out the metric of free
	// places.
	Places Places

	// Spans counts exported and lost spans, as trace.Projector.Stats does.
	Spans func() otlp.Stats

	// Span is the span of the step that Observe is given, invalid if it has none: trace.Projector.Emitted, if the
	// Projector observes each step first. It is the exemplar of the step's duration. nil means no exemplars.
	Span func() oteltrace.SpanContext

	// Logs counts the log records that were lost, as logsink.Sink.Lost does.
	Logs func() (local, export uint64)

	// Version is Carillon's; "" becomes "unknown".
	Version string
}

// families are the metrics that are computed at a scrape, with their labels.
var families = []struct {
	name, help string
	labels     []string
}{
	{semconv.MetricCommunicators, "Live communicators, by state.", []string{semconv.LabelState}},
	{semconv.MetricInFlight, "Operations launched and not completed, by communicator name.", byName},
	{
		semconv.MetricOldestAge, "Age of the oldest operation in flight, by communicator name; 0 if there is none.",
		byName,
	},
	{semconv.MetricLaunchedSeq, "Highest sequence number launched, over the communicators of one name.", byName},
	{semconv.MetricCompletedSeq, "Lowest sequence number completed, over the communicators of one name.", byName},
	{semconv.MetricCaptured, "Operations captured in CUDA graphs, whose launches are not seen.", byName},

	{
		semconv.MetricOperations,
		"Operations that ended, by kind and error type; the error type is empty for those that ended well.",
		[]string{semconv.LabelKind, semconv.LabelErrorType},
	},
	{semconv.MetricBytes, "Bytes of the buffers of operations that ended well, by kind.", []string{semconv.LabelKind}},
	{semconv.MetricDuration, "Time from launch to end of operations that ended well.", byOperation},
	{semconv.MetricBusBandwidth, "Bus bandwidth of operations that ended well, as nccl-tests defines it.", byOperation},

	{
		semconv.MetricStalled, "Operations and acts that are stalled now, by communicator name and kind.",
		[]string{semconv.LabelComm, semconv.LabelKind},
	},
	{
		semconv.MetricStallAge,
		"How long the oldest of those that are stalled has taken until now, and the rank that it waits for.",
		[]string{semconv.LabelComm, semconv.LabelKind, semconv.LabelWaitRank},
	},

	{
		semconv.MetricTapeMissed, "Tape records that were overwritten before they were read, by ring.",
		[]string{semconv.LabelRing},
	},
	{semconv.MetricTapeFree, "Places of the tape that are free, by part. Without one, a new communicator is in the " +
		"rings alone, or its operations are read one by one.", []string{semconv.LabelPart}},
	{
		semconv.MetricProfilerUnexpected,
		"Calls of NCCL to Carillon's profiler plug-in that are not as its interface has them, by reason. All are " +
			"tolerated. A foreign one is about another process's event, as with PXN.",
		[]string{semconv.LabelReason},
	},
	{
		semconv.MetricSpans,
		"Spans to be exported, by what became of them: exported, dropped because the queue was full, or failed in " +
			"the exporter.",
		[]string{semconv.LabelResult},
	},
	{
		semconv.MetricLogDropped,
		"Log records that were lost, because a queue was full or the receiver didn't take them, by where they were " +
			"to go: local or otlp.",
		[]string{semconv.LabelSink},
	},
	{
		semconv.MetricBuildInfo, "Always 1; the labels say what is running.",
		[]string{semconv.LabelVersion, semconv.LabelGoVersion},
	},
}

var (
	byName      = []string{semconv.LabelComm}
	byOperation = []string{semconv.LabelKind, semconv.LabelSize, semconv.LabelEngine, semconv.LabelComm}
)

// scrape sends the metrics of one scrape.
type scrape struct {
	descs map[string]*prometheus.Desc
	ch    chan<- prometheus.Metric
}

func (s scrape) gauge(name string, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], prometheus.GaugeValue, value, labels...)
}

func (s scrape) counter(name string, value uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], prometheus.CounterValue, float64(value), labels...)
}

// Collector is a prometheus.Collector for the communicators of one process. Collect may be called by any goroutine;
// Observe belongs to the model's owner.
type Collector struct {
	cfg        Config
	descs      map[string]*prometheus.Desc // of families, by name
	names      *names
	acts       *acts
	operations *operations
	stalled    *stalled
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector makes a Collector; register it with a prometheus.Registry.
func NewCollector(cfg Config) (*Collector, error) {
	switch {
	case cfg.Slots == nil:
		return nil, errors.New("metric: Config.Slots is nil; give it the Slots method of the tape's reader")
	case cfg.Now == nil:
		return nil, errors.New("metric: Config.Now is nil; give it tape.Now")
	}
	names := &names{known: make(map[string]string)}
	c := &Collector{
		cfg: cfg, descs: make(map[string]*prometheus.Desc, len(families)), names: names,
		acts: newActs(names, cfg.Span), operations: newOperations(names, cfg.Span), stalled: newStalled(names),
	}
	for _, f := range families {
		c.descs[f.name] = prometheus.NewDesc(f.name, f.help, f.labels, nil)
	}
	return c, nil
}

// Observe takes the next step of the model. It reads s only during the call, and allocates only for a new kind of
// operation or communicator name.
func (c *Collector) Observe(s *model.Step) {
	if s.IsLife {
		c.acts.count(s)
	} else {
		c.operations.observe(s.Info(), &s.Event.Op)
	}
}

// ObserveStall takes a report of an activity that is slow, stalled or cleared.
func (c *Collector) ObserveStall(r *stall.Report) { c.stalled.observe(r) }

// counted returns the metrics that Observe and ObserveStall count.
func (c *Collector) counted() []prometheus.Collector {
	return []prometheus.Collector{
		c.acts.durations, c.acts.errors, c.acts.postponed, c.acts.peers, c.stalled.total,
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
	for _, m := range c.counted() {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It reads the in-flight table once.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.counted() {
		m.Collect(ch)
	}
	to, now, slots := scrape{c.descs, ch}, c.cfg.Now(), c.cfg.Slots()
	var tallies []tape.Tally
	if c.cfg.Tallies != nil {
		tallies = c.cfg.Tallies()
	}
	var devices map[uint32]model.Device
	if c.cfg.Devices != nil {
		devices = c.cfg.Devices()
	}
	collectTable(to, slots, devices, c.names, now)
	c.operations.collect(to, tallies)
	c.stalled.collect(to, now)
	if c.cfg.Missed != nil {
		m := c.cfg.Missed()
		to.counter(semconv.MetricTapeMissed, m.Life, "life")
		to.counter(semconv.MetricTapeMissed, m.Op, "op")
	}
	if p := c.cfg.Places; p != (Places{}) {
		to.gauge(semconv.MetricTapeFree, float64(p.Communicators-len(slots)), "communicators")
		to.gauge(semconv.MetricTapeFree, float64(p.Tallies-len(tallies)), "tallies")
	}
	if c.cfg.Unexpected != nil {
		for reason, n := range c.cfg.Unexpected().All {
			to.counter(semconv.MetricProfilerUnexpected, n, reason)
		}
	}
	if c.cfg.Spans != nil {
		s := c.cfg.Spans()
		to.counter(semconv.MetricSpans, s.Exported, "exported")
		to.counter(semconv.MetricSpans, s.Dropped, "dropped")
		to.counter(semconv.MetricSpans, s.Failed, "failed")
	}
	if c.cfg.Logs != nil {
		local, export := c.cfg.Logs()
		to.counter(semconv.MetricLogDropped, local, "local")
		to.counter(semconv.MetricLogDropped, export, "otlp")
	}
	to.gauge(semconv.MetricBuildInfo, 1, cmp.Or(c.cfg.Version, semconv.LabelValueUnknown), runtime.Version())
}
