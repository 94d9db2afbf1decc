package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Codes of conditions.
const (
	// CodeXid: the driver reported an Xid error. If a process caused it, the condition ends after Remembered.
	CodeXid        = "gpu_xid"
	CodeECC        = "gpu_ecc"         // uncorrected memory errors since the Monitor began
	CodeCorrected  = "gpu_ecc_fixed"   // corrected memory errors; it ends after Remembered
	CodeRemap      = "gpu_row_remap"   // memory rows wait to be replaced, or can't be
	CodeNVLinkDown = "gpu_nvlink_down" // an NVLink that was up is down
	CodeNVLink     = "gpu_nvlink"      // NVLinks had errors; it ends after Remembered
	CodeThrottled  = "gpu_throttled"   // the GPU is throttled, not by its normal power limit
	CodeLost       = "gpu_lost"        // the GPU doesn't answer any more: off the bus, or in need of a reset
	CodeHung       = "gpu_nvml_hung"   // NVML doesn't answer
	CodeUnreadable = "gpu_nvml"        // there is a driver, but it can't be used
)

// Remembered is how long a condition for which NVML reports no end lasts after its last event.
const Remembered = 10 * time.Minute

// Condition is something that is wrong with a GPU, or with NVML.
type Condition struct {
	Code string `json:"code"`
	// Severity is bus.Critical if the GPU should not be used, or its results can't be trusted, and bus.Warning if it
	// works, more slowly or with less redundancy.
	Severity bus.Severity `json:"severity"`
	GPU      string       `json:"gpu,omitempty"`  // the label of the GPU; empty if it is about NVML
	UUID     string       `json:"uuid,omitempty"` // the GPU's
	Xid      uint64       `json:"xid,omitempty"`  // the number, of CodeXid
	Text     string       `json:"text"`           // what is wrong, in a sentence
	Advice   string       `json:"advice,omitempty"`
	Since    time.Time    `json:"since"` // of the first event
	Last     time.Time    `json:"last"`  // of the last event
	Count    uint64       `json:"count"` // of events
}

// rule has the properties of a code's conditions. A condition may override severity and advice.
type rule struct {
	code, title string
	event       string // the type of its events
	severity    bus.Severity
	passes      bool   // NVML reports no end: unless it is critical, it ends after Remembered
	symptomOf   string // the code that it depends on
	advice      string
}

var rules = []rule{
	{CodeUnreadable, "the NVIDIA driver can't be used", semconv.EventGPULost, bus.Warning, false, "", adviseDriver},
	{CodeHung, "NVML doesn't answer", semconv.EventGPULost, bus.Warning, false, "", adviseKernelLog},
	{CodeLost, "a GPU doesn't answer", semconv.EventGPULost, bus.Critical, false, "", adviseCycle},
	{CodeXid, "the driver reported an error", semconv.EventGPUXid, bus.Warning, true, "", ""},
	{CodeECC, "uncorrected memory errors", semconv.EventGPUECC, bus.Critical, false, "", adviseReset},
	{CodeCorrected, "corrected memory errors", semconv.EventGPUECC, bus.Warning, true, CodeECC, adviseCorrected},
	{CodeRemap, "bad memory rows", semconv.EventGPUECC, bus.Warning, false, CodeLost, adviseLater},
	{CodeNVLinkDown, "an NVLink is down", semconv.EventGPUNVLink, bus.Critical, false, CodeLost, adviseLink},
	{CodeNVLink, "NVLinks make errors", semconv.EventGPUNVLink, bus.Warning, true, CodeNVLinkDown, adviseLink},
	{CodeThrottled, "a GPU is throttled", semconv.EventGPUThrottled, bus.Warning, false, CodeLost, adviseCooling},
}

func (c *Condition) rule() *rule {
	return &rules[slices.IndexFunc(rules, func(r rule) bool { return r.code == c.Code })]
}

// key identifies a condition.
type key struct {
	code, gpu string
	xid       uint64
}

func (c *Condition) key() key { return key{c.Code, c.GPU, c.Xid} }

// raise opens a condition or counts it again. It queues an event if the condition is new or became critical.
func (m *Monitor) raise(c Condition) {
	r, old := c.rule(), m.open[c.key()]
	c.Severity, c.Advice = cmp.Or(c.Severity, r.severity), cmp.Or(c.Advice, r.advice)
	c.Since, c.Last, c.Count = time.Now(), time.Now(), 1
	if old != nil {
		c.Since, c.Count = old.Since, old.Count+1
	}
	m.open[c.key()] = &c
	if old == nil || c.Severity > old.Severity {
		m.queue = append(m.queue, Event{Type: r.event, Time: c.Last, Condition: c})
	}
}

// clear closes a condition. It queues an event if the condition was open.
func (m *Monitor) clear(k key) {
	if c := m.open[k]; c != nil {
		delete(m.open, k)
		m.queue = append(m.queue, Event{Type: semconv.EventGPURecovered, Time: time.Now(), Condition: *c})
	}
}

// list closes the conditions that have passed, and returns the open ones: the worst first, then by GPU, code and Xid.
func (m *Monitor) list() []Condition {
	all := make([]Condition, 0, len(m.open))
	for _, c := range m.open {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Xid, b.Xid))
	})
	return slices.DeleteFunc(all, func(c Condition) bool {
		over := c.rule().passes && c.Severity < bus.Critical && time.Since(c.Last) >= Remembered
		if over {
			m.clear(c.key())
		}
		return over
	})
}

// Declare declares a Monitor's conditions as conditions of the process, and returns a function that takes its events.
// No condition makes a process not ready: that is left to a check, which reads the GPUs.
func Declare(conditions *health.Conditions) (func(Event), error) {
	warnables := map[string]*health.Warnable{}
	for _, r := range rules {
		d := health.Declaration{Code: r.code, Title: r.title}
		if r.symptomOf != "" {
			d.DependsOn = []string{r.symptomOf}
		}
		w, err := conditions.Declare(d)
		if err != nil {
			return nil, err
		}
		warnables[r.code] = w
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
		warnables[c.Code].Set(health.Finding{Subject: subject, Text: c.Text, Advice: c.Advice, Severity: c.Severity})
	}, nil
}
