package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// Point serves a process's rendezvous. It is safe for concurrent use. Close ends it.
type Point struct {
	door   func() (*door.Door, error)
	wire   door.Wire
	log    *slog.Logger
	server *tcp.Server

	mu     sync.Mutex
	world  *door.Door // at the job's address, on rank 0; nil until it is needed
	local  map[lifecycle.CommID]*mem.Meeting
	past   []func() // forget the last meetings of Again, oldest first
	closed bool
}

// ErrClosed is the error of a Point after its Close.
var ErrClosed = errors.New("the runtime is closed")

// New makes a Point. door returns the process's listener, and is called when the Point first serves a rendezvous. wire
// is the least protection of its connections. log gets a line while a rank waits for others.
func New(door func() (*door.Door, error), wire door.Wire, log *slog.Logger) *Point {
	return &Point{
		door: door, wire: wire, log: log, server: tcp.NewServer(), local: map[lifecycle.CommID]*mem.Meeting{},
	}
}

func (p *Point) own() (*door.Door, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	return p.door()
}

// Addr is where this process serves rendezvous, host:port.
func (p *Point) Addr() (string, error) {
	d, err := p.own()
	if err != nil {
		return "", err
	}
	return d.Addr(), nil
}

// NewUniqueID makes an id, whose rendezvous this process serves until the Point is closed.
func (p *Point) NewUniqueID() (lifecycle.UniqueID, error) {
	d, err := p.own()
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	id, err := lifecycle.NewUniqueID(d.Addr())
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	top, err := topID(id)
	if err != nil {
		return lifecycle.UniqueID{}, err
	}
	return id, errors.Join(p.server.Serve(d, id), p.server.Serve(d, top))
}

// ServeWorld serves the rendezvous of an id at the job's address, on rank 0 of the job; address is where it listens. An
// address that is taken or is not of this host is a *[lifecycle.SystemError].
func (p *Point) ServeWorld(id lifecycle.UniqueID, address string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if p.world == nil {
		d, err := door.Listen(context.Background(), address, p.wire, p.log)
		if err != nil {
			err = &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "open the rendezvous at " + address, Err: err}
			return fmt.Errorf("rank 0 serves the rendezvous of the job at %s: %w", id.Address(), err)
		}
		p.world = d
	}
	return p.server.Serve(p.world, id)
}

// DialWorld returns the rendezvous at the job's address, which rank 0 may not serve yet. met says that this process has
// met rank 0 there before: then nobody there means that rank 0's process has ended, and an id that isn't known that
// rank 0 is late. It doesn't use the network.
func (p *Point) DialWorld(id lifecycle.UniqueID, met bool) rendezvous.Rendezvous {
	cfg := tcp.Config{Wire: p.wire, Log: p.log, Serves: met}
	if met {
		cfg.UnknownTime = math.MaxInt64
	}
	return tcp.Dial(id, cfg)
}

// Dial returns the rendezvous of the ranks that have these ids, made by NewUniqueID, in the same order on all ranks:
// one id, or several whose processes share the work. It doesn't use the network.
func (p *Point) Dial(ids ...lifecycle.UniqueID) rendezvous.Rendezvous {
	if len(ids) == 1 {
		return tcp.Dial(ids[0], tcp.Config{Wire: p.wire, Log: p.log, Serves: true})
	}
	return &tree{ids: ids, wire: p.wire, log: p.log}
}

// Close ends all rendezvous that this process serves.
func (p *Point) Close() error {
	p.mu.Lock()
	p.closed = true
	world := p.world
	p.mu.Unlock()
	var err error
	if world != nil {
		err = world.Close()
	}
	p.server.Close()
	return err
}
