package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/telemetry/eventlog"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// Telemetry reads one process's tape: one follower feeds spans, metrics and the other observers.
type Telemetry struct {
	settings  *settings
	tape      recorder     // nil: nothing to read
	own       *tape.Writer // nil: the tape is another process's
	self      mesh.Member  // the process
	trace     *trace.Projector
	registry  *prometheus.Registry // Carillon's metrics
	gatherer  prometheus.Gatherer  // the metrics at /metrics and those pushed
	exported  trace.Config         // describes the process and its tape, for all exporters
	push      *metric.Push         // nil: metrics are only pulled
	follower  *tape.Follower
	header    atomic.Pointer[tape.Header] // as it was when events were read last
	counting  sync.Mutex                  // guards the next two: the last values that could be read
	counted   []tape.Tally
	profiler  tape.Unexpected
	observing sync.Mutex     // held while observers are called, or the process is read
	process   *model.Process // the model of what it does
	step      model.Step     // the last one
	observers []Observer
	ras       *JobRAS // nil: there is none
	stalls    *stalls // nil: nothing looks for any
	seen      atomic.Pointer[seen]
	busy      *busy
	looking   task // for stalls, and at busy
	started   bool // before anything else may run at the same time
	done      chan struct{}
	failed    error // written before done is closed
	left      bool  // written likewise: the process died, or goes on without this reader
}

// recorder is a tape on which its telemetry makes notes: the process's *tape.Writer, or another process's *tape.Kept.
type recorder interface {
	Path() string
	Delivered(until int64)
	Exporter(number uint64)
	Resumed(paused, since int64, starved time.Duration)
}

// batch is how many events are read at a time.
const batch = 256

// newTelemetry makes the readers of a process's tape, without starting them. A nil tape has nothing to read.
func newTelemetry(s *settings, w recorder, self mesh.Member, r *JobRAS) (*Telemetry, error) {
	t := &Telemetry{settings: s, tape: w, self: self, registry: prometheus.NewRegistry(), done: make(chan struct{})}
	t.own, _ = w.(*tape.Writer)
	t.seen.Store(&seen{})
	t.gatherer = t.registry
	if s.Registerer == nil { // a program's own registry has these metrics already
		t.gatherer = prometheus.Gatherers{t.registry, withProcess()}
	}
	if w == nil {
		close(t.done)
		return t, nil
	}
	var err error
	if t.follower, err = tape.Follow(context.Background(), w.Path(), s.tick); err != nil {
		return nil, fmt.Errorf("read the tape back: %w", err)
	}
	used := t.follower.Process().CPU
	if t.own != nil {
		used = processorTime
	}
	t.busy = newBusy(used, s.StallThreshold)
	if err := t.observeWith(s, r); err != nil {
		return nil, errors.Join(err, t.follower.Close())
	}
	return t, nil
}

