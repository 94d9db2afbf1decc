package metric

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// acts counts acts and errors. It is for the model's goroutine; its metrics are safe for concurrent use.
type acts struct {
	names *names
	span  func() oteltrace.SpanContext // of the current step; nil: there are no spans

	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec
	postponed *prometheus.CounterVec
	peers     *prometheus.CounterVec

	faults map[faultKey]bool // faults that have a series for their peer
}

// faultKey holds the labels of another rank's fault.
type faultKey struct {
	name string
	peer int32
	code lifecycle.Code
}

// maxFaults bounds the series with a peer; later faults share semconv.LabelValueOther.
const maxFaults = 64

func newActs(names *names, span func() oteltrace.SpanContext) *acts {
	a := &acts{
		names: names,
		span:  span,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
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
			Help: "Calls that a non-blocking communicator put off because one before them was unfinished, by " +
				"call. No errors.",
		}, []string{semconv.LabelCall}),
		peers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricPeerErrors,
			Help: "Acts and communicators that failed by another rank's fault, by communicator name, that rank " +
				"and error type.",
		}, []string{semconv.LabelComm, semconv.LabelPeer, semconv.LabelErrorType}),
		faults: make(map[faultKey]bool),
	}
	// A series that appears with its first error shows no increase, so the series that alerts use start at 0.
	a.errors.WithLabelValues(lifecycle.CallDestroy.String(), lifecycle.CodeDestroyed.String())
	a.errors.WithLabelValues(tape.ActLeak.String(), lifecycle.CodeLeaked.String())
	return a
}

// observe adds a duration to a histogram, with the trace as its exemplar if there is a span.
func (a *acts) observe(to prometheus.Observer, d time.Duration) {
	if a.span != nil {
		if sc := a.span(); sc.IsValid() {
			to.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), exemplarOf(sc))
			return
		}
	}
	to.Observe(d.Seconds())
}

// exemplarOf returns the labels with the ids of a span.
func exemplarOf(sc oteltrace.SpanContext) prometheus.Labels {
	return prometheus.Labels{exemplarTrace: sc.TraceID().String(), exemplarSpan: sc.SpanID().String()}
}

// The labels of exemplars by which Grafana and OpenTelemetry's bridge find a trace.
const (
	exemplarTrace = "trace_id"
	exemplarSpan  = "span_id"
)

// peer counts a fault of another rank.
func (a *acts) peer(comm *tape.CommInfo, r *tape.LifeRecord) {
	key, peer := faultKey{a.names.label(comm.Name), r.Peer, r.Code}, semconv.LabelValueOther
	if a.faults[key] || len(a.faults) < maxFaults {
		a.faults[key], peer = true, strconv.Itoa(int(r.Peer))
	}
	a.peers.WithLabelValues(key.name, peer, r.Code.String()).Inc()
}

// count counts an act that ended, a failure, or a call that was refused.
func (a *acts) count(s *model.Step) {
	r := &s.Life
	if r.Stage != tape.StageEnd && r.Stage != tape.StageMisuse {
		return
	}
	if s.Act != nil {
		a.observe(a.durations.WithLabelValues(r.Act.String()), time.Duration(s.Act.End-s.Act.Start))
	}
	if r.Stage == tape.StageEnd && r.Peer >= 0 && r.Code != lifecycle.CodeOK {
		a.peer(s.Info(), r)
	}
	_, times := r.Refused() // 1 for anything but a refused call
	switch {
	case r.Code == lifecycle.CodeOK:
	case r.Code == lifecycle.CodeInProgress:
		a.postponed.WithLabelValues(r.Call.String()).Add(float64(times))
	case r.Act == tape.ActLeak: // its Call is not the faulty call
		a.errors.WithLabelValues(tape.ActLeak.String(), r.Code.String()).Inc()
	default:
		a.errors.WithLabelValues(r.Call.String(), r.Code.String()).Add(float64(times))
	}
}
