package gpu_test

import (
	"slices"
	"testing"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestGPUEventsAreConditions(t *testing.T) {
	var conditions health.Conditions
	take, err := gpu.Declare(&conditions)
	if err != nil {
		t.Fatal(err)
	}
	xid := func(eventType string, number uint64, severity bus.Severity) gpu.Event {
		return gpu.Event{Type: eventType, Condition: gpu.Condition{
			Code: gpu.CodeXid, GPU: "3", Xid: number,
			Severity: severity, Text: "an Xid",
		}}
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range conditions.List() {
			got = append(got, c.Severity.String()+" "+c.String())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("conditions: %q, want %q", got, want)
		}
	}
	take(xid(semconv.EventGPUXid, 31, bus.Warning))
	take(xid(semconv.EventGPUXid, 79, bus.Critical))
	take(gpu.Event{Type: semconv.EventGPULost, Condition: gpu.Condition{
		Code: gpu.CodeHung, Severity: bus.Warning,
		Text: "no answer",
	}})
	expect("critical gpu_xid (GPU 3, Xid 79): an Xid", "warning gpu_nvml_hung: no answer",
		"warning gpu_xid (GPU 3, Xid 31): an Xid")
	take(xid(semconv.EventGPURecovered, 31, bus.Warning))
	expect("critical gpu_xid (GPU 3, Xid 79): an Xid", "warning gpu_nvml_hung: no answer")
	if _, err := gpu.Declare(&conditions); err == nil {
		t.Error("declared twice")
	}
}
