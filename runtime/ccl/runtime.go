package ccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config is what a Runtime is made of. The zero Config is a runtime that records nothing.
type Config struct {
	// World is what the launcher said about this process's place in the job; see launch.FromEnv. World uses it.
	World launch.World
	// Blocking makes every communicator blocking, whatever its options say (NCCL_COMM_BLOCKING=1).
	Blocking bool
	// Algorithm is used for every operation that it can do, instead of what the tuning table says (CARILLON_ALGO).
	// algo.Auto is none.
	Algorithm algo.Algorithm
	// RendezvousAddress is where NewUniqueID's server listens, "host:port"; port 0 picks one. The default is the
	// fabric's port.
	RendezvousAddress string
	// Fabric says how ranks are connected.
	Fabric fabric.Config
	// Contact is where this process can be reached for something else than communicators, at most 255 bytes; the ranks of other processes are
	// told when a communicator begins. nil, or "", is nowhere. Met takes what those of a new communicator said, on the goroutine that makes
	// it: it must not block.
	Contact func() string
	Met     func(contacts []string)
	// Tape is the process's flight recorder; nil records nothing. It stays the caller's, who closes it after the Runtime.
	Tape *tape.Writer
	// Log is where the runtime logs; nil is slog.Default.
	Log *slog.Logger
	// TapeIsLogged says that a reader of the tape logs what is on it, so that the runtime must not log it once more.
	TapeIsLogged bool
}

// Runtime makes communicators. A process has one, as a rule. It is safe for concurrent use. New makes it: calls on a nil
// or zero Runtime are a UsageError.
type Runtime struct {
	cfg    Config
	log    *slog.Logger
	lives  *lifecycle.Registry
	fabric *fabric.Fabric

	mu     sync.Mutex
	comms  map[*core]struct{}
	server *rtcp.Server // serves unique ids made here; opened by the first NewUniqueID
	world  *rtcp.Server // serves the job's world, on rank 0; opened by the first World
	worlds int          // calls of World that were begun, so far
	closed bool
	past   []func()                 // what forgets each of the last reunions that failed, oldest first; see remember
	down   chan struct{}            // closed when Close has done its work
	local  map[CommID]*localMeeting // see meetLocally

	reapers   sync.WaitGroup // goroutines that report what was leaked, and end it
	groupJobs atomic.Int64   // that are not completed

	naming sync.Mutex // held while a World gets its number; taken before mu
}

// New makes a Runtime. Close ends it.
func New(cfg Config) (*Runtime, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Fabric.Log == nil {
		cfg.Fabric.Log = cfg.Log
	}
	f, err := fabric.New(cfg.Fabric)
	if err != nil {
		return nil, fmt.Errorf("make the fabric: %w", err)
	}
	return &Runtime{
		cfg: cfg, log: cfg.Log, lives: lifecycle.NewRegistry(), fabric: f, comms: map[*core]struct{}{}, local: map[CommID]*localMeeting{}, down: make(chan struct{}),
	}, nil
}

// absent tells whether New did not make this.
func (rt *Runtime) absent() bool { return rt == nil || rt.lives == nil }

// Live is the number of communicators that are alive in this process.
func (rt *Runtime) Live() int {
	if rt.absent() {
		return 0
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.comms)
}

// NewUniqueID makes the id of a new communicator, for the caller to carry to all its ranks. This process serves as the
// meeting point of the ranks until its Runtime is closed. An id makes one communicator.
func (rt *Runtime) NewUniqueID() (UniqueID, error) {
	if rt.absent() {
		return UniqueID{}, errNoRuntime(lifecycle.CallNone)
	}
	s, err := rt.rendezvousServer()
	if err != nil {
		return UniqueID{}, err
	}
	id, err := lifecycle.NewUniqueID(s.Addr())
	if err != nil {
		return UniqueID{}, err
	}
	top, err := topID(id)
	if err != nil {
		return UniqueID{}, err
	}
	return id, errors.Join(s.Serve(id), s.Serve(top))
}

func (rt *Runtime) rendezvousServer() (*rtcp.Server, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return nil, ErrRuntimeClosed
	}
	if rt.server != nil {
		return rt.server, nil
	}
	if addr := rt.cfg.RendezvousAddress; addr != "" {
		s, err := rtcp.Listen(context.Background(), addr, rt.rendezvousConfig())
		if err != nil {
			return nil, err
		}
		rt.server = s
		return s, nil
	}
	d, err := rt.fabric.Door()
	if err != nil {
		return nil, err
	}
	rt.server = rtcp.Serve(d, rt.rendezvousConfig())
	return rt.server, nil
}

func (rt *Runtime) rendezvousConfig() rtcp.Config { return rtcp.Config{Log: rt.log} }

// adopt begins the life of a new communicator, and puts it on the books.
func (rt *Runtime) adopt(c *core, info lifecycle.Info) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return ErrRuntimeClosed
	}
	c.life = rt.lives.Open(info)
	c.tape = rt.cfg.Tape.Comm(c.tapeInfo(info.Parent, 0))
	rt.comms[c] = struct{}{}
	return nil
}

func (rt *Runtime) forget(c *core) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.comms, c)
}

// Close ends the runtime. A communicator that is still alive was leaked: it is reported with the place where it was
// made, and aborted. After Close nothing of the runtime runs any more. A nil Runtime has nothing to end.
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
	servers := []*rtcp.Server{rt.server, rt.world}
	left := make([]*core, 0, len(rt.comms))
	for c := range rt.comms {
		left = append(left, c)
	}
	rt.mu.Unlock()

	for _, c := range left {
		c.leaked("and the runtime stops")
	}
	rt.reapers.Wait()
	if n := rt.groupJobs.Load(); n > 0 {
		rt.log.Warn("group jobs were never completed: ask AsyncError of their communicators, or Wait for them", "group_jobs", n)
	}
	var errs []error
	for _, s := range servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	rt.fabric.Close()
	return errors.Join(errs...)
}

// watch makes the runtime notice when nobody holds a communicator any more.
func (rt *Runtime) watch(c *Comm) {
	runtime.AddCleanup(c, func(c *core) {
		if c.life.State().Live() {
			rt.reap(func() { c.leaked("and nobody holds it any more") })
		}
	}, c.core)
}

// reap runs fn, which deals with what nobody holds any more, unless the runtime is closed: Close waits for it, and
// looks after what is left.
func (rt *Runtime) reap(fn func()) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.closed {
		rt.reapers.Go(fn)
	}
}
