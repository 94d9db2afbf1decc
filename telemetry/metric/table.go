package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// summary is the in-flight table, folded to what has a bounded number of series.
type summary struct {
	states map[lifecycle.State]int
	byName map[string]*nameSummary
}

// nameSummary is what the communicators of one name do.
type nameSummary struct {
	inFlight  uint64
	oldest    time.Duration // age of the oldest operation in flight
	launched  uint64        // the highest
	completed uint64        // the lowest
}

// summarize folds the slots. Time runs on while it reads, so an age is never negative but may be a moment too small.
func summarize(slots []tape.Slot, names *names, now int64) summary {
	sum := summary{states: make(map[lifecycle.State]int), byName: make(map[string]*nameSummary)}
	for i := range slots {
		s := &slots[i]
		sum.states[s.State]++
		label := names.label(s.Name)
		n := sum.byName[label]
		if n == nil {
			n = &nameSummary{completed: s.Completed}
			sum.byName[label] = n
		}
		n.launched = max(n.launched, s.Launched)
		n.completed = min(n.completed, s.Completed)
		if s.Launched != s.Completed {
			n.inFlight += s.Launched - s.Completed
			n.oldest = max(n.oldest, time.Duration(now-s.OpStart))
		}
	}
	return sum
}

// tableDescs are the metrics of the in-flight table.
type tableDescs struct {
	communicators, inFlight, oldest, launched, completed *prometheus.Desc
}

func newTableDescs() tableDescs {
	byName := []string{semconv.LabelComm}
	return tableDescs{
		communicators: prometheus.NewDesc(semconv.MetricCommunicators,
			"Live communicators, by state.", []string{semconv.LabelState}, nil),
		inFlight: prometheus.NewDesc(semconv.MetricInFlight,
			"Operations launched and not completed, by communicator name.", byName, nil),
		oldest: prometheus.NewDesc(semconv.MetricOldestAge,
			"Age of the oldest operation in flight, by communicator name; 0 if there is none.", byName, nil),
		launched: prometheus.NewDesc(semconv.MetricLaunchedSeq,
			"Highest sequence number launched, over the communicators of one name.", byName, nil),
		completed: prometheus.NewDesc(semconv.MetricCompletedSeq,
			"Lowest sequence number completed, over the communicators of one name.", byName, nil),
	}
}

func (d *tableDescs) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.communicators, d.inFlight, d.oldest, d.launched, d.completed} {
		ch <- desc
	}
}

func (d *tableDescs) collect(ch chan<- prometheus.Metric, sum summary) {
	gauge := func(desc *prometheus.Desc, value float64, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
	}
	for _, state := range lifecycle.States() {
		if state == lifecycle.StateNone {
			continue
		}
		gauge(d.communicators, float64(sum.states[state]), state.String())
	}
	for name, n := range sum.byName {
		gauge(d.inFlight, float64(n.inFlight), name)
		gauge(d.oldest, n.oldest.Seconds(), name)
		gauge(d.launched, float64(n.launched), name)
		gauge(d.completed, float64(n.completed), name)
	}
}
