package ccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

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
	// address of the interface that the fabric uses, and port 0.
	RendezvousAddress string
	// Fabric says how ranks are connected.
	Fabric fabric.Config
	// Tape is the process's flight recorder; nil records nothing. It stays the caller's, who closes it after the Runtime.
	Tape *tape.Writer
	// Log is where the runtime logs; nil is slog.Default.
	Log *slog.Logger
}

// Runtime makes communicators. A process has one, as a rule. It is safe for concurrent use.
type Runtime struct {
	cfg    Config
	log    *slog.Logger
	lives  *lifecycle.Registry
	fabric *fabric.Fabric

	mu     sync.Mutex
	comms  map[*Comm]struct{}
	server *rtcp.Server // serves unique ids made here; opened by the first NewUniqueID
	world  *rtcp.Server // serves the job's world, on rank 0; opened by the first World
	worlds int          // calls of World so far
	closed bool
	down   chan struct{} // closed when Close has done its work
}

// New makes a Runtime. Close ends it.
func New(cfg Config) (*Runtime, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	f, err := fabric.New(cfg.Fabric)
	if err != nil {
		return nil, fmt.Errorf("make the fabric: %w", err)
	}
	return &Runtime{
		cfg: cfg, log: cfg.Log, lives: lifecycle.NewRegistry(), fabric: f, comms: map[*Comm]struct{}{},
		down: make(chan struct{}),
	}, nil
}

// Comms are the communicators that are alive in this process, in no order.
func (rt *Runtime) Comms() []*Comm {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	list := make([]*Comm, 0, len(rt.comms))
	for c := range rt.comms {
		list = append(list, c)
	}
	return list
}

// NewUniqueID makes the id of a new communicator, for the caller to carry to all its ranks. This process serves as the
// meeting point of the ranks until its Runtime is closed. An id makes one communicator.
func (rt *Runtime) NewUniqueID() (UniqueID, error) {
	s, err := rt.rendezvousServer()
	if err != nil {
		return UniqueID{}, err
	}
	id, err := lifecycle.NewUniqueID(s.Addr())
	if err != nil {
		return UniqueID{}, err
	}
	return id, s.Serve(id)
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
	addr := rt.cfg.RendezvousAddress
	if addr == "" {
		ip, err := rt.fabric.Address()
		if err != nil {
			return nil, err
		}
		addr = netip.AddrPortFrom(ip, 0).String()
	}
	s, err := rtcp.Listen(context.Background(), addr, rt.rendezvousConfig())
	if err != nil {
		return nil, err
	}
	rt.server = s
	return s, nil
}

func (rt *Runtime) rendezvousConfig() rtcp.Config { return rtcp.Config{Log: rt.log} }

// adopt begins the life of a new communicator, and puts it on the books.
func (rt *Runtime) adopt(c *Comm, info lifecycle.Info) error {
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

func (rt *Runtime) forget(c *Comm) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.comms, c)
}

// Close ends the runtime. A communicator that is still alive was leaked: it is reported with the place where it was
// made, and aborted. After Close nothing of the runtime runs any more. A second call waits for the first, bounded by
// ctx.
func (rt *Runtime) Close(ctx context.Context) error {
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
	rt.mu.Unlock()

	for _, c := range rt.Comms() {
		rt.reap(ctx, c)
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

// reap aborts a communicator that is still there, and reports it as leaked unless a call is just making or ending it.
func (rt *Runtime) reap(ctx context.Context, c *Comm) {
	state := c.life.State()
	if state.Live() && (c.start.ended() || !c.blocking) {
		made := c.life.Info().Site
		c.tape.Life(tape.LifeRecord{
			Act: tape.ActLeak, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeLeaked, State: state, Peer: -1,
			Text: fmt.Sprintf("%s, made by %s, was never destroyed: call Close or Destroy on it before the runtime stops", c, made),
			Site: made, Caller: callerSpan(ctx),
		})
		rt.log.Warn("communicator leaked", "comm", c.name, "comm_id", c.id.Short(), "comm_rank", c.Rank(), "made_by", made.String())
	}
	_ = c.abort(ErrRuntimeClosed, caller()) // refused when another call ends it already
}
