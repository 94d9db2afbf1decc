package metric

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// operations counts operations that ended. The tape's tallies are added at each scrape; observe gets the operations
// without a tally, and the spans of all, which become exemplars. Both have the buckets of tape.Tally.
type operations struct {
	names *names
	span  func() oteltrace.SpanContext // of the current step; nil: there are no spans
	since time.Time                    // when counting began

	mu     sync.Mutex // guards the fields below
	failed map[failedKey]uint64
	sums   map[sumKey]*sum
}

// failedKey holds the labels of operations that failed.
type failedKey struct {
	call lifecycle.Call
	code lifecycle.Code
}

// sumKey holds the labels of operations that ended well.
type sumKey struct {
	call         lifecycle.Call
	size         string
	engine, name string
}

// sum counts the operations of one sumKey.
type sum struct {
	tape.Tally
	untimed   uint64                         // operations of unknown duration
	exemplars [tape.DurationBuckets]exemplar // the last one of each bucket
}

// exemplar is a duration with its span, and when it was observed; the span is invalid if the bucket has none.
type exemplar struct {
	span oteltrace.SpanContext
	took time.Duration
	at   time.Time
}

func newOperations(names *names, span func() oteltrace.SpanContext) *operations {
	return &operations{
		names: names, span: span, since: time.Now(), failed: make(map[failedKey]uint64), sums: make(map[sumKey]*sum),
	}
}

// observe counts a user's operation that ended, unless a tally counts it or it was captured in a graph. If a device ran
// it, observe counts its bus bandwidth.
func (o *operations) observe(comm *tape.CommInfo, r *tape.OpRecord) {
	sig, device := &r.Signature, r.Stage == tape.StageDevice
	if r.Stage != tape.StageEnd && !device || !sig.Call.IsOperation() || r.Phase == tape.PhaseCaptured {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Code != lifecycle.CodeOK {
		o.failed[failedKey{sig.Call, r.Code}]++
		return
	}
	to := at(o.sums, sumKey{sig.Call, sizeLabel(tape.SizeClass(sig.Bytes)), comm.Engine, o.names.label(comm.Name)})
	d := time.Duration(-1)
	if r.Start > 0 && r.Start <= r.Time { // the tape knows when it began
		d = time.Duration(r.Time - r.Start)
	}
	if device {
		to.addBandwidth(sig, comm, d) // the rest is counted when the call ends
		return
	}
	if !r.Tallied {
		to.add(sig, comm, d)
	}
	if d >= 0 && o.span != nil {
		if sc := o.span(); sc.IsValid() { // few operations have a span
			to.exemplars[tape.DurationBucket(d)] = exemplar{sc, d, time.Now()}
		}
	}
}

// at returns the sum of a key, and makes it if there is none.
func at(sums map[sumKey]*sum, key sumKey) *sum {
	to := sums[key]
	if to == nil {
		to = &sum{}
		sums[key] = to
	}
	return to
}

// add counts an operation that took d; negative if unknown.
func (s *sum) add(sig *tape.Signature, comm *tape.CommInfo, d time.Duration) {
	s.Bytes += sig.Bytes
	if d < 0 {
		s.untimed++
		return
	}
	s.Time += d
	s.Durations[tape.DurationBucket(d)]++
	if !comm.Enqueues() {
		s.addBandwidth(sig, comm, d)
	}
}

// addBandwidth adds the bus bandwidth of an operation whose bytes were moved in d.
func (s *sum) addBandwidth(sig *tape.Signature, comm *tape.CommInfo, d time.Duration) {
	if d <= 0 {
		return
	}
	if bw := float64(sig.Bytes) * sig.BusFactor(comm.Rank, comm.Size) / d.Seconds(); bw > 0 {
		s.Bandwidth += bw
		s.Bandwidths[tape.BandwidthBucket(bw)]++
	}
}

// total returns the sums of all operations counted so far.
func (o *operations) total(tallies []tape.Tally) (all map[sumKey]*sum, failed map[failedKey]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all = make(map[sumKey]*sum, len(o.sums))
	for key, counted := range o.sums {
		s := *counted
		all[key] = &s
	}
	for i := range tallies {
		if t := &tallies[i]; t.Count() > 0 {
			key := sumKey{t.Call, sizeLabel(t.SizeClass), t.Engine, o.names.label(t.Name)}
			at(all, key).Add(t)
		}
	}
	return all, maps.Clone(o.failed)
}

func (o *operations) collect(to scrape, tallies []tape.Tally) {
	all, failed := o.total(tallies)
	counter := func(name string, n uint64, labels ...string) {
		to.ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(to.descs[name], prometheus.CounterValue, float64(n),
			o.since, labels...)
	}
	histogram := func(
		name string, sum float64, counts []uint64, bound func(int) float64, labels []string,
	) prometheus.Metric {
		buckets, count := make(map[float64]uint64, len(counts)), uint64(0)
		for i, n := range counts {
			count += n
			if i < len(counts)-1 { // the last bucket has no bound
				buckets[bound(i)] = count
			}
		}
		return prometheus.MustNewConstHistogramWithCreatedTimestamp(to.descs[name], count, sum, buckets, o.since,
			labels...)
	}
	type byKind struct{ well, bytes uint64 }
	kinds := make(map[lifecycle.Call]byKind)
	for key, s := range all {
		kind := kinds[key.call]
		kinds[key.call] = byKind{kind.well + s.Count() + s.untimed, kind.bytes + s.Bytes}
		labels := []string{key.call.String(), key.size, cmp.Or(key.engine, semconv.LabelValueUnknown), key.name}
		to.ch <- s.withExemplars(histogram(semconv.MetricDuration, s.Time.Seconds(), s.Durations[:],
			func(i int) float64 { return tape.DurationBound(i).Seconds() }, labels))
		to.ch <- histogram(semconv.MetricBusBandwidth, s.Bandwidth, s.Bandwidths[:], tape.BandwidthBound, labels)
	}
	for call, kind := range kinds {
		counter(semconv.MetricOperations, kind.well, call.String(), "")
		counter(semconv.MetricBytes, kind.bytes, call.String())
	}
	for key, n := range failed {
		counter(semconv.MetricOperations, n, key.call.String(), key.code.String())
	}
}

// withExemplars adds the exemplars to the histogram of durations.
func (s *sum) withExemplars(durations prometheus.Metric) prometheus.Metric {
	var exemplars []prometheus.Exemplar
	for _, e := range s.exemplars {
		if e.span.IsValid() {
			exemplars = append(exemplars,
				prometheus.Exemplar{Value: e.took.Seconds(), Labels: exemplarOf(e.span), Timestamp: e.at})
		}
	}
	if len(exemplars) == 0 {
		return durations
	}
	return prometheus.MustNewMetricWithExemplars(durations, exemplars...)
}

// sizeLabel is the size label of a size class of the tape's tallies: sizes up to 4^class bytes. A finer label would
// multiply every histogram.
func sizeLabel(class uint8) string {
	switch {
	case class <= 5:
		return "le_1KiB"
	case class <= 8:
		return "le_64KiB"
	case class <= 10:
		return "le_1MiB"
	case class <= 12:
		return "le_16MiB"
	case class <= 14:
		return "le_256MiB"
	default:
		return "gt_256MiB"
	}
}
