package node

import (
	"os"
	"strconv"

	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// gpuEvent tells what happened to a GPU. Of several processes that watch the same GPUs, the first of the host tells it to others; one with
// GPUs of its own always does.
func (r *JobRAS) gpuEvent(e gpu.Event) {
	if r == nil {
		return
	}
	c := &e.Condition
	ev := bus.Event{
		Type: e.Type, Time: e.Time, Reason: c.Code, Text: c.Text, Description: c.Advice, Data: c, Stage: bus.Opened, Severity: bus.Warning,
		Subject: "GPU " + c.GPU, Key: "gpu/" + r.self.Host + "/" + c.Code + "/" + c.GPU,
	}
	if c.GPU == "" {
		ev.Subject = "the GPUs of " + r.self.Host
	}
	if c.Xid != 0 {
		ev.Key += "/" + strconv.FormatUint(c.Xid, 10)
	}
	if c.Severity == gpu.Fatal {
		ev.Severity = bus.Critical
	}
	if r.self.Rank >= 0 {
		ev.Rank = strconv.Itoa(r.self.Rank)
	}
	switch {
	case e.Type == semconv.EventGPURecovered:
		ev.Stage = bus.Closed
	case c.Count > 1:
		ev.Stage = bus.Changed
	}
	_, own := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	r.event(ev, r.settings.World.LocalRank <= 0 || own && r.settings.GPU == OwnGPUs)
}