// observeWith makes the observers.
func (t *Telemetry) observeWith(s *settings, r *JobRAS) (err error) {
	header := t.readHeader()
	t.process, t.ras = model.New(s.limits()), r
	t.exported = trace.Config{
		Process: t.process,
		Version: Version(), Job: s.World.Job, Host: header.Host, PID: header.PID, Rank: s.World.Rank,
		Wall: func(mono int64) time.Time { return t.header.Load().Wall(mono) },
		Now:  tape.Now, Delivered: t.tape.Delivered, Logger: s.Log, Slow: s.kept(), Finding: r.Finding,
		AlgorithmName: func(a uint8) string { return algo.Algorithm(a).String() },
		Resource:      s.Resource, Outage: s.outage, Processors: s.SpanProcessors, Exporters: s.SpanExporters,
		OwnExport: len(s.SpanProcessors)+len(s.SpanExporters) > 0,
	}
	if t.trace, err = trace.New(context.Background(), t.exported); err != nil {
		return err
	}
	if t.trace.Exports() {
		t.tape.Exporter(otlp.Fingerprint())
	}
	metrics, err := metric.NewCollector(metric.Config{
		Slots: t.follower.Slots, Tallies: t.tallies, Devices: t.devices, Now: tape.Now, Missed: t.follower.Missed,
		Version: Version(), Span: t.trace.Emitted,
		Places: metric.Places{Communicators: header.Slots, Tallies: header.Tallies},
		Spans:  t.trace.Stats, Unexpected: t.unexpected, Logs: s.sink.Lost,
	})
	if err != nil {
		return err
	}
	refused := slog.LevelInfo
	if t.own == nil {
		refused = slog.LevelWarn // the program calls NCCL
	}
	lines, err := eventlog.New(eventlog.Config{
		Handler: s.events(), Wall: t.exported.Wall, SpanOf: t.trace.SpanOf, SpanOfStall: t.trace.SpanOfStall,
		AlgorithmName: t.exported.AlgorithmName, Operations: s.logsOperations(),
		JobRank: s.World.Rank < 0, Version: Version(), VersionLevel: s.sink.VersionLevel(), RefusedLevel: refused,
	})
	if err != nil {
		return err
	}
	t.registry.MustRegister(metrics)
	t.observers = []Observer{ // the others ask which span the trace made of the event
		{Step: t.trace.Observe, Stall: t.trace.ObserveStall},
		{Step: metrics.Observe, Stall: metrics.ObserveStall},
		{Step: lines.Observe, Stall: lines.ObserveStall},
	}
	if r != nil {
		t.registry.MustRegister(collector(r.collect))
	}
	t.observers = append(t.observers, s.Observers...)
	t.stalls = newStalls(s, t.process)
	return nil
}

// Registry has Carillon's metrics of the process, and no others; /metrics also shows those of Go and of the process, if
// Config.Registerer is nil.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// register adds Carillon's metrics to the program's registry, once all of them exist.
func (t *Telemetry) register() error {
	if t.settings.Registerer == nil {
		return nil
	}
	if err := t.settings.Registerer.Register(t.registry); err != nil {
		return fmt.Errorf("register Carillon's metrics with Config.Registerer: %w (prometheus.WrapRegistererWith "+
			"tells several nodes of a process apart)", err)
	}
	return nil
}

// unregister undoes register.
func (t *Telemetry) unregister() {
	if t != nil && t.settings.Registerer != nil {
		t.settings.Registerer.Unregister(t.registry)
	}
}

// Traces are the traces that the process keeps for its health endpoint; nil when the tape is off.
func (t *Telemetry) Traces() *trace.Store {
	if t.trace == nil {
		return nil
	}
	return t.trace.Store()
}

// Slots are the live communicators of this process.
func (t *Telemetry) Slots() []tape.Slot {
	if t.follower == nil {
		return nil
	}
	return t.follower.Slots()
}

// tallies are the tape's tallies; those of the last reading once the follower is closed.
func (t *Telemetry) tallies() []tape.Tally {
	t.counting.Lock()
	defer t.counting.Unlock()
	if tallies, err := t.follower.AppendTallies(nil); err == nil || len(tallies) > 0 {
		t.counted = tallies // tallies that can't be read are left out
	}
	return t.counted
}

// readHeader keeps the tape's header for Wall: its pair of clocks changes only with records of acts.
func (t *Telemetry) readHeader() *tape.Header {
	header := t.follower.Header()
	t.header.Store(&header)
	return &header
}

// unexpected are the unexpected calls to the process's profiler plug-in, likewise.
func (t *Telemetry) unexpected() tape.Unexpected {
	t.counting.Lock()
	defer t.counting.Unlock()
	if now := t.follower.Header().Unexpected; now != (tape.Unexpected{}) {
		t.profiler = now
	}
	return t.profiler
}

// closeFollower ends the reading of the tape. The counters keep their values, to be read after Stop.
func (t *Telemetry) closeFollower() error {
	t.tallies()
	return t.follower.Close()
}

// start begins to follow. A second call does nothing.
func (t *Telemetry) start() {
	if t.tape == nil || t.started {
		return
	}
	t.started = true
	var err error
	if t.settings.Registerer == nil { // else the program sends its registry's metrics
		t.push, err = metric.NewPush(context.Background(), metric.PushConfig{
			Gatherer: t.gatherer, Resource: trace.Resource(context.Background(), t.exported), Logger: t.settings.Log,
		})
		if err != nil { // they are at /metrics still
			t.settings.Log.Warn("metrics are not sent", "error", err)
		}
	}
	go func() {
		defer close(t.done)
		t.failed = t.follow()
	}()
	t.looking.start()
	if t.ras != nil {
		t.looking.also(t.busy.run)
	}
	if t.stalls != nil {
		t.own.Saw(tape.Now())
		t.looking.also(t.lookForStalls)
	}
}

