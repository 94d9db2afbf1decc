package meet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

const (
	serveWait = 2 * time.Minute        // for the first rank to serve the rendezvous
	maxPast   = 1024                   // meetings that are kept, to tell a late rank which ranks left
	askEvery  = 250 * time.Millisecond // between two checks of the ranks that have not come
)

// Again is the rendezvous of ranks that know each other from a communicator that failed or was revoked. Its id is
// derived from seed, a secret text about its purpose, so no message is needed. The process of the first of its ranks
// serves it, and checks whether the ranks that have not come still run and will come.
//
// addresses has, by rank, where each process serves rendezvous, from their introductions; empty if all are of this
// Point.
//
// A meeting that failed stays: a rank that comes later is told which ranks left.
func (p *Point) Again(seed []byte, addresses []string, rank int) (rendezvous.Rendezvous, error) {
	r := &regroup{p: p, seed: seed, addresses: addresses}
	id, err := r.id(0)
	if err != nil {
		return nil, err
	}
	if addresses[0] == "" {
		return p.meetLocally(lifecycle.RootCommID(id), len(addresses)), nil
	}
	if rank == 0 {
		if r.meeting, err = r.hold(0); err != nil {
			return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
		}
	}
	// The first rank serves it when it has noticed the failure, too.
	r.Rendezvous = tcp.Dial(id, tcp.Config{Wire: p.wire, Log: p.log, Serves: true, UnknownTime: serveWait})
	return r, nil
}

// regroup is one rank's part in the rendezvous of Again.
type regroup struct {
	rendezvous.Rendezvous // that the first rank serves
	p                     *Point
	seed                  []byte
	addresses             []string
	meeting               *mem.Meeting // on the first rank only
}

// id is the unique id that a rank serves: the first rank the rendezvous, another rank a meeting that tells the first
// one that it won't come.
func (r *regroup) id(rank int) (lifecycle.UniqueID, error) {
	seed := binary.LittleEndian.AppendUint32(slices.Clone(r.seed), uint32(rank))
	return lifecycle.UniqueIDFromSecret(seed, r.addresses[rank])
}

func (r *regroup) hold(rank int) (*mem.Meeting, error) {
	id, err := r.id(rank)
	if err != nil {
		return nil, err
	}
	d, err := r.p.own()
	if err != nil {
		return nil, err
	}
	if err := r.p.server.Serve(d, id); err != nil {
		return nil, err
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.remember(func() { r.p.server.Forget(id) })
	return r.p.server.Meeting(id), nil
}

// Exchange implements rendezvous.Rendezvous.
func (r *regroup) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if r.meeting != nil {
		asking, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { r.ask(asking, key) })
		defer work.Wait()
		defer stop()
	}
	all, err := r.Rendezvous.Exchange(ctx, key, rank, size, payload)
	if _, alone := errors.AsType[*rendezvous.UnreachableError](err); alone && ctx.Err() != nil {
		if m, held := r.hold(rank); held == nil { // the first rank asks when it comes
			how, why := rendezvous.HowEnded(ctx)
			m.Absent(key, rendezvous.Here(rank, size), how, why, func(*mem.Outcome) {})
		}
	}
	return all, err
}

// ask keeps checking the ranks that have not come, until ctx ends.
func (r *regroup) ask(ctx context.Context, key string) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		roll := r.meeting.Roll(key)
		if roll == nil {
			continue
		}
		var work sync.WaitGroup
		room := make(chan struct{}, maxProbes)
		for _, rank := range roll.Missing() {
			room <- struct{}{}
			work.Go(func() {
				defer func() { <-room }()
				if m := r.gone(ctx, key, rank); m.How != rendezvous.Waiting {
					r.meeting.Absent(key, m, m.How, m.Detail, func(*mem.Outcome) {})
				}
			})
		}
		work.Wait()
	}
}

// gone returns how a rank that has not come has left; How is Waiting if it may still come.
func (r *regroup) gone(ctx context.Context, key string, rank int) rendezvous.Member {
	m := rendezvous.Member{Rank: rank, Size: len(r.addresses), Host: r.addresses[rank]}
	id, err := r.id(rank)
	if err != nil {
		return m
	}
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	hello := door.Hello{Room: door.Room(lifecycle.RootCommID(id)), Secret: id.Secret()}
	conn, err := door.Dial(probe, id.Address(), hello, func(met error) error { return met })
	if err == nil {
		_ = conn.Close()
	}
	switch {
	case ctx.Err() != nil: // the exchange has ended
	case err == nil:
		over, cancel := context.WithCancel(probe)
		cancel() // it only wants the roll, and doesn't take part
		at := tcp.Dial(id, tcp.Config{Wire: r.p.wire, Log: r.p.log})
		_, err = at.Exchange(over, key, 0, m.Size, nil)
		_ = at.Close()
		if said, ok := errors.AsType[*rendezvous.MissingError](err); ok {
			for _, other := range said.Gone() {
				if other.Rank == rank {
					return other
				}
			}
		}
	case errors.Is(err, door.ErrUnknown): // it runs, and may come
	case door.Gone(err):
		m.How = rendezvous.Died
	case door.Silent(err) && !door.LocalFault(err):
		m.How, m.Detail = rendezvous.Lost, err.Error()
	}
	return m
}

// meetLocally returns the rendezvous of an id in this process, which its first rank makes.
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

// remember adds a meeting to past, and forgets the oldest if there are too many. The caller holds p.mu.
func (p *Point) remember(forget func()) {
	p.past = append(p.past, forget)
	if len(p.past) > maxPast {
		p.past[0]()
		p.past = p.past[1:]
	}
}
