package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
)

// watch waits for events until the Monitor is stopped. If an event set fails, as when one of its GPUs is lost, watch
// makes a new one of the GPUs that still answer.
func (m *Monitor) watch() {
	m.read() // for the current conditions and the first values of counters
	for retry := firstRetry; ; retry = min(2*retry, lastRetry) {
		began := time.Now()
		err := m.await()
		if err == nil {
			return
		}
		m.mu.Lock()
		m.log.Warn("GPU events stopped; they will be requested again", "error", err, "in", retry)
		m.mu.Unlock()
		m.read() // to find the GPU that is lost
		if time.Since(began) > lastRetry {
			retry = firstRetry
		}
		if !m.pause(retry) {
			return
		}
	}
}

// await makes a set of events and waits for them. It returns nil when the Monitor is stopped.
func (m *Monitor) await() error {
	var set events
	var err error
	registered := 0
	m.inTurn("the registration of events", Deadline, func() { set, registered, err = m.register() })
	if err != nil {
		return err
	}
	defer m.inTurn("the end of events", Deadline, set.free)
	if registered == 0 {
		<-m.stop // nothing to wait for
		return nil
	}
	for {
		select {
		case <-m.stop:
			return nil
		default:
		}
		var e event
		m.inTurn("a wait for events", waitTime+Deadline, func() { e, err = set.wait(waitTime) })
		switch {
		case err == nil:
			m.happened(set, e)
		case errors.Is(err, errTimeout):
			m.Snapshot() // closes the conditions that have passed
		default:
			return err
		}
	}
}

// inTurn is guard for a call about events.
func (m *Monitor) inTurn(what string, limit time.Duration, call func()) {
	defer m.driver.turn()()
	m.guard(what, limit, call)
}

// register makes a set of all GPUs that are not lost, and returns their number.
func (m *Monitor) register() (events, int, error) {
	set, err := m.driver.newEvents()
	if err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	var devices []device
	for _, g := range m.gpus {
		if m.open[g.key(CodeLost)] == nil {
			devices = append(devices, g.dev)
		}
	}
	m.mu.Unlock()
	registered := 0
	for _, dev := range devices {
		if err := set.add(dev); err != nil {
			m.log.Warn("a GPU has no events: its Xids will not be seen", "gpu", dev.identity().label, "error", err)
			continue
		}
		registered++
	}
	return set, registered, nil
}

// happened raises the conditions of an event for each affected GPU: a process may have several MIG devices of one GPU.
func (m *Monitor) happened(set events, e event) {
	defer m.tell()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale = true
	for _, g := range m.gpus {
		if !set.about(e, g.dev) {
			continue
		}
		switch e.code {
		case CodeXid:
			m.xid(g, LookupXid(e.xid))
		case CodeECC:
			m.raise(g.uncorrected())
		case CodeCorrected:
			m.raise(g.condition(CodeCorrected, "memory errors were corrected"))
		}
	}
}

// xid counts an Xid error and opens its condition, which stays open if the GPU no longer works.
func (m *Monitor) xid(g *gpuState, x Xid) {
	g.xids[x.Number]++
	c := g.condition(CodeXid, fmt.Sprintf("the driver reported %s, which puts %s out of service", x, x.Scope))
	c.Xid, c.Advice = x.Number, x.Advice
	if x.Scope == ScopeGPU {
		c.Severity = bus.Critical
	}
	m.raise(c)
}

// key is the key of the GPU's condition with a code.
func (g *gpuState) key(code string) key { return key{code, g.id.label, 0} }

// condition is a condition of this GPU; text follows "GPU 3: ".
func (g *gpuState) condition(code, text string) Condition {
	return Condition{Code: code, GPU: g.id.label, UUID: g.id.uuid, Text: "GPU " + g.id.label + ": " + text}
}

func (g *gpuState) uncorrected() Condition {
	return g.condition(CodeECC,
		"its memory had errors that could not be corrected; results since then can't be trusted")
}
