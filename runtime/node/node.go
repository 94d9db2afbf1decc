package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/ccl"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/etcd"
	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// stopTimeout bounds Stop when its context has no deadline.
const stopTimeout = 15 * time.Second

// Node is one process's Carillon: a runtime, and the parts that make it visible. A part that is switched off is nil.
type Node struct {
	observed
	tape      *tape.Writer
	leftovers *leftovers
	device    *enginecuda.GPU // of the rank
	profiler  *profiler.Profiler
	runtime   *ccl.Runtime

	release  func() error // gives the device back; nil if there is none
	unhandle []func()     // end the waits for signals
	stopping sync.Once
}

// Start makes and starts a process's Carillon from the defaults and the options, in their order. It does not wait for
// other ranks. The error names every problem of the configuration; nothing is left running then. Stop ends what Start
// started. If ctx has ended by the time of Stop, as with signal.NotifyContext, the process was told to end, and live
// communicators are not reported as leaked. As soon as a signal ends a context of signal.NotifyContext, RAS opens no
// verdicts on what the end of the job does to its ranks, also with WithSignals(false). The same holds as soon as
// carillon run ends the job, however the program handles signals.
func Start(ctx context.Context, opts ...Option) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n, err := newNode(func() bool { return ctx.Err() != nil }, opts...)
	if err != nil {
		return nil, err
	}
	n.start()
	n.unhandle = append(n.unhandle, n.awaitSignal(ctx))
	if n.settings.Signals {
		n.unhandle = append(n.unhandle, n.awaitTermination())
	}
	return n, nil
}

// newNode makes a Node, for Start and Module. told reports whether the process was told to end; nil if that is unknown.
func newNode(told func() bool, opts ...Option) (*Node, error) {
	cfg, err := resolve(opts...)
	if err != nil {
		return nil, err
	}
	n := &Node{observed: observed{settings: settle(cfg), conditions: &health.Conditions{}}}
	n.settings.told = told
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Stop(context.Background()))
	}
	return n, nil
}

// open makes the parts, each from those before it. Stop ends the parts that were made, even if one of them fails.
func (n *Node) open() (err error) {
	s := n.settings
	if n.tape, err = newTape(s); err != nil {
		return err
	}
	if n.ras, err = newRAS(s, n.tape, n.conditions); err != nil {
		return err
	}
	self, err := mesh.Self(s.World.Rank, s.World.Size)
	if err != nil { // the host has no name
		self = mesh.Member{ID: process.Self()}
	}
	var w recorder
	if n.tape != nil {
		w = n.tape
	}
	if err := n.observed.open(w, self, false); err != nil {
		return err
	}
	if n.device, n.release, err = newDevice(s); err != nil {
		return err
	}
	if n.profiler, err = newProfiler(s, n.conditions, n.telemetry.registry); err != nil {
		return err
	}
	if n.runtime, err = newRuntime(s, n.tape, n.ras, n.profiler); err != nil {
		return err
	}
	n.telemetry.registry.MustRegister(proxyMetrics(n.runtime.ProxyStats))
	return n.telemetry.register()
}

// start starts the background parts. RAS is last: it takes the reports of the telemetry, and notifies clients of the
// health endpoint.
func (n *Node) start() {
	url := n.health.URL()
	n.observed.start(url)
	n.leftovers = newLeftovers(n.settings, n.telemetry)
	n.ras.start(n.telemetry, url, n.leftovers)
}

// Runtime makes communicators.
func (n *Node) Runtime() *ccl.Runtime { return n.runtime }

// GPU is the GPU of the process's rank, set by WithGPU, for ccl.WithDevice; nil without. Its Context, in which the
// program makes streams and buffers, ends with Stop.
func (n *Node) GPU() *enginecuda.GPU { return n.device }

// Telemetry is the reader of the process's tape.
func (n *Node) Telemetry() *Telemetry { return n.telemetry }

