package meet

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// patience is how long a rank asks for a rendezvous that its host does not hold yet, when its context has no deadline.
const patience = 2 * time.Minute

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
	r := &again{point: p}
	if holds {
		s, err := p.own()
		if err != nil {
			return nil, err
		}
		if err := s.Serve(id); err != nil {
			return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
		}
		r.forget = func() { s.Forget(id) }
	}
	config := p.dialing()
	config.UnknownTime = patience // the host comes when it, too, has found out
	r.Rendezvous = tcp.Dial(id, config)
	return r, nil
}

// again is a rendezvous that is held in one of the ranks' processes.
type again struct {
	rendezvous.Rendezvous
	point  *Point
	forget func() // ends it, in the process that holds it; nil in others, and once it was handed on
}

// Exchange is the rendezvous's.
func (r *again) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	payloads, err := r.Rendezvous.Exchange(ctx, key, rank, size, payload)
	if err != nil && r.forget != nil {
		r.point.remember(r.forget)
		r.forget = nil
	}
	return payloads, err
}

// local is a rendezvous of ranks of one Point. It is there from its first guest to its last; one whose guests leave
// before all have come has failed.
type local struct {
	*mem.Rendezvous
	point    *Point
	id       lifecycle.CommID
	guests   int // still expected to close it
	awaited  int // of these, that have not come
	recorded bool
}

// Local tells whether all ranks that meet there are of one Point.
func Local(at rendezvous.Rendezvous) bool {
	switch at.(type) {
	case *mem.Rendezvous, *local:
		return true
	default:
		return false
	}
}

// meetLocally returns the rendezvous of that id, which the first of its guests opens.
func (p *Point) meetLocally(id lifecycle.CommID, size int) *local {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.local[id]
	if m == nil {
		m = &local{Rendezvous: mem.New(size), point: p, id: id, guests: size, awaited: size}
		p.local[id] = m
	}
	m.awaited--
	return m
}

// Close says that one guest has left.
func (m *local) Close() error {
	m.point.mu.Lock()
	m.guests--
	failed := m.awaited > 0 && !m.recorded
	m.recorded = m.recorded || failed
	if m.guests == 0 {
		m.forget()
	}
	m.point.mu.Unlock()
	if failed {
		m.point.remember(func() {
			m.point.mu.Lock()
			defer m.point.mu.Unlock()
			m.forget()
		})
	}
	return nil
}

// forget takes the meeting out of the table. The caller holds the Point's mutex.
func (m *local) forget() {
	if m.point.local[m.id] == m {
		delete(m.point.local, m.id)
	}
}
