package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Times of a Monitor.
const (
	// MaxAge is how long a reading is reused.
	MaxAge = time.Second
	// Deadline is how long a call of NVML may take.
	Deadline = 3 * time.Second
	// openDeadline is how long NVML may take to start: without persistence mode the driver starts the GPUs first.
	openDeadline = 30 * time.Second
	// waitTime bounds one wait for events, and so how long Stop takes.
	waitTime = 250 * time.Millisecond
	// firstRetry is the first pause before opening the driver, or making an event set, again; it doubles up to
	// lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// Config says what a Monitor watches. The zero Config watches the process's own GPUs.
type Config struct {
	// All watches all GPUs of the host, whatever CUDA_VISIBLE_DEVICES says.
	All bool
	// OnEvent gets the events, one at a time and in order. It may be called from any goroutine, and should be quick, as
	// later events wait. nil ignores events.
	OnEvent func(Event)
	// Logger gets events and errors; nil is none.
	Logger *slog.Logger
}

// Event is a change of a condition.
type Event struct {
	Type      string // one of semconv's EventGPU… types
	Time      time.Time
	Condition Condition // that opened or became critical, or, for EventGPURecovered, ended
}

// Monitor watches the GPUs of a process. It is safe for concurrent use, and never waits for NVML longer than Deadline.
type Monitor struct {
	cfg     Config
	driver  driver
	visible visibility
	log     *slog.Logger

	started sync.Once
	stopped sync.Once
	stop    chan struct{}
	done    chan struct{} // closed when NVML is not in use any more

	mu        sync.Mutex
	status    string
	gpus      []*gpuState // empty while there is no driver
	open      map[key]*Condition
	calls     int           // of NVML that are overdue
	reading   chan struct{} // closed when the reading in progress is complete; nil if there is none
	readBegan time.Time
	readAt    time.Time // when the last reading was complete
	stale     bool      // an event has come since then
	queue     []Event   // for OnEvent
	telling   sync.Mutex
}

// gpuState is the state of a GPU. Monitor.mu protects all fields but dev.
type gpuState struct {
	dev   device
	id    identity
	last  *reading // nil until the first reading, and while the GPU is lost
	first *reading
	xids  map[uint64]uint64
}

// New makes a Monitor, which doesn't use the driver before Start.
func New(cfg Config) *Monitor { return newMonitor(cfg, newDriver()) }

func newMonitor(cfg Config, d driver) *Monitor {
	m := &Monitor{
		cfg: cfg, driver: d, visible: visibility{all: true}, status: "not started", open: map[key]*Condition{},
		log:  cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if !cfg.All {
		m.visible = parseVisible(os.LookupEnv("CUDA_VISIBLE_DEVICES"))
	}
	return m
}

// Start begins to watch. It doesn't wait and never fails: a machine without a driver is fine.
func (m *Monitor) Start() { m.started.Do(func() { go m.run() }) }

// Stop ends the watch and closes NVML, which takes up to a quarter of a second for each Monitor of the process. If NVML
// hangs, it returns an error when ctx ends, and one goroutine stays in NVML. A second Stop only waits.
func (m *Monitor) Stop(ctx context.Context) error {
	m.started.Do(func() { close(m.done) })
	m.stopped.Do(func() { close(m.stop) })
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("NVML does not answer: %w", context.Cause(ctx))
	}
}

func (m *Monitor) run() {
	defer close(m.done)
	if !m.visible.all && len(m.visible.devices) == 0 {
		m.mu.Lock()
		m.say(errNoDriver.Error() + ": CUDA_VISIBLE_DEVICES leaves none")
		m.mu.Unlock()
		<-m.stop
		return
	}
	for retry := firstRetry; ; retry = min(2*retry, lastRetry) {
		if m.begin() {
			m.watch()
			m.end()
			return
		}
		if !m.pause(retry) {
			return
		}
	}
}

// pause waits, and tells whether the Monitor is still running.
func (m *Monitor) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-m.stop:
		return false
	}
}

// begin opens the driver and finds the GPUs.
func (m *Monitor) begin() bool {
	var devices []device
	var err error
	m.guard("the start of NVML", openDeadline, func() {
		if err = m.driver.open(); err != nil {
			return
		}
		if devices, err = m.driver.devices(m.visible); err == nil && len(devices) == 0 {
			err = fmt.Errorf("%w: the NVIDIA driver has none, or none that CUDA_VISIBLE_DEVICES names", errNoDriver)
		}
		if err != nil {
			m.driver.close()
		}
	})
	defer m.tell()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !errors.Is(err, errNoDriver) {
		m.say("the NVIDIA driver can't be used: " + err.Error())
		m.raise(Condition{Code: CodeUnreadable, Text: m.status})
		return false
	}
	m.clear(key{code: CodeUnreadable})
	if err != nil {
		m.say(err.Error())
		return false
	}
	for _, dev := range devices {
		m.gpus = append(m.gpus, &gpuState{dev: dev, id: dev.identity(), xids: map[uint64]uint64{}})
	}
	m.say(fmt.Sprintf("GPUs: %d", len(devices)))
	return true
}

// say sets the status, and logs it if it is new.
func (m *Monitor) say(status string) {
	if m.status != status {
		m.status = status
		m.log.Info(status)
	}
}

func (m *Monitor) end() {
	m.mu.Lock()
	m.gpus = nil // no reading begins any more
	reading := m.reading
	m.mu.Unlock()
	if reading != nil {
		<-reading
	}
	m.driver.close()
}

// guard makes a call that may hang. While it takes longer than limit, CodeHung is open.
func (m *Monitor) guard(what string, limit time.Duration, call func()) {
	over, overdue := false, false // under mu
	timer := time.AfterFunc(limit, func() {
		defer m.tell()
		m.mu.Lock()
		defer m.mu.Unlock()
		if over {
			return
		}
		overdue = true
		m.calls++
		m.raise(Condition{
			Code: CodeHung, Text: fmt.Sprintf("NVML does not answer: %s takes longer than %v", what, limit),
		})
	})
	call()
	timer.Stop()
	defer m.tell()
	m.mu.Lock()
	defer m.mu.Unlock()
	over = true
	if overdue {
		m.calls--
	}
	if m.calls == 0 {
		m.clear(key{code: CodeHung})
	}
}

// tell passes the queued events on. It is called without mu.
func (m *Monitor) tell() {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	events := m.queue
	m.queue = nil
	m.mu.Unlock()
	for _, e := range events {
		level := slog.LevelWarn
		if e.Type == semconv.EventGPURecovered {
			level = slog.LevelInfo
		}
		m.log.LogAttrs(context.Background(), level, e.Condition.Text, slog.String(string(semconv.EventType), e.Type))
		if m.cfg.OnEvent != nil {
			m.cfg.OnEvent(e)
		}
	}
}
