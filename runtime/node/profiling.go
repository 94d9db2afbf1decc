package node

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/profiler/native"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// profilerOff is the condition of a profiler plug-in that was switched off.
const profilerOff = "profiler_plugin_off"

// newProfiler makes the profiler that calls the plug-ins; nil if there are none.
func newProfiler(s *settings, conditions *health.Conditions, r prometheus.Registerer) (*profiler.Profiler, error) {
	plugins := slices.Clone(s.Profilers)
	for _, path := range s.ProfilerPlugins {
		if path != "" {
			plugins = append(plugins, native.New(path))
		}
	}
	if len(plugins) == 0 {
		return nil, nil //nolint:nilnil // a nil Profiler has no plug-ins
	}
	off, err := conditions.Declare(health.Declaration{
		Code: profilerOff, Title: "a profiler plug-in is not told any more what communicators do",
	})
	if err != nil {
		return nil, err
	}
	switchedOff := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: semconv.MetricProfilerOff, Help: "Profiler plug-ins that were switched off, by plug-in.",
	}, []string{semconv.LabelPlugin})
	p := profiler.New(profiler.Config{Plugins: plugins, Log: s.Log, Off: func(plugin profiler.Status) {
		switchedOff.WithLabelValues(plugin.Name).Inc()
		off.Set(health.Finding{Subject: plugin.Name, Text: plugin.Off})
	}})
	for _, plugin := range p.Status() {
		switchedOff.WithLabelValues(plugin.Name)
	}
	return p, r.Register(switchedOff)
}
