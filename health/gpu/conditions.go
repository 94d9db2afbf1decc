package gpu

import (
	"fmt"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// declarations are the conditions of GPUs. None makes a process not ready: that is for a check, which reads the GPUs.
var declarations = []health.Declaration{
	{Code: CodeUnreadable, Title: "the NVIDIA driver can't be used"},
	{Code: CodeHung, Title: "NVML doesn't answer"},
	{Code: CodeLost, Title: "a GPU doesn't answer"},
	{Code: CodeXid, Title: "the driver reported an error"},
	{Code: CodeECC, Title: "memory errors that can't be corrected"},
	{Code: CodeCorrected, Title: "memory errors that were corrected", DependsOn: []string{CodeECC}},
	{Code: CodeRemap, Title: "bad memory rows", DependsOn: []string{CodeLost}},
	{Code: CodeNVLinkDown, Title: "an NVLink is down", DependsOn: []string{CodeLost}},
	{Code: CodeNVLink, Title: "NVLinks make errors", DependsOn: []string{CodeNVLinkDown}},
	{Code: CodeThrottled, Title: "a GPU is throttled", DependsOn: []string{CodeLost}},
}

// Declare makes what a Monitor tells conditions of the process. The function that it returns takes its events.
func Declare(conditions *health.Conditions) (func(Event), error) {
	warnables := map[string]*health.Warnable{}
	for _, d := range declarations {
		d.Severity = health.Warning
		w, err := conditions.Declare(d)
		if err != nil {
			return nil, err
		}
		warnables[d.Code] = w
	}
	return func(e Event) {
		c := e.Condition
		subject := ""
		if c.GPU != "" {
			subject = "GPU " + c.GPU
		}
		if c.Code == CodeXid { // several may be open
			subject += fmt.Sprintf(", Xid %d", c.Xid)
		}
		if e.Type == semconv.EventGPURecovered {
			warnables[c.Code].Clear(subject)
			return
		}
		severity := health.Warning
		if c.Severity == Fatal {
			severity = health.Critical
		}
		warnables[c.Code].Set(health.Finding{Subject: subject, Text: c.Text, Advice: c.Advice, Severity: severity})
	}, nil
}
