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

// Config is what a Runtime is made of. Only the Engine must be there: with it alone, a runtime records nothing.
type Config struct {
	// Engine is what carries out operations: host.Kind() on host memory.
	Engine engine.Kind
	// World is what the launcher said about this process's place in the job; see launch.FromEnv. World uses it.
	World launch.World
	// Rendezvous makes what the ranks of World meet at, in place of rank 0; nil where rank 0 serves.
	Rendezvous func(lifecycle.UniqueID) (rendezvous.Rendezvous, error)
	// Blocking makes every communicator blocking, whatever its options say (NCCL_COMM_BLOCKING=1).
	Blocking bool
	// Algorithm is used for every operation that it can do, instead of what the tuning table says (CARILLON_ALGO).
	// algo.Auto is none.
	Algorithm algo.Algorithm
	// Fabric says how ranks are connected.
	Fabric fabric.Config
	// Contact is where this process can be reached for something else than communicators; the ranks of other processes
	// are told when a communicator begins. nil, or "", is nowhere. Met takes what those of a new communicator said, on
	// the goroutine that makes it: it must not block.
	Contact func() string
	Met     func(contacts []string)
	// Tape is the process's flight recorder; nil records nothing. The caller closes it, after the Runtime.
	Tape *tape.Writer
	// Profiler has the plug-ins that are told what communicators do; nil for none. The caller closes it, after the
	// Runtime.
	Profiler *profiler.Profiler
	// ToldToEnd tells whether the process was told to end, so that what it leaves behind is no mistake; nil is never.
	ToldToEnd func() bool
	// Log is where the runtime logs; nil is slog.Default.
	Log *slog.Logger
	// TapeIsLogged says that a reader of the tape logs what is on it, so that the runtime must not log it once more.
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

	reapers  sync.WaitGroup // goroutines that report what was leaked, and end it
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

// ProxyStats count what this process sends to other nodes, for its own ranks and for others of its node.
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

// reap runs fn, which deals with what nobody holds any more, unless the runtime is closed. Close waits for it.
func (rt *Runtime) reap(fn func()) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.closed {
		rt.reapers.Go(fn)
	}
}
