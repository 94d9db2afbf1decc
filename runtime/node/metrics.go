package node

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

var (
	peersDesc = describe(semconv.MetricRASPeers,
		"Processes of the job that this one knows, itself included, by state.", semconv.LabelState)
	verdictsDesc = describe(semconv.MetricRASVerdicts,
		"Open verdicts, by reason, the rank at fault and severity.", semconv.LabelReason, semconv.LabelCulprit,
		semconv.LabelSeverity)
	reachedDesc = describe(semconv.MetricRASVerdictsTotal,
		"Verdicts that this process reached for its job, by reason.", semconv.LabelReason)
	eventsDesc = describe(semconv.MetricRASEvents,
		"Events by sink and what became of them.", semconv.LabelSink, semconv.LabelResult)
	refusedDesc = describe(semconv.MetricRASPacketsRefused,
		"Packets, streams and questions at the mesh's port that were not taken, by reason.", semconv.LabelReason)
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector is a prometheus.Collector that sends what it reads at a scrape.
type collector func(sender)

// sender sends a sample.
type sender func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c(func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	})
}

// maxCulprits bounds the series of verdicts with a culprit of their own.
const maxCulprits = 64

// collect collects the metrics of RAS.
func (r *JobRAS) collect(send sender) {
	r.collectPeers(send)
	type key struct {
		reason, culprit string
		severity        bus.Severity
	}
	open := map[key]int{}
	for _, o := range r.agent.Open() {
		k := key{reason: o.Reason.String(), severity: health.SeverityOf(&o.Verdict)}
		if k.culprit = o.CulpritNumbers(); len(open) >= maxCulprits {
			k.culprit = semconv.LabelValueOther
		}
		open[k]++
	}
	if len(open) == 0 { // so that the name exists before the first verdict
		open[key{reason: verdict.Unknown.String(), severity: bus.Warning}] = 0
	}
	for k, n := range open {
		send(verdictsDesc, prometheus.GaugeValue, float64(n), k.reason, k.culprit, k.severity.String())
	}
	reached := r.agent.Stats().Reached
	for _, reason := range verdict.Reasons() {
		send(reachedDesc, prometheus.CounterValue, float64(reached[reason]), reason.String())
	}
	for _, sink := range append([]bus.Sink{r.stream}, r.sinks...) {
		s := sink.Stats()
		for result, n := range map[string]uint64{"pushed": s.Pushed, "dropped": s.Dropped, "failed": s.Failed} {
			send(eventsDesc, prometheus.CounterValue, float64(n), sink.Name(), result)
		}
	}
}

// collectPeers collects the processes that the mesh knows; a process without a mesh knows itself.
func (r *JobRAS) collectPeers(send sender) {
	peers := map[mesh.State]int{}
	stats := new(mesh.Stats)
	if member := r.mesh.Load(); member != nil {
		stats = member.Stats()
	}
	for _, s := range r.members() {
		peers[s.State]++
	}
	for state := mesh.Alive; state <= mesh.Left; state++ {
		send(peersDesc, prometheus.GaugeValue, float64(peers[state]), state.String())
	}
	for reason, n := range map[string]*atomic.Uint64{
		"stranger": &stats.Strangers, "replay": &stats.Replays, "crowded": &stats.Crowded,
		"malformed": &stats.Malformed, "limited": &stats.Limited,
	} {
		send(refusedDesc, prometheus.CounterValue, float64(n.Load()), reason)
	}
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

// proxyMetrics are the metrics of a process's proxy.
func proxyMetrics(stats func() fabric.ProxyStats) collector {
	return func(send sender) {
		s := stats()
		send(proxyOperationsDesc, prometheus.GaugeValue, float64(s.Own), "own")
		send(proxyOperationsDesc, prometheus.GaugeValue, float64(s.Shared), "shared")
		send(proxyWaitingDesc, prometheus.GaugeValue, float64(s.Waiting))
		send(proxyWaitsDesc, prometheus.CounterValue, float64(s.Waits))
		send(proxyStepsDesc, prometheus.CounterValue, float64(s.Steps))
		send(proxyRefusedDesc, prometheus.CounterValue, float64(s.Refused))
	}
}
