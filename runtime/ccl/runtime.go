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

// Config configures a Runtime. Only Engine is required: without the other fields, a runtime records nothing.
type Config struct {
	// Engine carries out operations; host.Kind() does so on host memory.
	Engine engine.Kind
	// World is this process's place in the job, from the launcher; see launch.FromEnv. Runtime.World uses it.
	World launch.World
	// Rendezvous makes the meeting point for the ranks of World; if nil, rank 0 serves it.
	Rendezvous func(lifecycle.UniqueID) (rendezvous.Rendezvous, error)
	// Blocking makes every communicator blocking, despite its options (NCCL_COMM_BLOCKING=1).
	Blocking bool
	// Algorithm is used, instead of the tuning table's choice, for every operation that has it (CARILLON_ALGO).
	// algo.Auto means none.
	Algorithm algo.Algorithm
	// Fabric configures the connections between ranks.
	Fabric fabric.Config
	// Contact returns an address of this process for purposes other than communicators, which ranks of other processes
	// get when a communicator is made; nil or "" for none. Met gets their addresses, on the goroutine that makes the
	// communicator, and must not block.
	Contact func() string
	Met     func(contacts []string)
	// Tape is the process's flight recorder; nil records nothing. The caller closes it, after the Runtime.
	Tape *tape.Writer
	// Profiler has the plug-ins that get the events of communicators; nil for none. The caller closes it after the
	// Runtime.
	Profiler *profiler.Profiler
	// ToldToEnd reports whether the process was told to end; open communicators are then no mistake. nil means never.
	ToldToEnd func() bool
	// Log is where the runtime logs; nil is slog.Default.
	Log *slog.Logger
	// TapeIsLogged says that a reader logs the tape, so the runtime must not log the same again.
	TapeIsLogged bool
}

// Runtime makes communicators. A process usually has one. It is safe for concurrent use. It is made by New: calls on a
// nil or zero Runtime return a UsageError.
type Runtime struct {
	cfg    Config
	lives  *lifecycle.Registry
	fabric *fabric.Fabric

	point *meet.Point

	mu     sync.Mutex
	comms  map[*core]struct{}
	closed bool
	down   chan struct{} // closed when Close has finished

	reapers  sync.WaitGroup // goroutines that report and end leaked communicators and groups
	troubled atomic.Bool    // a communicator has failed, and none was made since then

	run atomic.Uint64 // the lifecycle.Run of the process; 0 until it is known

	naming   sync.Mutex  // held while a World gets its number
	worlds   int         // number of calls of World that have begun; guarded by naming
	metWorld atomic.Bool // in a World, this process has met the others
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

// NewUniqueID makes the id of a new communicator, which the caller must pass to all its ranks. This process serves as
// the meeting point of the ranks until its Runtime is closed. An id makes one communicator.
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

// Close ends the runtime, and aborts the communicators that are still alive. A communicator that was still usable was
// leaked: Close reports it with the place where it was made, unless the runtime stops because of an error or because
// the process was told to end. After Close, nothing of the runtime runs any more.
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

// reap runs fn, which reports and ends a leaked object, unless the runtime is closed. Close waits for it.
func (rt *Runtime) reap(fn func()) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.closed {
		rt.reapers.Go(fn)
	}
}
