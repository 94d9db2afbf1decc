package meet

import (
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

const (
	patience = 2 * time.Minute // for the host of a rendezvous to hold it
	maxPast  = 1024            // meetings that are remembered, to tell a rank that comes late which were there and left
)

// Again is the rendezvous of ranks that know each other, and whose connections broke or were revoked: nobody needs to
// be told of it, as its id follows from seed, a secret text that says what it is about. It is held in the process of
// the first of its size ranks, at the address where that process holds meetings, as the ranks told each other when they
// met; at is empty when all of them are of this Point. holds says that this rank is the first.
//
// One that failed does not end by itself: a rank that has not come may do so later, and is told which ranks left.
func (p *Point) Again(seed []byte, at string, holds bool, size int) (rendezvous.Rendezvous, error) {
	id, err := lifecycle.UniqueIDFromSecret(seed, at)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return p.meetLocally(lifecycle.RootCommID(id), size), nil
	}
	if holds {
		d, err := p.own()
		if err != nil {
			return nil, err
		}
		if err := p.server.Serve(d, id); err != nil {
			return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
		}
		p.mu.Lock()
		p.remember(func() { p.server.Forget(id) })
		p.mu.Unlock()
	}
	// The host comes when it, too, has found out.
	return tcp.Dial(id, tcp.Config{Log: p.log, UnknownTime: patience}), nil
}

// meetLocally returns the rendezvous of that id, which the first of its ranks opens.
func (p *Point) meetLocally(id lifecycle.CommID, size int) *mem.Rendezvous {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.local[id]
	if m == nil {
		m = mem.New(size)
		p.local[id] = m
		p.remember(func() { delete(p.local, id) })
	}
	return m.Rank()
}

// remember keeps a meeting, and forgets the oldest when there are too many. The caller holds p.mu.
func (p *Point) remember(forget func()) {
	p.past = append(p.past, forget)
	if len(p.past) > maxPast {
		p.past[0]()
		p.past = p.past[1:]
	}
}
