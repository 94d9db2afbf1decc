package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// proxyMetrics exports the activity of a process's proxy to Prometheus.
type proxyMetrics struct {
	of interface{ ProxyStats() fabric.ProxyStats }
}

var (
	proxyOperationsDesc = describe(semconv.MetricProxyOperations,
		"Operations of the proxy in use: of the process's pool, and in memory that the node's ranks share.",
		semconv.LabelPool)
	proxyWaitingDesc = describe(semconv.MetricProxyWaiting,
		"Streams of this process's ranks that wait for a free operation, here or in another process.")
	proxyWaitsDesc   = describe(semconv.MetricProxyWaits, "Times that a rank of this process found no operation free.")
	proxyStepsDesc   = describe(semconv.MetricProxySteps, "Steps of operations that the proxy sent to other nodes.")
	proxyRefusedDesc = describe(semconv.MetricProxyRefused,
		"Operations that the proxy refused because their token did not fit.")
)

// Describe implements prometheus.Collector.
func (m proxyMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m proxyMetrics) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	s := m.of.ProxyStats()
	send(proxyOperationsDesc, prometheus.GaugeValue, float64(s.Own), "own")
	send(proxyOperationsDesc, prometheus.GaugeValue, float64(s.Shared), "shared")
	send(proxyWaitingDesc, prometheus.GaugeValue, float64(s.Waiting))
	send(proxyWaitsDesc, prometheus.CounterValue, float64(s.Waits))
	send(proxyStepsDesc, prometheus.CounterValue, float64(s.Steps))
	send(proxyRefusedDesc, prometheus.CounterValue, float64(s.Refused))
}
