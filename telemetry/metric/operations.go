package metric

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// operations counts operations that ended. Those that a tally of the tape has are added when it is scraped; the others
// it is told of by the follower, as it is of spans, which become exemplars. Both have the buckets of tape.Tally.
type operations struct {
	names *names
	span  func() oteltrace.SpanContext // of the step at hand; nil: there are no spans
	since time.Time                    // when counting began

	count, bytes, duration, bandwidth *prometheus.Desc

	mu     sync.Mutex // guards what follows
	failed map[failedKey]uint64
	sums   map[sumKey]*sum
	last   [32]lastSum // by the communicator's generation
}

// failedKey is what operations that ended with an error are counted by.
type failedKey struct {
	call lifecycle.Call
	code lifecycle.Code
}

// sumKey is what operations that ended well are measured by.
type sumKey struct {
	call         lifecycle.Call
	size         string
	engine, name string
}

// lastSum is what a communicator's last operation was counted by: most do the same again.
type lastSum struct {
	call         lifecycle.Call
	bytes        uint64
	engine, name string
	sum          *sum
}

// sum is what is known of the operations of one sumKey.
type sum struct {
	tape.Tally
	untimed   uint64                         // of which it isn't known how long they took
	exemplars [tape.DurationBuckets]exemplar // the last of each bucket
}

// exemplar is a duration with its span, and when it was seen; its span is invalid where there is none yet.
type exemplar struct {
	span oteltrace.SpanContext
	took time.Duration
	at   time.Time
}

func newOperations(names *names, span func() oteltrace.SpanContext) *operations {
	labels := []string{semconv.LabelKind, semconv.LabelSize, semconv.LabelEngine, semconv.LabelComm}
	return &operations{
		names: names, span: span, since: time.Now(), failed: make(map[failedKey]uint64), sums: make(map[sumKey]*sum),
		count: prometheus.NewDesc(semconv.MetricOperations,
			"Operations that ended, by kind and error type; the error type is empty for those that ended well.",
			[]string{semconv.LabelKind, semconv.LabelErrorType}, nil),
		bytes: prometheus.NewDesc(semconv.MetricBytes,
			"Bytes of the buffers of operations that ended well, by kind.", []string{semconv.LabelKind}, nil),
		duration: prometheus.NewDesc(semconv.MetricDuration,
			"Time from launch to end of operations that ended well.", labels, nil),
		bandwidth: prometheus.NewDesc(semconv.MetricBusBandwidth,
			"Bus bandwidth of operations that ended well, as nccl-tests defines it.", labels, nil),
	}
}

func (o *operations) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{o.count, o.bytes, o.duration, o.bandwidth} {
		ch <- d
	}
}

// observe counts an operation that ended, unless a tally does. What an act does on the wire is no operation of the
// user's.
func (o *operations) observe(comm *tape.CommInfo, generation uint32, r *tape.OpRecord) {
	sig := &r.Signature
	if r.Stage != tape.StageEnd || !sig.Call.IsOperation() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Code != lifecycle.CodeOK {
		o.failed[failedKey{sig.Call, r.Code}]++
		return
	}
	l := &o.last[generation%uint32(len(o.last))]
	if l.call != sig.Call || l.bytes != sig.Bytes || l.engine != comm.Engine || l.name != comm.Name || l.sum == nil {
		key := sumKey{sig.Call, sizeLabel(sig.Bytes), comm.Engine, o.names.label(comm.Name)}
		*l = lastSum{sig.Call, sig.Bytes, comm.Engine, comm.Name, at(o.sums, key)}
	}
	d := time.Duration(-1)
	if r.Start > 0 && r.Start <= r.Time { // the tape knows when it began
		d = time.Duration(r.Time - r.Start)
	}
	if !r.Tallied {
		l.sum.add(sig, comm, d)
	}
	if d >= 0 && o.span != nil {
		if sc := o.span(); sc.IsValid() { // as few have
			l.sum.exemplars[tape.DurationBucket(d)] = exemplar{sc, d, time.Now()}
		}
	}
}

