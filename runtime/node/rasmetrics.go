package node

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// rasMetrics are the metrics that RAS exports, read at a scrape.
type rasMetrics struct{ *JobRAS }

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

// Describe implements prometheus.Collector.
func (m rasMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// maxCulprits bounds the series of verdicts with a culprit of their own.
const maxCulprits = 64

// Collect implements prometheus.Collector.
func (m rasMetrics) Collect(ch chan<- prometheus.Metric) {
	m.peers(ch)
	type key struct {
		reason, culprit string
		severity        bus.Severity
	}
	open := map[key]int{}
	for _, o := range m.agent.Open() {
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
		ch <- prometheus.MustNewConstMetric(verdictsDesc, prometheus.GaugeValue, float64(n), k.reason, k.culprit,
			k.severity.String())
	}
	reached := m.agent.Stats().Reached
	for _, reason := range verdict.Reasons() {
		ch <- prometheus.MustNewConstMetric(reachedDesc, prometheus.CounterValue, float64(reached[reason]),
			reason.String())
	}
	for _, sink := range append([]bus.Sink{m.stream}, m.sinks...) {
		s := sink.Stats()
		for result, n := range map[string]uint64{"pushed": s.Pushed, "dropped": s.Dropped, "failed": s.Failed} {
			ch <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, float64(n), sink.Name(), result)
		}
	}
}

// peers collects the processes that the mesh knows; a process without a mesh knows itself.
func (m rasMetrics) peers(ch chan<- prometheus.Metric) {
	peers := map[mesh.State]int{}
	stats := new(mesh.Stats)
	if member := m.mesh.Load(); member != nil {
		stats = member.Stats()
	}
	for _, s := range m.members() {
		peers[s.State]++
	}
	for state := mesh.Alive; state <= mesh.Left; state++ {
		ch <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(peers[state]), state.String())
	}
	for reason, n := range map[string]*atomic.Uint64{
		"stranger": &stats.Strangers, "replay": &stats.Replays, "crowded": &stats.Crowded,
		"malformed": &stats.Malformed, "limited": &stats.Limited,
	} {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n.Load()), reason)
	}
}
