//go:build linux && cgo

package queue

import (
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// measureEvery is the interval at which an operation's time on the GPU is measured: it costs two events on the stream.
const measureEvery = int64(30 * time.Second)

// measuring measures an operation's time on the GPU now and then: calls only know the time of their launch.
type measuring struct {
	from, to *cuda.Event
	last     int64 // launch time of the last measured operation
	begun    bool  // from is on the stream
	op       tape.Launched
	launched atomic.Bool // op is launched, with to behind it: the watcher continues
}

func (m *measuring) open(c *cuda.Context) (err error) {
	if m.from, err = c.Event(true); err == nil {
		m.to, err = c.Event(true)
	}
	return err
}

// begin is called before an operation is put on a stream that isn't being captured.
func (m *measuring) begin(t *tape.CommWriter, s *cuda.Stream) {
	at := t.Began()
	m.begun = at != 0 && !m.launched.Load() && (m.last == 0 || at-m.last >= measureEvery) && m.from.Record(s) == nil
	if m.begun {
		m.last = at
	}
}

// end is called after the operation was put on the stream.
func (m *measuring) end(t *tape.CommWriter, s *cuda.Stream) {
	if m.begun && m.to.Record(s) == nil {
		m.op = t.Last()
		m.launched.Store(true)
	}
	m.begun = false
}

// look writes the measured time onto the tape. It belongs to the goroutine that asks the driver.
func (m *measuring) look(t *tape.CommWriter) {
	if !m.launched.Load() || m.to.Query() != nil {
		return
	}
	if ms, err := m.from.Elapsed(m.to); err == nil {
		t.Device(m.op, time.Duration(float64(ms)*float64(time.Millisecond)))
	}
	m.launched.Store(false)
}

func (m *measuring) free() {
	for _, e := range []*cuda.Event{m.from, m.to} {
		if e != nil {
			_ = e.Destroy()
		}
	}
}