// at is the sum of that key, made if there is none.
func at(sums map[sumKey]*sum, key sumKey) *sum {
	to := sums[key]
	if to == nil {
		to = &sum{}
		sums[key] = to
	}
	return to
}

// add counts an operation that took d, negative if that isn't known.
func (s *sum) add(sig *tape.Signature, comm *tape.CommInfo, d time.Duration) {
	s.Bytes += sig.Bytes
	if d < 0 {
		s.untimed++
		return
	}
	s.Time += d
	s.Durations[tape.DurationBucket(d)]++
	if bw := BusBandwidth(sig, comm.Rank, comm.Size, d); bw > 0 {
		s.Bandwidth += bw
		s.Bandwidths[tape.BandwidthBucket(bw)]++
	}
}

// total is all that was counted until now.
func (o *operations) total(tallies []tape.Tally) (all map[sumKey]*sum, failed map[failedKey]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all = make(map[sumKey]*sum, len(o.sums))
	for key, counted := range o.sums {
		s := *counted
		all[key] = &s
	}
	for i := range tallies {
		if t := &tallies[i]; t.Count() > 0 { // else begun, and not yet written to
			key := sumKey{t.Call, classLabel(t.SizeClass), t.Engine, o.names.label(t.Name)}
			model.AddTally(&at(all, key).Tally, t)
		}
	}
	return all, maps.Clone(o.failed)
}

func (o *operations) collect(ch chan<- prometheus.Metric, tallies []tape.Tally) {
	all, failed := o.total(tallies)
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, float64(n), o.since, labels...)
	}
	type byKind struct{ well, bytes uint64 }
	kinds := make(map[lifecycle.Call]byKind)
	for key, s := range all {
		kind, timed := kinds[key.call], s.Count()
		kinds[key.call] = byKind{kind.well + timed + s.untimed, kind.bytes + s.Bytes}
		labels := []string{key.call.String(), key.size, cmp.Or(key.engine, semconv.LabelValueUnknown), key.name}
		ch <- s.durationMetric(o.duration, timed, o.since, labels)
		ch <- s.bandwidthMetric(o.bandwidth, o.since, labels)
	}
	for call, kind := range kinds {
		counter(o.count, kind.well, call.String(), "")
		counter(o.bytes, kind.bytes, call.String())
	}
	for key, n := range failed {
		counter(o.count, n, key.call.String(), key.code.String())
	}
}

func (s *sum) durationMetric(desc *prometheus.Desc, timed uint64, since time.Time, labels []string) prometheus.Metric {
	buckets, below := make(map[float64]uint64, len(s.Durations)), uint64(0)
	for i, n := range s.Durations[:len(s.Durations)-1] {
		below += n
		buckets[tape.DurationBound(i).Seconds()] = below
	}
	metric := prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, timed, s.Time.Seconds(), buckets,
		since, labels...)
	var exemplars []prometheus.Exemplar
	for _, e := range s.exemplars {
		if e.span.IsValid() {
			exemplars = append(exemplars,
				prometheus.Exemplar{Value: e.took.Seconds(), Labels: exemplarOf(e.span), Timestamp: e.at})
		}
	}
	if len(exemplars) == 0 {
		return metric
	}
	return prometheus.MustNewMetricWithExemplars(metric, exemplars...)
}

func (s *sum) bandwidthMetric(desc *prometheus.Desc, since time.Time, labels []string) prometheus.Metric {
	buckets, below := make(map[float64]uint64, len(s.Bandwidths)), uint64(0)
	for i, n := range s.Bandwidths[:len(s.Bandwidths)-1] {
		below += n
		buckets[tape.BandwidthBound(i)] = below
	}
	count := below + s.Bandwidths[len(s.Bandwidths)-1]
	return prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, count, s.Bandwidth, buckets, since, labels...)
}
