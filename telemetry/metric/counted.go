package metric

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// counted is what the follower feeds. Its maps cache the metrics' children, so that counting an operation hashes one
// small key instead of labels; they belong to the follower's goroutine, the metrics themselves are safe for concurrent
// use.
type counted struct {
	names *names
	span  func() oteltrace.SpanContext // of the event at hand; nil: there are no spans

	operations *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	bandwidth  *prometheus.HistogramVec
	acts       *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	postponed  *prometheus.CounterVec
	peers      *prometheus.CounterVec

	ended map[endKey]prometheus.Counter
	moved map[moveKey]*moved
	last  [32]lastMove // by the communicator's generation
	fault map[faultKey]prometheus.Counter
}

// endKey is what operations that ended are counted by.
type endKey struct {
	call lifecycle.Call
	code lifecycle.Code
}

// moveKey is what operations that ended well are measured by.
type moveKey struct {
	call         lifecycle.Call
	size         string
	engine, name string
}

// lastMove is what a communicator's last operation was counted by: most do the same again.
type lastMove struct {
	call         lifecycle.Call
	bytes        uint64
	engine, name string
	moved        *moved
}

// faultKey is what the faults of other ranks are counted by.
type faultKey struct {
	name string
	peer int32
	code lifecycle.Code
}

// maxFaults bounds the series with a peer of their own: who looks for the rank at fault has found it by then.
const maxFaults = 64

// moved are the children of one moveKey.
type moved struct {
	well                prometheus.Counter // of operations
	bytes               prometheus.Counter
	duration, bandwidth prometheus.Observer
}

func newCounted(names *names, span func() oteltrace.SpanContext) *counted {
	perMove := []string{semconv.LabelKind, semconv.LabelSize, semconv.LabelEngine, semconv.LabelComm}
	c := &counted{
		names: names,
		span:  span,
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricOperations,
			Help: "Operations that ended, by kind and error type; the error type is empty for those that ended well.",
		}, []string{semconv.LabelKind, semconv.LabelErrorType}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricBytes,
			Help: "Bytes of the buffers of operations that ended well, by kind.",
		}, []string{semconv.LabelKind}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    semconv.MetricDuration,
			Help:    "Time from launch to end of operations that ended well.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 13), // 1 µs to 17 s
		}, perMove),
		bandwidth: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    semconv.MetricBusBandwidth,
			Help:    "Bus bandwidth of operations that ended well, as nccl-tests defines it.",
			Buckets: prometheus.ExponentialBuckets(1e6, 4, 11), // 1 MB/s to 1 TB/s
		}, perMove),
		acts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    semconv.MetricActDuration,
			Help:    "Time that acts in communicators' lives took, by act.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 4, 11), // 100 µs to 105 s
		}, []string{semconv.LabelAct}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricLifecycleErrors,
			Help: "Failed acts, failed communicators and refused calls, by call and error type.",
		}, []string{semconv.LabelCall, semconv.LabelErrorType}),
		postponed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricPostponed,
			Help: "Calls that a non-blocking communicator put off because one before them was unfinished, by call. No errors.",
		}, []string{semconv.LabelCall}),
		peers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricPeerErrors,
			Help: "Acts and communicators that failed by another rank's fault, by communicator name, that rank and error type.",
		}, []string{semconv.LabelComm, semconv.LabelPeer, semconv.LabelErrorType}),
		ended: make(map[endKey]prometheus.Counter),
		moved: make(map[moveKey]*moved),
		fault: make(map[faultKey]prometheus.Counter),
	}
	// A series that appears with its first error shows no increase; the mistakes that alerts look for start at 0.
	c.errors.WithLabelValues(lifecycle.CallDestroy.String(), lifecycle.CodeDestroyed.String())
	c.errors.WithLabelValues(semconv.ActName(tape.ActLeak), lifecycle.CodeLeaked.String())
	return c
}

func (c *counted) vectors() []prometheus.Collector {
	return []prometheus.Collector{c.operations, c.bytes, c.duration, c.bandwidth, c.acts, c.errors, c.postponed, c.peers}
}

func (c *counted) describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(ch)
	}
}

func (c *counted) collect(ch chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(ch)
	}
}

