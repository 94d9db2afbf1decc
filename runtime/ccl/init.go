package ccl

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// World makes the communicator of all processes of the job, as the launcher's environment says (torchrun, Slurm, Open
// MPI or carillon run). It blocks until all have come. Called again, on all ranks, it makes another one. Without a
// launcher it is a communicator of one rank.
func (rt *Runtime) World(ctx context.Context, opts ...Option) (*Comm, error) {
	w := rt.cfg.World
	rt.mu.Lock()
	n := rt.worlds
	rt.worlds++
	rt.mu.Unlock()

	opts = append([]Option{WithName("world")}, opts...)
	id, err := w.UniqueID(n)
	if err != nil {
		return nil, err
	}
	root := root{call: lifecycle.CallInitRank, id: id, nranks: w.Size, rank: w.Rank, site: caller(), meet: rt.dial(id)}
	switch {
	case w.Size <= 1:
		root.nranks, root.rank, root.meet = 1, 0, meetHere(1)
	case w.Rank == 0:
		root.meet = func() (rendezvous.Rendezvous, error) {
			if err := rt.serveWorld(id); err != nil {
				return nil, err
			}
			return rt.dial(id)()
		}
	}
	return rt.makeRoot(ctx, root, opts)
}

// dial says to meet at the address in the id.
func (rt *Runtime) dial(id UniqueID) func() (rendezvous.Rendezvous, error) {
	return func() (rendezvous.Rendezvous, error) { return rtcp.Dial(id, rt.rendezvousConfig()), nil }
}

// meetHere says that all ranks are in this process.
func meetHere(n int) func() (rendezvous.Rendezvous, error) {
	meet := mem.New(n)
	return func() (rendezvous.Rendezvous, error) { return meet, nil }
}

// serveWorld makes this process, rank 0 of the job, the meeting point at the job's address.
func (rt *Runtime) serveWorld(id UniqueID) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return ErrRuntimeClosed
	}
	if rt.world == nil {
		s, err := rtcp.Listen(context.Background(), rt.cfg.World.ListenAddress(), rt.rendezvousConfig())
		if err != nil {
			return fmt.Errorf("rank 0 serves the rendezvous of the job at %s: %w", id.Address(), err)
		}
		rt.world = s
	}
	return rt.world.Serve(id)
}

// InitRank makes a communicator of nranks ranks, of which the caller is rank. All ranks call it, with an id that one of
// them made with NewUniqueID. It blocks until all have come, bounded by ctx; when ctx ends first the error names the
// ranks that are missing. The phases rendezvous, topology and connect are on its span.
func (rt *Runtime) InitRank(ctx context.Context, id UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	bad := func(format string, args ...any) error {
		return &UsageError{
			Call: lifecycle.CallInitRank, Code: lifecycle.CodeInvalidArgument, Comm: lifecycle.RootCommID(id), Rank: rank,
			Detail: fmt.Sprintf(format, args...),
		}
	}
	if nranks < 1 || nranks > MaxRanks {
		return nil, bad("nranks is %d: a communicator has 1 to %d ranks", nranks, MaxRanks)
	}
	if rank < 0 || rank >= nranks {
		return nil, bad("rank is %d: with nranks %d it must be 0 to %d", rank, nranks, nranks-1)
	}
	if err := id.Valid(); err != nil {
		return nil, bad("the unique id is not one that NewUniqueID made: %v", err)
	}
	return rt.makeRoot(ctx, root{lifecycle.CallInitRank, id, nranks, rank, caller(), rt.dial(id)}, opts)
}

// InitAll makes a communicator of n ranks that are all in this process, and returns them by rank. It is for goroutines
// that work as ranks: each uses its own.
func (rt *Runtime) InitAll(ctx context.Context, n int, opts ...Option) ([]*Comm, error) {
	site := caller()
	if n < 1 || n > MaxRanks {
		return nil, &UsageError{
			Call: lifecycle.CallInitAll, Code: lifecycle.CodeInvalidArgument, Rank: -1,
			Detail: fmt.Sprintf("n is %d: a communicator has 1 to %d ranks", n, MaxRanks),
		}
	}
	id, err := lifecycle.NewUniqueID("")
	if err != nil {
		return nil, err
	}
	stop := func() {}
	if groupOf(ctx) == nil { // in a group, the ranks outlive this call
		ctx, stop = context.WithCancel(ctx)
		defer stop()
	}
	meet := meetHere(n)
	comms, errs := make([]*Comm, n), make([]error, n)
	var first error // the others only say that they were stopped because of it
	var once sync.Once
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			comms[r], errs[r] = rt.makeRoot(ctx, root{lifecycle.CallInitAll, id, n, r, site, meet}, opts)
			if err := errs[r]; err != nil && !errors.Is(err, ErrInProgress) {
				once.Do(func() { first = err })
				stop()
			}
		})
	}
	wg.Wait()
	if first != nil {
		for _, c := range comms {
			_ = c.Close() // the first error is what counts
		}
		return nil, first
	}
	return comms, errs[0]
}

