package gpu

import (
	"context"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// The metrics' descriptions. Counters are the driver's own, except for Xids, which the Monitor counts.
var (
	devicesDesc = describe(semconv.MetricGPUDevices,
		"GPUs that the process watches, by state; all 0 where there is none.", semconv.LabelState)
	xidDesc = describe(semconv.MetricGPUXidErrors,
		"Xid errors that the driver reported since the process began to watch.", semconv.LabelGPU, semconv.LabelXid)
	eccDesc = describe(semconv.MetricGPUECCErrors, "Memory errors since the driver was loaded.",
		semconv.LabelGPU, semconv.LabelType)
	nvlinkDesc = describe(semconv.MetricGPUNVLinkErrors, "Replays, recoveries and CRC errors of all NVLinks.",
		semconv.LabelGPU)
	throttledDesc = describe(semconv.MetricGPUThrottled, "1 while the GPU runs slower than it could, by reason.",
		semconv.LabelGPU, semconv.LabelReason)
	usedDesc  = describe(semconv.MetricGPUMemoryUsed, "GPU memory in use, by whomever, in bytes.", semconv.LabelGPU)
	totalDesc = describe(semconv.MetricGPUMemoryTotal, "GPU memory that there is, in bytes.", semconv.LabelGPU)
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var _ prometheus.Collector = (*Monitor)(nil)

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		devicesDesc, xidDesc, eccDesc, nvlinkDesc, throttledDesc, usedDesc, totalDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It is bounded as Read is. If a GPU doesn't report a value, there is no
// series for it, so a lost GPU never shows old values.
func (m *Monitor) Collect(ch chan<- prometheus.Metric) {
	s := m.Read(context.Background())
	hung := slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Code == CodeHung })
	states := map[string]float64{"ok": 0, "lost": 0, "unread": 0}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	send := func(d *prometheus.Desc, t prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, value, labels...)
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		switch {
		case g.Lost:
			states["lost"]++
		case hung || s.Read.IsZero():
			states["unread"]++ // NVML has not reported it yet, or doesn't answer
		default:
			states["ok"]++
		}
		for xid, count := range g.Xids {
			send(xidDesc, counter, float64(count), g.Label, strconv.FormatUint(xid, 10))
		}
		if g.ECC != nil {
			send(eccDesc, counter, float64(g.ECC.Corrected), g.Label, "corrected")
			send(eccDesc, counter, float64(g.ECC.Uncorrected), g.Label, "uncorrected")
		}
		if g.NVLink != nil {
			send(nvlinkDesc, counter, float64(g.NVLink.Errors), g.Label)
		}
		if g.Throttled != nil {
			for _, r := range throttleReasons {
				value := 0.0
				if slices.Contains(g.Throttled, r.name) {
					value = 1
				}
				send(throttledDesc, gauge, value, g.Label, r.name)
			}
		}
		if g.Memory != nil {
			send(usedDesc, gauge, float64(g.Memory.Used), g.Label)
			send(totalDesc, gauge, float64(g.Memory.Total), g.Label)
		}
	}
	for state, n := range states {
		send(devicesDesc, gauge, n, state)
	}
}
