package node

import (
	"fmt"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// gpuDeclarations are the conditions of GPUs. A process is not ready through the check "gpu", which reads the GPUs first.
var gpuDeclarations = []health.Declaration{
	{Code: gpu.CodeUnreadable, Title: "the NVIDIA driver can't be used"},
	{Code: gpu.CodeHung, Title: "NVML doesn't answer"},
	{Code: gpu.CodeLost, Title: "a GPU doesn't answer"},
	{Code: gpu.CodeXid, Title: "the driver reported an error"},
	{Code: gpu.CodeECC, Title: "memory errors that can't be corrected"},
	{Code: gpu.CodeCorrected, Title: "memory errors that were corrected", DependsOn: []string{gpu.CodeECC}},
	{Code: gpu.CodeRemap, Title: "bad memory rows", DependsOn: []string{gpu.CodeLost}},
	{Code: gpu.CodeNVLinkDown, Title: "an NVLink is down", DependsOn: []string{gpu.CodeLost}},
	{Code: gpu.CodeNVLink, Title: "NVLinks make errors", DependsOn: []string{gpu.CodeNVLinkDown}},
	{Code: gpu.CodeThrottled, Title: "a GPU is throttled", DependsOn: []string{gpu.CodeLost}},
}

// gpuConditions makes what a GPU monitor tells conditions of the process. The function that it returns takes its events.
func gpuConditions(conditions *health.Conditions) (func(gpu.Event), error) {
	warnables := map[string]*health.Warnable{}
	for _, d := range gpuDeclarations {
		d.Severity = health.Warning
		w, err := conditions.Declare(d)
		if err != nil {
			return nil, err
		}
		warnables[d.Code] = w
	}
	return func(e gpu.Event) {
		c := e.Condition
		subject := ""
		if c.GPU != "" {
			subject = "GPU " + c.GPU
		}
		if c.Code == gpu.CodeXid { // several may be open
			subject += fmt.Sprintf(", Xid %d", c.Xid)
		}
		if e.Type == semconv.EventGPURecovered {
			warnables[c.Code].Clear(subject)
			return
		}
		severity := health.Warning
		if c.Severity == gpu.Fatal {
			severity = health.Critical
		}
		warnables[c.Code].Set(health.Finding{Subject: subject, Text: c.Text, Advice: c.Advice, Severity: severity})
	}, nil
}
