package metric

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// moves counts operations that ended. Those that a tally of the tape has are added to it when it is scraped; the others it is told of by the
// follower, as it is of spans, which become exemplars. Both have the buckets of tape.Tally.
type moves struct {
	names *names
	span  func() oteltrace.SpanContext // of the event at hand; nil: there are no spans
	since time.Time                    // when counting began

	operations, bytes, duration, bandwidth *prometheus.Desc

	mu    sync.Mutex // guards what follows
	ended map[endKey]uint64
	moved map[moveKey]*moved
	last  [32]lastMove // by the communicator's generation
}

// endKey is what operations that ended with an error are counted by.
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

// moved is what is known of the operations of one moveKey.
type moved struct {
	well, bytes uint64
	timed       uint64 // those of which it is known how long they took
	time        time.Duration
	durations   [tape.DurationBuckets]uint64
	bandwidth   float64 // the sum of all, bytes per second
	bandwidths  [tape.BandwidthBuckets]uint64
	exemplars   [tape.DurationBuckets]exemplar // the last of each bucket
}

// exemplar is a duration with its span, and when it was seen; its span is invalid where there is none yet.
type exemplar struct {
	span oteltrace.SpanContext
	took time.Duration
	at   time.Time
}

func newMoves(names *names, span func() oteltrace.SpanContext) *moves {
	perMove := []string{semconv.LabelKind, semconv.LabelSize, semconv.LabelEngine, semconv.LabelComm}
	return &moves{
		names: names, span: span, since: time.Now(), ended: make(map[endKey]uint64), moved: make(map[moveKey]*moved),
		operations: prometheus.NewDesc(semconv.MetricOperations,
			"Operations that ended, by kind and error type; the error type is empty for those that ended well.",
			[]string{semconv.LabelKind, semconv.LabelErrorType}, nil),
		bytes: prometheus.NewDesc(semconv.MetricBytes,
			"Bytes of the buffers of operations that ended well, by kind.", []string{semconv.LabelKind}, nil),
		duration: prometheus.NewDesc(semconv.MetricDuration,
			"Time from launch to end of operations that ended well.", perMove, nil),
		bandwidth: prometheus.NewDesc(semconv.MetricBusBandwidth,
			"Bus bandwidth of operations that ended well, as nccl-tests defines it.", perMove, nil),
	}
}

func (m *moves) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.operations, m.bytes, m.duration, m.bandwidth} {
		ch <- d
	}
}

// observe counts an operation that ended, unless a tally does. What an act does on the wire is no operation of the user's.
func (m *moves) observe(ev *tape.Event) {
	r := &ev.Op
	sig := &r.Signature
	if r.Stage != tape.StageEnd || !sig.Call.IsOperation() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Code != lifecycle.CodeOK {
		m.ended[endKey{sig.Call, r.Code}]++
		return
	}
	l := &m.last[ev.Generation%uint32(len(m.last))]
	if l.call != sig.Call || l.bytes != sig.Bytes || l.engine != ev.Comm.Engine || l.name != ev.Comm.Name || l.moved == nil {
		key := moveKey{sig.Call, sizeLabel(sig.Bytes), ev.Comm.Engine, m.names.label(ev.Comm.Name)}
		*l = lastMove{sig.Call, sig.Bytes, ev.Comm.Engine, ev.Comm.Name, m.of(key)}
	}
	d := time.Duration(-1)
	if r.Start > 0 && r.Start <= r.Time { // the tape knows when it began
		d = time.Duration(r.Time - r.Start)
	}
	if !r.Tallied {
		l.moved.add(sig, &ev.Comm, d)
	}
	if d >= 0 && m.span != nil {
		l.moved.exemplify(m.span(), d)
	}
}

func (m *moves) of(key moveKey) *moved {
	to := m.moved[key]
	if to == nil {
		to = &moved{}
		m.moved[key] = to
	}
	return to
}

