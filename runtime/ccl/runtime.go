package ccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config configures a Runtime. Only the Engine is required: with it alone, a runtime records nothing.
type Config struct {
	// Engine carries out operations: host.Kind() on host memory.
	Engine engine.Kind
	// World is this process's place in the job, from the launcher; see launch.FromEnv. Runtime.World uses it.
	World launch.World
	// Rendezvous makes the meeting point for the ranks of World; nil: rank 0 serves it.
	Rendezvous func(lifecycle.UniqueID) (rendezvous.Rendezvous, error)
	// Blocking makes every communicator blocking, despite its options (NCCL_COMM_BLOCKING=1).
	Blocking bool
	// Algorithm is used for every operation that has it, instead of the tuning table's (CARILLON_ALGO). algo.Auto is
	// none.
	Algorithm algo.Algorithm
	// Fabric configures the connections of ranks.
	Fabric fabric.Config
	// Contact is an address of this process for other purposes than communicators, which ranks of other processes get
	// when a communicator begins; nil or "" for none. Met gets theirs, on the goroutine that makes the communicator,
	// and must not block.
	Contact func() string
	Met     func(contacts []string)
	// Tape is the process's flight recorder; nil records nothing. The caller closes it, after the Runtime.
	Tape *tape.Writer
	// Profiler has the plug-ins that get the events of communicators; nil for none. The caller closes it, after the
	// Runtime.
	Profiler *profiler.Profiler
	// ToldToEnd tells whether the process was told to end, so that its open communicators are no mistake; nil is never.
	ToldToEnd func() bool
	// Log is where the runtime logs; nil is slog.Default.
	Log *slog.Logger
	// TapeIsLogged tells that a reader logs the tape, so that the runtime must not log the same again.
	TapeIsLogged bool
}

// Runtime makes communicators. A process has one, as a rule. It is safe for concurrent use. New makes it: calls on a
// nil or zero Runtime are a UsageError.
type Runtime struct {
	cfg    Config
	lives  *lifecycle.Registry
	fabric *fabric.Fabric

	point *meet.Point

	mu     sync.Mutex
	comms  map[*core]struct{}
	closed bool
	down   chan struct{} // closed when Close has done its work

	reapers  sync.WaitGroup // goroutines that report and end leaked communicators and groups
	troubled atomic.Bool    // a communicator has failed, and none was made since

	run atomic.Uint64 // the lifecycle.Run that the process is part of; 0 until it is known

	naming sync.Mutex // held while a World gets its number
	worlds int        // calls of World that were begun, so far; by the holder of naming
}

// New makes a Runtime. Close ends it.
func New(cfg Config) (*Runtime, error) {
	if cfg.Engine.New == nil {
		return nil, errors.New("ccl: Config.Engine is missing, which carries out operations: use host.Kind()")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Fabric.Log = cmp.Or(cfg.Fabric.Log, cfg.Log)
	f, err := fabric.New(cfg.Fabric)
	if err != nil {
		return nil, fmt.Errorf("make the fabric: %w", err)
	}
	return &Runtime{
		cfg: cfg, lives: lifecycle.NewRegistry(), fabric: f, comms: map[*core]struct{}{},
		point: meet.New(f.Door, cfg.Fabric.Wire, cfg.Log), down: make(chan struct{}),
	}, nil
}

func (rt *Runtime) absent() bool { return rt == nil || rt.lives == nil }

// NewUniqueID makes the id of a new communicator, for the caller to carry to all its ranks. This process serves as the
// meeting point of the ranks until its Runtime is closed. An id makes one communicator.
func (rt *Runtime) NewUniqueID() (UniqueID, error) {
	if rt.absent() {
		return UniqueID{}, errNoRuntime(lifecycle.CallNone)
	}
	return rt.point.NewUniqueID()
}

// ProxyStats counts this process's operations to other nodes, for its own ranks and for others of its node.
func (rt *Runtime) ProxyStats() fabric.ProxyStats {
	if rt.absent() {
		return fabric.ProxyStats{}
	}
	return rt.fabric.ProxyStats()
}

// Close ends the runtime, and aborts the communicators that are still alive. One that could still be used was leaked:
// it is reported with the place where it was made, unless an error, or the process's being told to end, is why the
// runtime stops. After Close nothing of the runtime runs any more.
func (rt *Runtime) Close(ctx context.Context) error {
	if rt.absent() {
		return nil
	}
	rt.mu.Lock()
	if rt.closed {
		rt.mu.Unlock()
		select {
		case <-rt.down:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	rt.closed = true
	defer close(rt.down)
	left := slices.Collect(maps.Keys(rt.comms))
	rt.mu.Unlock()

	excused, usable := rt.troubled.Load() || rt.cfg.ToldToEnd != nil && rt.cfg.ToldToEnd(), 0
	for _, c := range left {
		if c.reclaim("the runtime stops", ErrRuntimeClosed, excused) {
			usable++
		}
	}
	if excused && usable > 0 {
		rt.cfg.Log.Info("the runtime stops early: communicators were not destroyed", "communicators", usable)
	}
	rt.reapers.Wait()
	err := rt.point.Close()
	rt.fabric.Close()
	return err
}

// reap runs fn, which reports and ends something leaked, unless the runtime is closed. Close waits for it.
func (rt *Runtime) reap(fn func()) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.closed {
		rt.reapers.Go(fn)
	}
}
