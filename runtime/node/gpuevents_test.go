package node

import (
	"testing"

	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// TestGPUEvents: an Xid opens its own condition on both buses, and a recovery closes it; the second process of a host
// that watches all its GPUs tells only its own clients.
func TestGPUEvents(t *testing.T) {
	for local, outward := range []int{3, 0} {
		var buses [2]*bus.Bus
		var subs [2]*bus.Subscription
		for i := range buses {
			buses[i] = bus.New(bus.Config{})
			defer buses[i].Close()
			subs[i] = buses[i].Attach(bus.Filter{}, "")
		}
		r := &JobRAS{
			settings: &settings{}, self: mesh.Member{Host: "a", Rank: local}, local: buses[0], outward: buses[1],
		}
		r.settings.World = launch.World{LocalRank: local}
		xid := gpu.Condition{
			Code: gpu.CodeXid, Severity: bus.Critical, GPU: "3", Xid: 79,
			Text: "the GPU has fallen off the bus", Count: 1,
		}
		ecc := gpu.Condition{Code: gpu.CodeCorrected, Severity: bus.Warning, GPU: "3", Text: "corrected", Count: 1}
		r.gpuEvent(gpu.Event{Type: semconv.EventGPUXid, Condition: xid})
		r.gpuEvent(gpu.Event{Type: semconv.EventGPUECC, Condition: ecc})
		r.gpuEvent(gpu.Event{Type: semconv.EventGPURecovered, Condition: xid})
		type got struct {
			stage    bus.Stage
			key      string
			severity bus.Severity
		}
		want := []got{
			{bus.Opened, "gpu/a/gpu_xid/3/79", bus.Critical},
			{bus.Opened, "gpu/a/" + gpu.CodeCorrected + "/3", bus.Warning},
			{bus.Closed, "gpu/a/gpu_xid/3/79", bus.Critical},
		}
		for i, n := range []int{3, outward} {
			for j := range n {
				ev, err := subs[i].Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if (got{ev.Stage, ev.Key, ev.Severity}) != want[j] {
					t.Errorf("local rank %d, bus %d: %v %s %v, want %+v",
						local, i, ev.Stage, ev.Key, ev.Severity, want[j])
				}
			}
			if subs[i].Waiting() {
				t.Errorf("local rank %d, bus %d: more than %d events", local, i, n)
			}
		}
	}
}
