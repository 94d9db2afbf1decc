package health

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// metrics are the endpoint's own metrics.
type metrics struct {
	*prometheus.Registry
	requests *prometheus.CounterVec
	refused  prometheus.Counter
	cut      prometheus.Counter
}

func newMetrics(connections *connections, conditions *Conditions) *metrics {
	m := &metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: semconv.MetricHealthRequests,
			Help: "Requests to the health endpoint that were answered, by path and status code.",
		}, []string{semconv.LabelPath, semconv.LabelStatus}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: semconv.MetricRASQueriesRefused,
			Help: "Queries that were answered with 429 because they came too often.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: semconv.MetricHealthConnectionsCut,
			Help: "Connections to the health endpoint that were cut to let others in.",
		}),
	}
	m.MustRegister(m.requests, m.refused, m.cut, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: semconv.MetricHealthConnections, Help: "Open connections to the health endpoint.",
	}, func() float64 { return float64(connections.count()) }))
	for severity := bus.Info; severity <= bus.Critical; severity++ {
		m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: semconv.MetricHealthConditions, Help: "Conditions that are open and not silent, by severity.",
			ConstLabels: prometheus.Labels{semconv.LabelSeverity: severity.String()},
		}, func() (open float64) {
			for _, c := range conditions.List() {
				if !c.Silent() && c.Severity == severity {
					open++
				}
			}
			return open
		}))
	}
	return m
}

// answered counts an answer, by the handler's pattern, so that clients can't create series.
func (m *metrics) answered(pattern string, status int) {
	switch pattern {
	case "":
		pattern = "other"
	case "/{$}":
		pattern = "/"
	}
	m.requests.WithLabelValues(pattern, strconv.Itoa(cmp.Or(status, http.StatusOK))).Inc()
}
