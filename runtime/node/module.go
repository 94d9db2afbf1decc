package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The value groups to which a program adds its own.
const (
	// ObserverGroup has the Observers of the tape.
	ObserverGroup = `group:"carillon.observers"`
	// CheckGroup has the Checks of the health endpoint.
	CheckGroup = `group:"carillon.checks"`
	// RouteGroup has what the health endpoint shows beside its own: health.Routes.
	RouteGroup = `group:"carillon.routes"`
)

// Module is a process's Carillon for an fx program: it provides *ccl.Runtime, *Telemetry, *health.Server,
// *health.Conditions, *health.Publisher and *tape.Writer, made from a Config that the program supplies (fx.Supply), or else from the environment.
//
//	fx.New(node.Module, fx.Invoke(func(rt *ccl.Runtime) { … }))
//
// Observers and checks are added with fx.Annotate(newMine, fx.As(new(node.Observer)), fx.ResultTags(node.ObserverGroup)).
var Module = fx.Module("carillon",
	fx.Provide(fx.Annotate(settle, fx.ParamTags(`optional:"true"`, `optional:"true"`, ``))),
	fx.Module("tape", fx.Provide(provideTape)),
	fx.Module("telemetry", fx.Provide(fx.Annotate(provideTelemetry, fx.ParamTags(``, ``, ``, ObserverGroup)))),
	fx.Module("gpu", fx.Provide(provideGPU, fx.Annotate(gpuChecks, fx.ResultTags(`group:"carillon.checks,flatten"`)))),
	fx.Module("ras",
		fx.Provide(provideRAS, fx.Annotate((*JobRAS).routes, fx.ResultTags(`group:"carillon.routes,flatten"`))),
		fx.Provide(fx.Annotate(rasObserver, fx.ResultTags(`group:"carillon.observers,flatten"`))),
		fx.Invoke(runRAS),
	),
	fx.Module("runtime", fx.Provide(provideRuntime)),
	fx.Module("health",
		fx.Provide(newConditions, fx.Annotate(providePublisher, fx.ParamTags(``, ``, ``, ``, ``, `optional:"true"`))),
		fx.Provide(fx.Annotate(provideHealth, fx.ParamTags(``, ``, ``, ``, ``, CheckGroup, RouteGroup))),
	),
	fx.Invoke(func(*ccl.Runtime, *health.Server) {}),
)

// settings is the configuration that all constructors use: validated, and with nothing left open. Log is the sink's.
type settings struct {
	Config
	sink   *logsink.Sink
	opened *opened // nil in an fx program
}

// opened are the ends of what the constructors have opened. When one of them fails, fx stops none of the others: they
// were never started.
type opened struct {
	ends []func(context.Context) error
}

func (o *opened) add(end func(context.Context) error) {
	if o != nil {
		o.ends = append(o.ends, end)
	}
}

// end ends all, the last one first.
func (o *opened) end(ctx context.Context) error {
	var errs []error
	for _, end := range slices.Backward(o.ends) {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}

// settle takes the program's Config, or the environment's, and opens the logs, which end last.
func settle(given *Config, o *opened, lc fx.Lifecycle) (settings, error) {
	opts := []Option{FromEnv()}
	if given != nil {
		opts = []Option{WithConfig(*given)}
	}
	cfg, err := resolve(opts)
	if err != nil {
		return settings{}, err
	}
	sink := newSink(context.Background(), &cfg)
	lc.Append(fx.StopHook(sink.Close))
	o.add(sink.Close)
	return settings{cfg, sink, o}, nil
}

// provideTape makes the process's tape; nil when it is switched off.
func provideTape(s settings, lc fx.Lifecycle) (*tape.Writer, error) {
	if !s.Tape {
		return nil, nil //nolint:nilnil // a nil Writer is the tape switched off
	}
	cfg := tape.Config{Dir: s.TapeDir, Job: s.World.Job, BootID: s.HostID, Version: version(), Slow: s.kept()}
	if s.logsOperations() {
		cfg.SampleEvery = 1
	}
	w, err := tape.Create(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w (CARILLON_TAPE_DIR chooses another directory, CARILLON_TAPE=off does without a tape)", err)
	}
	lc.Append(fx.StopHook(w.Close))
	s.opened.add(func(context.Context) error { return w.Close() })
	return w, nil
}

func provideTelemetry(s settings, w *tape.Writer, lc fx.Lifecycle, extra []Observer) (*Telemetry, error) {
	t, err := newTelemetry(context.Background(), s, w, extra)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(t.start, t.stop))
	s.opened.add(func(ctx context.Context) error {
		t.start() // so that there is a reader to stop
		return t.stop(ctx)
	})
	return t, nil
}

// provideRuntime needs the telemetry only to be stopped before it: what the runtime does last is still read.
func provideRuntime(s settings, w *tape.Writer, _ *Telemetry, r *JobRAS, lc fx.Lifecycle) (*ccl.Runtime, error) {
	kernels.LimitSIMD(s.SIMD)
	rt, err := ccl.New(ccl.Config{
		World: s.World, Blocking: s.Blocking, Algorithm: s.Algorithm, Tape: w, Log: s.Log, TapeIsLogged: w != nil,
		Contact: r.Contact, Met: r.Met,
		Fabric: fabric.Config{
			HostID: s.HostID, DisableP2P: s.DisableP2P, DisableSHM: s.DisableSHM, SocketIfname: s.SocketIfname, Keepalive: s.Keepalive,
		},
	})
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(rt.Close))
	s.opened.add(rt.Close)
	return rt, nil
}
