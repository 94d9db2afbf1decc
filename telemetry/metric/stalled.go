package metric

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// stalled knows what is stalled now. It is told by one goroutine and read by those that scrape.
type stalled struct {
	names *names
	now   func() int64
	total *prometheus.CounterVec

	count, age *prometheus.Desc

	mu      sync.Mutex // guards what follows
	current map[stallKey]stall.Report
	series  map[stallSeries]struct{} // all that ever were: a series that ends at 0 is seen to clear
}

// stallKey is one operation or act in flight.
type stallKey struct {
	comm   uint32
	act    tape.Act
	actSeq uint64
}

// stallSeries is what stalls are counted by.
type stallSeries struct{ comm, kind string }

func newStalled(names *names, now func() int64) *stalled {
	labels := []string{semconv.LabelComm, semconv.LabelKind}
	s := &stalled{
		names: names, now: now,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricStalls,
			Help: "Operations and acts that stalled, each once, by kind.",
		}, []string{semconv.LabelKind}),
		count: prometheus.NewDesc(semconv.MetricStalled,
			"Operations and acts that are stalled now, by communicator name and kind.", labels, nil),
		age: prometheus.NewDesc(semconv.MetricStallAge,
			"How long the oldest of those that are stalled has taken until now, and the rank that it waits for.",
			append(labels, semconv.LabelWaitRank), nil),
		current: make(map[stallKey]stall.Report),
		series:  make(map[stallSeries]struct{}),
	}
	// A series that appears with its first stall shows no increase.
	for _, call := range lifecycle.Calls() {
		if call.IsOperation() {
			s.total.WithLabelValues(call.String())
		}
	}
	for act := tape.ActInit; act < tape.ActLeak; act++ {
		s.total.WithLabelValues(act.String())
	}
	return s
}

func (s *stalled) observe(r *stall.Report) {
	if r.Count == 0 {
		return // slow only
	}
	key := stallKey{r.Generation, r.Act, r.ActSeq}
	if r.Stage == stall.Stalled && r.Count == 1 {
		s.total.WithLabelValues(r.Kind()).Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Stage == stall.Cleared {
		delete(s.current, key)
		return
	}
	s.current[key] = *r
	s.series[stallSeries{s.names.label(r.Comm.Name), r.Kind()}] = struct{}{}
}

func (s *stalled) describe(ch chan<- *prometheus.Desc) {
	s.total.Describe(ch)
	ch <- s.count
	ch <- s.age
}

func (s *stalled) collect(ch chan<- prometheus.Metric) {
	s.total.Collect(ch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.series) == 0 {
		return
	}
	counts := make(map[stallSeries]int, len(s.series))
	oldest := make(map[stallSeries]stall.Report)
	for _, r := range s.current {
		series := stallSeries{s.names.label(r.Comm.Name), r.Kind()}
		counts[series]++
		if o, ok := oldest[series]; !ok || r.Start < o.Start {
			oldest[series] = r
		}
	}
	for series := range s.series {
		ch <- prometheus.MustNewConstMetric(s.count, prometheus.GaugeValue, float64(counts[series]), series.comm, series.kind)
	}
	now := s.now()
	for series, r := range oldest {
		wait := semconv.LabelValueNone
		if r.Wait >= 0 {
			wait = strconv.Itoa(int(r.Wait))
		}
		ch <- prometheus.MustNewConstMetric(s.age, prometheus.GaugeValue, float64(max(now-r.Start, 0))/1e9,
			series.comm, series.kind, wait)
	}
}