// RAS is the process's part in its job's RAS; nil when it is switched off.
func (n *Node) RAS() *JobRAS { return n.ras }

// HealthURL is where the health endpoint listens, such as "http://127.0.0.1:43211"; empty when it is switched off.
func (n *Node) HealthURL() string { return n.health.URL() }

// HealthHandler is the health endpoint for the program's own mux, whether the endpoint also listens or not: at /, or
// elsewhere by http.StripPrefix. The program then controls who reaches it, unless Config.HealthAccess does.
func (n *Node) HealthHandler() http.Handler { return n.health }

// Checks are the checks behind /livez and /readyz. A program may register its own at any time.
func (n *Node) Checks() *health.Registry { return &n.checks }

// Conditions are the problems that the health endpoint shows. A program may declare its own at any time.
func (n *Node) Conditions() *health.Conditions { return n.conditions }

// Stop ends everything that Start started: the runtime with its communicators (one that is still alive is reported as
// leaked), RAS, the health endpoint, and the telemetry, once it has read and exported the runtime's last acts. It is
// bounded by ctx, and by 15 seconds. A collector that is slow or unreachable takes a few of these seconds, and causes a
// warning in the log, not an error. A context that has already ended, as after a signal, leaves no time to read and
// send the last events: pass context.WithoutCancel of it. A second Stop does nothing.
func (n *Node) Stop(ctx context.Context) (err error) {
	n.stopping.Do(func() {
		for _, unhandle := range n.unhandle {
			unhandle()
		}
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		err = n.close(ctx)
	})
	return err
}

// close ends the parts, each before the parts that it needs. Parts may never have been made or started.
func (n *Node) close(ctx context.Context) error {
	errs := []error{n.runtime.Close(ctx)}
	n.profiler.Close(ctx)
	if n.release != nil { // before the tape, to which the GPU writes
		errs = append(errs, n.release())
	}
	n.telemetry.sync(ctx, settleTimeout) // a failure that was not read yet is explained, too
	n.ras.stop(ctx)
	n.leftovers.end(ctx)
	return errors.Join(append(errs, n.stop(ctx), n.tape.Close(), n.settings.sink.Close(ctx))...)
}

// settings is the configuration from which all parts are made: validated, and with all defaults. Log is the sink's.
type settings struct {
	Config
	sink   *logsink.Sink
	outage *otlp.Outage // of the collector, shared by all processes with telemetry here
	told   func() bool  // whether the process was told to end; nil: unknown

	attrs []slog.Attr // of each line about a tape or job of another process
}

// events is the handler of lines about the tape.
func (s *settings) events() slog.Handler { return s.sink.Events().WithAttrs(s.attrs) }

// settle opens the logs.
func settle(cfg Config) *settings {
	s := &settings{Config: cfg, outage: new(otlp.Outage)}
	s.sink = newSink(context.Background(), &s.Config)
	return s
}

func newRuntime(s *settings, w *tape.Writer, r *JobRAS, p *profiler.Profiler) (*ccl.Runtime, error) {
	kernels.LimitSIMD(s.SIMD)
	var meet func(lifecycle.UniqueID) (rendezvous.Rendezvous, error)
	if s.World.Rendezvous != "" {
		at, err := etcd.ParseURL(s.World.Rendezvous)
		if err != nil {
			return nil, fmt.Errorf("CARILLON_RENDEZVOUS: %w", err)
		}
		meet = func(id lifecycle.UniqueID) (rendezvous.Rendezvous, error) { return etcd.New(at, id, s.Log) }
	}
	return ccl.New(ccl.Config{
		Engine: host.Kind(), World: s.World, Rendezvous: meet, Blocking: s.Blocking, Algorithm: s.Algorithm,
		Tape: w, TapeIsLogged: w != nil, Log: s.Log, Contact: r.Contact, Met: r.Met, ToldToEnd: s.told,
		Profiler: p, Fabric: s.Fabric,
	})
}