// note makes the process's note from its tape, and from what is known about devices.
func (t *Telemetry) note(devices map[uint32]model.Device) verdict.Note {
	n := agent.NoteOf(t.self, t.follower.Reader, t.settings.limits(), tape.Now(), devices)
	n.Where = t.busy.String()
	return n
}

// givenUp logs, once, that the tape can't be read any more. The job goes on: its operations don't need the tape.
const givenUp = "the tape is given up: the process goes on, and nothing shows any more what its communicators do"

// follow feeds the observers until the tape is closed.
func (t *Telemetry) follow() error {
	events := make([]tape.Event, batch)
	for {
		n, err := t.follower.Read(context.Background(), events)
		if n > 0 {
			t.readHeader()
			t.observe(events[:n])
		}
		switch {
		case errors.Is(err, tape.ErrClosed):
			return nil
		case errors.Is(err, tape.ErrStopped), t.own == nil && errors.Is(err, tape.ErrDied):
			t.left = t.own == nil // else stop had no time, and returns that
			return nil
		case err != nil:
			t.settings.Log.Error(givenUp, "error", err)
			return err
		}
	}
}

func (t *Telemetry) observe(events []tape.Event) {
	t.observing.Lock()
	defer t.observing.Unlock()
	for i := range events {
		t.step = t.process.Apply(&events[i])
		for _, o := range t.observers {
			if o.Step != nil {
				o.Step(&t.step)
			}
		}
		if t.step.Failed && t.ras != nil {
			t.ras.agent.Failed(t.self, &t.step)
		}
	}
}

// broken is the condition of a tape that was given up. It doesn't make the process unready.
func (t *Telemetry) broken() error {
	if t.tape == nil {
		return nil
	}
	select {
	case <-t.done:
		if t.failed != nil {
			return health.Well(givenUp + ": " + t.failed.Error())
		}
	default:
	}
	return nil
}

// sync waits, at most for atMost, until everything on the tape now has been read.
func (t *Telemetry) sync(ctx context.Context, atMost time.Duration) {
	if t == nil || !t.started {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	_ = t.follower.Sync(ctx) // unread records are read when the telemetry ends
}

// exportTimeout bounds how long the end of the process waits for the receivers of its spans and metrics.
const exportTimeout = 5 * time.Second

// stop closes the tape, lets the readers reach its end, and exports their results, all bounded by ctx.
func (t *Telemetry) stop(ctx context.Context) error {
	if t == nil || t.tape == nil {
		return nil
	}
	t.start() // if an earlier part failed, so that a reader can reach the end
	t.looking.stop()
	errs := []error{t.own.Close()}
	if t.own == nil { // the other process may go on
		t.sync(ctx, settleTimeout)
		errs = append(errs, t.closeFollower())
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("the tape was not read to its end: %w", context.Cause(ctx)))
		errs = append(errs, t.closeFollower()) // ends the loop
		<-t.done
	}
	t.flush(ctx)
	return errors.Join(append(errs, t.closeFollower())...) // a tape that was given up has been logged
}

// flush sends the remaining spans and metrics in parallel: an unreachable receiver of one must not use up the other's
// time. If something can't be sent, that is a warning: a job that did its work doesn't fail because a collector is
// slow.
func (t *Telemetry) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	pushed := make(chan error, 1)
	go func() { pushed <- t.push.Close(ctx) }()
	end := t.trace.Close
	if t.left { // the post-mortem, or the next reader of the tape, reports how open acts end
		end = t.trace.Leave
	}
	if err := end(ctx); err != nil {
		t.settings.Log.Warn("spans were not all exported before the end", "error", err)
	}
	if err := <-pushed; err != nil {
		t.settings.Log.Warn("the last metrics were not sent", "error", err)
	}
}