// root is a communicator without a parent that is to be made.
type root struct {
	call         lifecycle.Call
	id           UniqueID
	nranks, rank int
	site         lifecycle.Site
	meet         func() (rendezvous.Rendezvous, error)
}

// makeRoot makes a communicator that has no parent.
func (rt *Runtime) makeRoot(ctx context.Context, r root, opts []Option) (*Comm, error) {
	o := options{name: "comm"}
	for _, set := range opts {
		set(&o)
	}
	blocking := rt.cfg.Blocking || !o.nonBlocking
	c, err := rt.newComm(lifecycle.Info{
		ID: lifecycle.RootCommID(r.id), Name: o.name, Rank: r.rank, Size: r.nranks, NonBlocking: !blocking, Call: r.call, Site: r.site,
	}, r.id.Secret())
	if err != nil {
		return nil, err
	}
	a := c.begin(ctx, tape.ActInit, r.call, 0, r.site)
	return c.initialize(ctx, a, func(ctx context.Context) error {
		a.phase(tape.PhaseRendezvous)
		meet, err := r.meet()
		if err != nil {
			return err
		}
		defer meet.Close()
		port, err := rt.fabric.Prepare(c.id, c.secret, r.nranks)
		if err != nil {
			return err
		}
		cards, err := meet.Exchange(ctx, "init", r.rank, r.nranks, port.Card())
		if err != nil {
			port.Close()
			return err
		}
		return c.connect(ctx, a, port, cards)
	})
}

// newComm makes a communicator that isn't connected yet, and puts it on the books.
func (rt *Runtime) newComm(info lifecycle.Info, secret []byte) (*Comm, error) {
	c := &Comm{
		rt: rt, blocking: !info.NonBlocking, secret: secret, start: newJob(),
		id: info.ID, name: info.Name, rank: info.Rank, size: info.Size,
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if err := rt.adopt(c, info); err != nil {
		c.cancel(nil)
		return nil, err
	}
	return c, nil
}

func (c *Comm) tapeInfo(parent CommID, nodes int) tape.CommInfo {
	return tape.CommInfo{ID: c.id, Parent: parent, Name: c.name, Rank: c.rank, Size: c.size, Nodes: nodes, Engine: "host"}
}

// initialize runs the call that makes the communicator: here, or, for a non-blocking one and in a group, in the
// background. Abort interrupts it.
func (c *Comm) initialize(ctx context.Context, a *act, connect func(context.Context) error) (*Comm, error) {
	g := groupOf(ctx)
	background := !c.blocking || g != nil
	if !c.blocking {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	start := func() error {
		defer cancel(nil)
		defer stop()
		err := connect(ctx)
		c.initialized(a, err)
		return err
	}
	if !background {
		if err := start(); err != nil {
			c.discard()
			return nil, err
		}
		return c, nil
	}
	c.jobs.add(c.start)
	c.crew.start(func() { _ = start() }) // the job has its error
	if g != nil {
		g.await(c, c.start)
		return c, nil
	}
	return c, ErrInProgress
}

// initialized ends the init: the communicator is ready, or failed.
func (c *Comm) initialized(a *act, err error) {
	if err == nil {
		c.life.Signal(lifecycle.EventInitDone, nil)
	} else {
		c.life.Signal(lifecycle.EventInitFailed, err)
	}
	a.end(err)
	c.start.end(err)
}

// discard takes a communicator whose blocking init failed off the books: its caller never gets it.
func (c *Comm) discard() {
	c.ending.Add(1)
	defer c.retire()
	if _, err := c.life.Do(lifecycle.CallAbort, lifecycle.Site{}); err != nil {
		return // Runtime.Close has it
	}
	c.cancel(nil)
	c.life.Signal(lifecycle.EventAbortDone, nil)
	c.tape.State(c.life.State())
}

// connect connects the ranks once they know of each other.
func (c *Comm) connect(ctx context.Context, a *act, port *fabric.Port, cards [][]byte) error {
	a.phase(tape.PhaseTopology)
	topology, err := port.Topology(c.rank, cards)
	if err != nil {
		port.Close()
		return err
	}
	c.tape.Describe(c.tapeInfo(c.life.Info().Parent, len(topology.Ranks)))
	a.phase(tape.PhaseConnect)
	links, err := port.Connect(ctx, c.rank, cards)
	if err != nil {
		return err
	}
	c.links = links
	c.engine = host.New(links, c.tape, host.Config{Algorithm: c.rt.cfg.Algorithm, Comm: c.id, Name: c.name})
	return nil
}

// childSecret is what authenticates the ranks of a child: only who has the parent's can know it.
func childSecret(parent []byte, child CommID) []byte {
	m := hmac.New(sha256.New, parent)
	m.Write([]byte("carillon child"))
	m.Write(child[:])
	return m.Sum(nil)
}
