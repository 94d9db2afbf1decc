package metric

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// stalled holds the operations and acts that are stalled now. One goroutine updates it, and scrapes read it.
type stalled struct {
	names *names
	total *prometheus.CounterVec

	mu      sync.Mutex // guards the fields below
	current map[stallKey]stalledNow
	series  map[stallSeries]struct{} // of all stalls so far: a series goes back to 0 and stays
}

// stallKey is one operation or act in flight.
type stallKey struct {
	comm   uint32
	act    tape.Act
	actSeq uint64
}

// stallSeries holds the labels of a stall.
type stallSeries struct{ comm, kind string }

// stalledNow is a stall that has not ended.
type stalledNow struct {
	stallSeries
	start int64
	wait  int32
}

func newStalled(names *names) *stalled {
	s := &stalled{
		names: names, current: make(map[stallKey]stalledNow), series: make(map[stallSeries]struct{}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricStalls,
			Help: "Operations and acts that stalled, each once, by kind.",
		}, []string{semconv.LabelKind}),
	}
	// A series that appears with its first stall shows no increase, so they start at 0.
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
	key := stallKey{r.Comm.Generation, r.Act, r.ActSeq}
	if r.Stage == stall.Stalled && r.Count == 1 {
		s.total.WithLabelValues(r.Kind()).Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Stage == stall.Cleared {
		delete(s.current, key)
		return
	}
	series := stallSeries{s.names.label(r.Comm.Name), r.Kind()}
	s.current[key] = stalledNow{series, r.Start, r.Wait}
	s.series[series] = struct{}{}
}

func (s *stalled) collect(to scrape, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[stallSeries]int, len(s.series))
	oldest := make(map[stallSeries]stalledNow)
	for _, now := range s.current {
		counts[now.stallSeries]++
		if o, ok := oldest[now.stallSeries]; !ok || now.start < o.start {
			oldest[now.stallSeries] = now
		}
	}
	for series := range s.series {
		to.gauge(semconv.MetricStalled, float64(counts[series]), series.comm, series.kind)
	}
	for series, r := range oldest {
		wait := semconv.LabelValueNone
		if r.wait >= 0 {
			wait = strconv.Itoa(int(r.wait))
		}
		age := time.Duration(max(now-r.start, 0))
		to.gauge(semconv.MetricStallAge, age.Seconds(), series.comm, series.kind, wait)
	}
}
