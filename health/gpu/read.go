package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
)

// GPU is the state of a GPU. Values that it doesn't have are nil.
type GPU struct {
	Label   string            `json:"gpu"` // as the label "gpu" of metrics
	UUID    string            `json:"uuid"`
	Name    string            `json:"name"`
	Xids    map[uint64]uint64 `json:"xids,omitempty"` // how often each Xid error came since Start
	Lost    bool              `json:"lost,omitempty"` // it doesn't answer, and has no reading
	reading                   // empty until it was read
}

// Snapshot is the state of all GPUs.
type Snapshot struct {
	Status     string      `json:"status"` // "GPUs: 8", "no GPU: …"
	Read       time.Time   `json:"read"`   // when the GPUs were read; zero if never
	GPUs       []GPU       `json:"gpus"`
	Conditions []Condition `json:"conditions"`
}

// Read reads the GPUs, unless they were read within MaxAge and no event came since, and returns their state. Concurrent
// calls share a reading. It waits until ctx ends, for at most Deadline, and then returns the last state.
func (m *Monitor) Read(ctx context.Context) Snapshot {
	m.mu.Lock()
	done, began := m.reading, m.readBegan
	if done == nil && len(m.gpus) > 0 && (m.stale || time.Since(m.readAt) >= MaxAge) {
		done, began = m.beginRead(), m.readBegan
	}
	m.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-time.After(time.Until(began.Add(Deadline))):
		case <-ctx.Done():
		}
	}
	return m.Snapshot()
}

// Snapshot is the last known state. It doesn't call the driver, and doesn't wait.
func (m *Monitor) Snapshot() Snapshot {
	defer m.tell()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{Status: m.status, Read: m.readAt, GPUs: make([]GPU, 0, len(m.gpus)), Conditions: m.list()}
	for _, g := range m.gpus {
		one := GPU{
			Label: g.id.label, UUID: g.id.uuid, Name: g.id.name, Xids: maps.Clone(g.xids),
			Lost: m.open[g.key(CodeLost)] != nil,
		}
		if g.last != nil {
			one.reading = *g.last
		}
		s.GPUs = append(s.GPUs, one)
	}
	return s
}

// read is Read for the Monitor itself, without a deadline.
func (m *Monitor) read() {
	m.mu.Lock()
	done := m.reading
	if done == nil {
		done = m.beginRead()
	}
	m.mu.Unlock()
	select {
	case <-done:
	case <-m.stop:
	}
}

// beginRead reads all GPUs in a goroutine, which may hang in NVML. It is called with mu held, and only if no reading is
// in progress.
func (m *Monitor) beginRead() chan struct{} {
	done := make(chan struct{})
	m.reading, m.readBegan, m.stale = done, time.Now(), false
	gpus := m.gpus
	go func() {
		defer close(done)
		readings, errs := make([]reading, len(gpus)), make([]error, len(gpus))
		m.guard("a reading of the GPUs", Deadline, func() {
			for i, g := range gpus {
				readings[i], errs[i] = g.dev.read()
			}
		})
		defer m.tell()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.reading, m.readAt = nil, time.Now()
		for i, g := range gpus {
			m.judge(g, readings[i], errs[i])
		}
	}()
	return done
}

// judge stores a GPU's reading, and opens and closes its conditions.
func (m *Monitor) judge(g *gpuState, r reading, err error) {
	if err != nil {
		c := g.condition(CodeLost, "it has fallen off the bus and doesn't answer any more")
		if errors.Is(err, errReset) {
			c = g.condition(CodeLost, "it needs a reset and does nothing before")
			c.Advice = adviseReset
		}
		g.last = nil
		m.raise(c)
		return
	}
	m.clear(g.key(CodeLost))
	g.first = cmp.Or(g.first, &r)
	before := cmp.Or(g.last, g.first) // the first if it was lost in between
	g.last = &r
	m.judgeMemory(g, before, &r)
	m.judgeLinks(g, before, &r)
	m.judgeClocks(g, &r)
}

func (m *Monitor) judgeMemory(g *gpuState, before, r *reading) {
	if r.ECC != nil && before.ECC != nil && r.ECC.Uncorrected > before.ECC.Uncorrected {
		m.raise(g.uncorrected())
	}
	switch {
	case r.Rows == nil:
	case r.Rows.Failed:
		c := g.condition(CodeRemap, "bad memory could not be replaced by spare memory")
		c.Severity, c.Advice = bus.Critical, "have the GPU replaced"
		m.raise(c)
	case r.Rows.Pending:
		m.raise(g.condition(CodeRemap, "bad memory is to be replaced by spare memory"))
	default:
		m.clear(g.key(CodeRemap))
	}
}

// judgeLinks compares the links that are up with those of the first reading, and error counts with those of the last
// reading, as a link's counters are reset when it comes up.
func (m *Monitor) judgeLinks(g *gpuState, before, r *reading) {
	if r.NVLink == nil || g.first.NVLink == nil {
		return
	}
	var down []string
	for _, link := range g.first.NVLink.Up {
		if !slices.Contains(r.NVLink.Up, link) {
			down = append(down, fmt.Sprint(link))
		}
	}
	if len(down) > 0 {
		m.raise(g.condition(CodeNVLinkDown, "NVLinks that were up are down: "+strings.Join(down, ", ")))
	} else {
		m.clear(g.key(CodeNVLinkDown))
	}
	if before.NVLink != nil && r.NVLink.Errors > before.NVLink.Errors {
		m.raise(g.condition(CodeNVLink, fmt.Sprintf("its NVLinks made %d errors; transfers are repeated and slow",
			r.NVLink.Errors-before.NVLink.Errors)))
	}
}

// judgeClocks ignores the power limit, which is normal under full load.
func (m *Monitor) judgeClocks(g *gpuState, r *reading) {
	reasons := slices.DeleteFunc(slices.Clone(r.Throttled), func(s string) bool { return s == powerCap })
	if len(reasons) > 0 {
		text := "it is throttled: " + strings.Join(reasons, ", ")
		if r.Temperature != nil {
			text += fmt.Sprintf(", at %d °C", *r.Temperature)
		}
		m.raise(g.condition(CodeThrottled, text))
	} else if r.Throttled != nil {
		m.clear(g.key(CodeThrottled))
	}
}