// operation counts an operation that ended. What an act does on the wire is no operation of the user's.
func (c *counted) operation(ev *tape.Event) {
	r := &ev.Op
	sig := &r.Signature
	if r.Stage != tape.StageEnd || !sig.Call.IsOperation() {
		return
	}
	if r.Code != lifecycle.CodeOK {
		c.endings(sig.Call, r.Code).Inc()
		return
	}
	l := &c.last[ev.Generation%uint32(len(c.last))]
	if l.call != sig.Call || l.bytes != sig.Bytes || l.engine != ev.Comm.Engine || l.name != ev.Comm.Name || l.moved == nil {
		*l = lastMove{sig.Call, sig.Bytes, ev.Comm.Engine, ev.Comm.Name, c.children(&ev.Comm, sig)}
	}
	m := l.moved
	m.well.Inc()
	m.bytes.Add(float64(sig.Bytes))
	if r.Start <= 0 || r.Start > r.Time {
		return // the tape doesn't know when it began
	}
	d := time.Duration(r.Time - r.Start)
	c.observe(m.duration, d)
	if bw := BusBandwidth(sig, ev.Comm.Rank, ev.Comm.Size, d); bw > 0 {
		m.bandwidth.Observe(bw)
	}
}

// endings counts the operations of one kind that ended in one way.
func (c *counted) endings(call lifecycle.Call, code lifecycle.Code) prometheus.Counter {
	key := endKey{call, code}
	ended := c.ended[key]
	if ended == nil {
		errorType := ""
		if code != lifecycle.CodeOK {
			errorType = code.String()
		}
		ended = c.operations.WithLabelValues(call.String(), errorType)
		c.ended[key] = ended
	}
	return ended
}

func (c *counted) children(comm *tape.CommInfo, sig *tape.Signature) *moved {
	key := moveKey{call: sig.Call, size: sizeLabel(sig.Bytes), engine: comm.Engine, name: c.names.label(comm.Name)}
	m := c.moved[key]
	if m == nil {
		kind, engine := sig.Call.String(), comm.Engine
		if engine == "" {
			engine = semconv.LabelValueUnknown
		}
		m = &moved{
			well:      c.endings(sig.Call, lifecycle.CodeOK),
			bytes:     c.bytes.WithLabelValues(kind),
			duration:  c.duration.WithLabelValues(kind, key.size, engine, key.name),
			bandwidth: c.bandwidth.WithLabelValues(kind, key.size, engine, key.name),
		}
		c.moved[key] = m
	}
	return m
}

// observe adds a duration to a histogram, with the trace as its exemplar if there is a span: most operations have none.
func (c *counted) observe(to prometheus.Observer, d time.Duration) {
	if c.span != nil {
		if sc := c.span(); sc.IsValid() {
			to.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{
				exemplarTrace: sc.TraceID().String(), exemplarSpan: sc.SpanID().String(),
			})
			return
		}
	}
	to.Observe(d.Seconds())
}

// The labels of exemplars by which Grafana and OpenTelemetry's bridge find a trace.
const (
	exemplarTrace = "trace_id"
	exemplarSpan  = "span_id"
)

// peer counts a fault of another rank.
func (c *counted) peer(comm *tape.CommInfo, r *tape.LifeRecord) {
	key := faultKey{c.names.label(comm.Name), r.Peer, r.Code}
	fault := c.fault[key]
	if fault == nil {
		peer := semconv.LabelValueOther
		if len(c.fault) < maxFaults {
			peer = strconv.Itoa(int(r.Peer))
		}
		fault = c.peers.WithLabelValues(key.name, peer, r.Code.String())
		if peer != semconv.LabelValueOther {
			c.fault[key] = fault
		}
	}
	fault.Inc()
}

// life counts an act that ended, or a call that was refused.
func (c *counted) life(comm *tape.CommInfo, r *tape.LifeRecord) {
	if r.Stage != tape.StageEnd && r.Stage != tape.StageMisuse {
		return
	}
	if r.Stage == tape.StageEnd && r.Act != tape.ActNone && r.Start > 0 && r.Start <= r.Time {
		c.observe(c.acts.WithLabelValues(semconv.ActName(r.Act)), time.Duration(r.Time-r.Start))
	}
	if r.Stage == tape.StageEnd && r.Peer >= 0 && r.Code != lifecycle.CodeOK {
		c.peer(comm, r)
	}
	switch {
	case r.Code == lifecycle.CodeOK:
	case r.Code == lifecycle.CodeInProgress:
		c.postponed.WithLabelValues(r.Call.String()).Inc()
	case r.Act == tape.ActLeak: // whichever call made the communicator, the mistake is the leak
		c.errors.WithLabelValues(semconv.ActName(tape.ActLeak), r.Code.String()).Inc()
	default:
		c.errors.WithLabelValues(r.Call.String(), r.Code.String()).Inc()
	}
}
