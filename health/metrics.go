package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

type metrics struct {
	requests *prometheus.CounterVec
	refused  prometheus.Counter
	cut      prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricHealthRequests, Help: "Requests to the health endpoint that were answered, by path and " +
				"status code.",
		}, []string{semconv.LabelPath, semconv.LabelStatus}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: semconv.MetricRASQueriesRefused, Help: "Queries that were answered with 429 because they came too often.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: semconv.MetricHealthConnectionsCut, Help: "Connections to the health endpoint that were cut to let others in.",
		}),
	}
}

// answered counts an answer. The pattern is that of the handler, so that no client makes up new series.
func (m *metrics) answered(pattern string, status int) {
	switch pattern {
	case "":
		pattern = "other"
	case "/{$}":
		pattern = "/"
	}
	m.requests.WithLabelValues(pattern, statusText(status)).Inc()
}

// conditionsDesc describes the gauge that is read from Conditions when somebody scrapes.
var conditionsDesc = prometheus.NewDesc(
	semconv.MetricHealthConditions, "Conditions that are open and not silent, by severity.",
	[]string{semconv.LabelSeverity}, nil,
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.collectors() {
		c.Describe(ch)
	}
	ch <- conditionsDesc
}

// Collect implements prometheus.Collector: the metrics of the endpoint, and how many conditions are open.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.collectors() {
		c.Collect(ch)
	}
	var open [len(severityNames)]int
	for _, c := range s.cfg.Conditions.List() {
		if !c.Silent() {
			open[c.Severity]++
		}
	}
	for severity := Info; severity <= Critical; severity++ {
		ch <- prometheus.MustNewConstMetric(conditionsDesc, prometheus.GaugeValue, float64(open[severity]), severity.String())
	}
}

func (s *Server) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.requests, s.metrics.refused, s.metrics.cut, s.connectionCount}
}

func newConnectionCount(cs *connections) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: semconv.MetricHealthConnections, Help: "Open connections to the health endpoint.",
	}, func() float64 { return float64(cs.count()) })
}
