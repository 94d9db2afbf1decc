package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// Config is what a Point needs to know.
type Config struct {
	// Address is where the process's server listens, host:port; empty for Door.
	Address string
	// Door is where the process listens already; it is asked for when a server is needed first.
	Door func() (*door.Door, error)
	// Log gets a line while a rank waits for others; nil is slog.Default.
	Log *slog.Logger
}

// Point is a process's meeting point. It is safe for concurrent use. Close ends it.
type Point struct {
	cfg Config

	mu     sync.Mutex
	server *tcp.Server // nil until it is needed
	world  *tcp.Server // the job's, on rank 0; nil until it is needed
	local  map[lifecycle.CommID]*local
	past   []func() // what forgets each of the last meetings that failed, oldest first
	closed bool
}

// ErrClosed is the error of a Point after its Close.
var ErrClosed = errors.New("the runtime is closed: no communicator can be made any more")

// New makes a Point. It opens nothing.
func New(cfg Config) *Point { return &Point{cfg: cfg, local: map[lifecycle.CommID]*local{}} }

// open returns the server, which it makes if there is none: at the address, or at the process's door if that is empty.
func (p *Point) open(server **tcp.Server, address string) (*tcp.Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if *server != nil {
		return *server, nil
	}
	if address != "" {
		s, err := tcp.Listen(context.Background(), address, p.dialing())
		if err != nil {
			return nil, err
		}
		*server = s
		return s, nil
	}
	d, err := p.cfg.Door()
	if err != nil {
		return nil, err
	}
	*server = tcp.Serve(d, p.dialing())
	return *server, nil
}

func (p *Point) own() (*tcp.Server, error) { return p.open(&p.server, p.cfg.Address) }

// Addr is where meetings can be held in this process, host:port.
func (p *Point) Addr() (string, error) {
	s, err := p.own()
	if err != nil {
		return "", err
	}
	return s.Addr(), nil
}

// NewUniqueID makes an id, for which this process serves as the meeting point until the Point is closed.
func (p *Point) NewUniqueID() (lifecycle.UniqueID, error) {
	s, err := p.own()
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	id, err := lifecycle.NewUniqueID(s.Addr())
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	top, err := topID(id)
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	return id, errors.Join(s.Serve(id), s.Serve(top))
}

// ServeWorld makes this process, rank 0 of the job, the meeting point for an id at the job's address, where it listens
// at the given one.
func (p *Point) ServeWorld(id lifecycle.UniqueID, address string) error {
	s, err := p.open(&p.world, address)
	if err != nil {
		return fmt.Errorf("rank 0 serves the rendezvous of the job at %s: %w", id.Address(), err)
	}
	return s.Serve(id)
}

// Dial returns the rendezvous of the ranks that have these ids, in the same order on all of them: one, or several that
// share the work. It does not touch the network.
func (p *Point) Dial(ids ...lifecycle.UniqueID) rendezvous.Rendezvous {
	if len(ids) == 1 {
		return tcp.Dial(ids[0], p.dialing())
	}
	return &tree{ids: ids, config: p.dialing()}
}

func (p *Point) dialing() tcp.Config { return tcp.Config{Log: p.cfg.Log} }

// Close ends the process's servers, and all meetings there.
func (p *Point) Close() error {
	p.mu.Lock()
	p.closed = true
	servers := []*tcp.Server{p.server, p.world}
	p.mu.Unlock()
	var errs []error
	for _, s := range servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// maxPast is how many meetings that failed are remembered, to tell a rank that comes late which were there and left.
const maxPast = 64

// remember keeps a meeting that failed, and forgets the one that failed longest ago when there are too many.
func (p *Point) remember(forget func()) {
	p.mu.Lock()
	p.past = append(p.past, forget)
	oldest := func() {}
	if len(p.past) > maxPast {
		oldest = p.past[0]
		p.past = slices.Delete(p.past, 0, 1)
	}
	p.mu.Unlock()
	oldest()
}