// add counts an operation that took d, negative if that isn't known.
func (m *moved) add(sig *tape.Signature, comm *tape.CommInfo, d time.Duration) {
	m.well++
	m.bytes += sig.Bytes
	if d < 0 {
		return
	}
	m.timed++
	m.time += d
	m.durations[tape.DurationBucket(d)]++
	if bw := BusBandwidth(sig, comm.Rank, comm.Size, d); bw > 0 {
		m.bandwidth += bw
		m.bandwidths[tape.BandwidthBucket(bw)]++
	}
}

// exemplify keeps the span of an operation that took d, if it has one: most have none.
func (m *moved) exemplify(sc oteltrace.SpanContext, d time.Duration) {
	if sc.IsValid() {
		m.exemplars[tape.DurationBucket(d)] = exemplar{sc, d, time.Now()}
	}
}

// merge adds what a tally has.
func (m *moved) merge(t *tape.Tally) {
	count := t.Count()
	m.well += count
	m.timed += count
	m.bytes += t.Bytes
	m.time += t.Time
	m.bandwidth += t.Bandwidth
	for i, n := range t.Durations {
		m.durations[i] += n
	}
	for i, n := range t.Bandwidths {
		m.bandwidths[i] += n
	}
}

// total is all that was counted until now.
func (m *moves) total(tallies []tape.Tally) (all map[moveKey]*moved, ended map[endKey]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, ended = make(map[moveKey]*moved, len(m.moved)), make(map[endKey]uint64, len(m.ended))
	for key, n := range m.ended {
		ended[key] = n
	}
	for key, counted := range m.moved {
		sum := *counted
		all[key] = &sum
	}
	for i := range tallies {
		t := &tallies[i]
		if t.Count() == 0 { // begun, and not yet written to
			continue
		}
		key := moveKey{t.Call, classLabel(t.SizeClass), t.Engine, m.names.label(t.Name)}
		if all[key] == nil {
			all[key] = &moved{}
		}
		all[key].merge(t)
	}
	return all, ended
}

func (m *moves) collect(ch chan<- prometheus.Metric, tallies []tape.Tally) {
	all, ended := m.total(tallies)
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, float64(n), m.since, labels...)
	}
	type byKind struct{ well, bytes uint64 }
	kinds := make(map[lifecycle.Call]byKind)
	for key, sum := range all {
		kind := kinds[key.call]
		kinds[key.call] = byKind{kind.well + sum.well, kind.bytes + sum.bytes}
		engine := key.engine
		if engine == "" {
			engine = semconv.LabelValueUnknown
		}
		labels := []string{key.call.String(), key.size, engine, key.name}
		ch <- sum.durationMetric(m.duration, m.since, labels)
		ch <- sum.bandwidthMetric(m.bandwidth, m.since, labels)
	}
	for call, kind := range kinds {
		counter(m.operations, kind.well, call.String(), "")
		counter(m.bytes, kind.bytes, call.String())
	}
	for key, n := range ended {
		counter(m.operations, n, key.call.String(), key.code.String())
	}
}

func (m *moved) durationMetric(desc *prometheus.Desc, since time.Time, labels []string) prometheus.Metric {
	buckets, below := make(map[float64]uint64, len(m.durations)), uint64(0)
	for i, n := range m.durations[:len(m.durations)-1] {
		below += n
		buckets[tape.DurationBound(i).Seconds()] = below
	}
	metric := prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, m.timed, m.time.Seconds(), buckets, since, labels...)
	var exemplars []prometheus.Exemplar
	for _, e := range m.exemplars {
		if e.span.IsValid() {
			exemplars = append(exemplars, prometheus.Exemplar{Value: e.took.Seconds(), Labels: exemplarOf(e.span), Timestamp: e.at})
		}
	}
	if len(exemplars) == 0 {
		return metric
	}
	return prometheus.MustNewMetricWithExemplars(metric, exemplars...)
}

func (m *moved) bandwidthMetric(desc *prometheus.Desc, since time.Time, labels []string) prometheus.Metric {
	buckets, below := make(map[float64]uint64, len(m.bandwidths)), uint64(0)
	for i, n := range m.bandwidths[:len(m.bandwidths)-1] {
		below += n
		buckets[tape.BandwidthBound(i)] = below
	}
	count := below + m.bandwidths[len(m.bandwidths)-1]
	return prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, count, m.bandwidth, buckets, since, labels...)
}
