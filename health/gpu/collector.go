package gpu

import (
	"context"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// States of GPUs, as values of the label "state" of ccl_gpu_devices.
const (
	StateOK     = "ok"     // it was read
	StateLost   = "lost"   // it doesn't answer any more
	StateUnread = "unread" // NVML has not told of it yet, or doesn't answer
)

// The metrics' descriptions. Counters are the driver's own, except for Xids, which the Monitor counts.
var (
	devicesDesc = prometheus.NewDesc(semconv.MetricGPUDevices,
		"GPUs that the process watches, by state; all 0 where there is none.",
		[]string{semconv.LabelState}, nil)
	xidDesc = prometheus.NewDesc(semconv.MetricGPUXidErrors,
		"Xid errors that the driver reported since the process began to watch.",
		[]string{semconv.LabelGPU, semconv.LabelXid}, nil)
	eccDesc = prometheus.NewDesc(semconv.MetricGPUECCErrors, "Memory errors since the driver was loaded.",
		[]string{semconv.LabelGPU, semconv.LabelType}, nil)
	nvlinkDesc = prometheus.NewDesc(semconv.MetricGPUNVLinkErrors, "Replays, recoveries and CRC errors of all NVLinks.",
		[]string{semconv.LabelGPU}, nil)
	throttledDesc = prometheus.NewDesc(semconv.MetricGPUThrottled, "1 while the GPU runs slower than it could, by reason.",
		[]string{semconv.LabelGPU, semconv.LabelReason}, nil)
	usedDesc = prometheus.NewDesc(semconv.MetricGPUMemoryUsed, "GPU memory in use, by whomever, in bytes.",
		[]string{semconv.LabelGPU}, nil)
	totalDesc = prometheus.NewDesc(semconv.MetricGPUMemoryTotal, "GPU memory that there is, in bytes.",
		[]string{semconv.LabelGPU}, nil)
)

var _ prometheus.Collector = (*Monitor)(nil)

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{devicesDesc, xidDesc, eccDesc, nvlinkDesc, throttledDesc, usedDesc, totalDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It is bounded as Read is. A GPU that doesn't tell a value has no series of
// it, so a value is never an old one of a GPU that is lost.
func (m *Monitor) Collect(ch chan<- prometheus.Metric) {
	s := m.Read(context.Background())
	hung := slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Code == CodeHung })
	states := map[string]float64{StateOK: 0, StateLost: 0, StateUnread: 0}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	send := func(d *prometheus.Desc, t prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, value, labels...)
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		switch {
		case g.Lost:
			states[StateLost]++
		case hung || s.Read.IsZero():
			states[StateUnread]++
		default:
			states[StateOK]++
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
		if g.throttle {
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
