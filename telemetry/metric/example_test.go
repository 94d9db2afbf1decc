package metric_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The in-flight table is read at every scrape: here one communicator has waited for two seconds.
func ExampleCollector() {
	collector, err := metric.NewCollector(metric.Config{
		Slots: func() []tape.Slot { // a follower's Slots
			return []tape.Slot{{
				CommInfo: tape.CommInfo{Name: "world", Size: 4}, State: lifecycle.StateReady,
				Launched: 8, Completed: 7, OpStart: 3e9,
			}}
		},
		Now: func() int64 { return 5e9 }, // tape.Now
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == "ccl_operation_oldest_age_seconds" {
			m := family.GetMetric()[0]
			fmt.Println(m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
	}
	// Output: world 2
}
