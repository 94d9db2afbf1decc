package gpu

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDriver is a driver whose GPUs, events and hangs a test chooses.
type fakeDriver struct {
	mu      sync.Mutex
	missing error // what open says
	gpus    []*fakeDevice
	sets    [][]string // the labels of each set's GPUs

	happen         chan event
	broken         chan error
	hang           chan struct{} // if not nil, open and wait return when it is closed
	opened, closed atomic.Int32
}

func newFake(gpus ...*fakeDevice) *fakeDriver {
	return &fakeDriver{gpus: gpus}
}

func (d *fakeDriver) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *fakeDriver) maybeHang() {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

func (d *fakeDriver) open() error {
	d.opened.Add(1)
	d.maybeHang()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missing
}

func (d *fakeDriver) turn() func() { return func() {} }

func (d *fakeDriver) close() { d.closed.Add(1) }

func (d *fakeDriver) devices(v visibility) ([]device, error) {
	var all []device
	for _, g := range d.gpus {
		if v.all || slices.Contains(v.devices, g.id.label) {
			all = append(all, g)
		}
	}
	return all, nil
}

func (d *fakeDriver) newEvents() (events, error) { return &fakeEvents{driver: d}, nil }

type fakeEvents struct {
	driver *fakeDriver
	labels []string
	once   sync.Once
}

func (s *fakeEvents) add(dev device) error {
	s.labels = append(s.labels, dev.identity().label)
	return nil
}

func (s *fakeEvents) wait(timeout time.Duration) (event, error) {
	s.once.Do(func() { s.driver.set(func() { s.driver.sets = append(s.driver.sets, s.labels) }) })
	s.driver.maybeHang()
	select {
	case e := <-s.driver.happen:
		return e, nil
	case err := <-s.driver.broken:
		return event{}, err
	case <-time.After(timeout):
		return event{}, errTimeout
	}
}

func (s *fakeEvents) about(e event, dev device) bool {
	id := dev.identity()
	return e.device == id.uuid && (id.instance == nil || e.instance == wholeGPU || e.instance == *id.instance)
}

func (s *fakeEvents) free() {}

// fakeDevice returns what a test chooses. Its events carry its UUID.
type fakeDevice struct {
	id    identity
	mu    sync.Mutex
	tells reading
	err   error
	hang  chan struct{} // if not nil, read returns when it is closed
	reads atomic.Int32
}

func fakeGPU(label string) *fakeDevice {
	return &fakeDevice{id: identity{label: label, uuid: "GPU-" + label, name: "a GPU"}, tells: reading{
		Memory: &Memory{Used: 1 << 30, Total: 80 << 30}, ECC: &ECC{Corrected: 2}, NVLink: &NVLink{
			Up:     []int{0, 1},
			Errors: 5,
		}, Throttled: []string{},
	}}
}

func (g *fakeDevice) identity() identity { return g.id }

func (g *fakeDevice) set(change func(*fakeDevice)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

func (g *fakeDevice) read() (reading, error) {
	g.reads.Add(1)
	g.mu.Lock()
	hang := g.hang
	g.mu.Unlock()
	if hang != nil {
		<-hang
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tells, g.err
}

// watched runs test with a started Monitor of d in virtual time, and stops it.
func watched(t *testing.T, d *fakeDriver, test func(t *testing.T, m *Monitor, told *told)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d.happen, d.broken = make(chan event), make(chan error) // of this bubble
		events := &told{}
		m := newMonitor(Config{All: true, OnEvent: events.add}, d)
		m.Start()
		synctest.Wait()
		test(t, m, events)
		if err := m.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if d.opened.Load() > 0 && d.missing == nil && d.closed.Load() == 0 {
			t.Error("the driver was not closed")
		}
	})
}

// told collects a Monitor's events.
type told struct {
	mu     sync.Mutex
	events []Event
}

func (o *told) add(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// take returns the events since the last take, each as its type and code.
func (o *told) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, e := range o.events {
		all = append(all, e.Type[len("dev.carillon."):]+" "+e.Condition.Code+" "+e.Condition.GPU)
	}
	o.events = nil
	return all
}
