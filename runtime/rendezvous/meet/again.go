package meet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

const (
	serveWait = 2 * time.Minute        // for the first rank to start serving the rendezvous
	maxPast   = 1024                   // failed meetings kept, to tell a late rank which ranks left
	askEvery  = 250 * time.Millisecond // between two checks of the ranks that have not come
)

// Reunion is one rank's part in a new meeting of ranks of an earlier communicator.
type Reunion struct {
	// Seed is a secret text that names the meeting's purpose; it is the same on all ranks.
	Seed []byte
	// Addresses has, by rank of that communicator, the address at which each process serves rendezvous, from the ranks'
	// introductions; an address is empty if all ranks are of this Point.
	Addresses []string
	// Members are the ranks that meet, in order, and Rank is this rank's index among them.
	Members []int
	Rank    int
}

// without names the ranks that are left out; different lists have different names. It is empty if no rank is left out.
func (r *Reunion) without() string {
	var out []int
	sum := fnv.New32a()
	for rank := range r.Addresses {
		if !slices.Contains(r.Members, rank) {
			out = append(out, rank)
			_, _ = sum.Write(binary.LittleEndian.AppendUint32(nil, uint32(rank)))
		}
	}
	const all = 8 // a name has at least so many numbers
	switch {
	case len(out) == 0:
		return ""
	case len(out) > all:
		return fmt.Sprintf("%s (list %08x)", words.Ranks(out), sum.Sum32())
	default:
		return words.Ranks(out)
	}
}

// Again is the rendezvous of ranks that know each other from a communicator that failed or was revoked. Its id is
// derived from the seed, so no message is needed. The process of the first of these ranks serves it, and checks whether
// ranks that have not come still run and will come.
//
// The ranks may not agree on the members. So each rank's process serves its own meeting, which says which members this
// rank expects. The first rank asks there about ranks that have not come, and ranks that expect another first rank find
// out there. All of them then get a *[rendezvous.ConflictError].
//
// A failed meeting stays: a rank that comes later is told which ranks left.
func (p *Point) Again(with Reunion) (rendezvous.Rendezvous, error) {
	r := &regroup{p: p, Reunion: with, refuted: make(chan *mem.Outcome, 1)}
	r.self = rendezvous.Here(r.Rank, len(r.Members))
	r.self.Was, r.self.Without = r.Members[r.Rank], r.without()
	first := r.Members[0]
	if r.Addresses[first] == "" {
		id, err := r.id(0) // the same id whatever the members
		if err != nil {
			return nil, err
		}
		return p.meetLocally(lifecycle.RootCommID(id)).Again(r.self.Was, r.self.Without), nil
	}
	id, err := r.id(first)
	if err == nil {
		err = r.hold()
	}
	if err != nil {
		return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
	}
	// The first rank serves it once it has noticed the failure, too.
	r.Rendezvous = tcp.Dial(id, r.config())
	return r, nil
}

// regroup is one rank's part in the rendezvous of Again.
type regroup struct {
	rendezvous.Rendezvous // the one that the first rank serves
	Reunion
	p       *Point
	self    rendezvous.Member
	meeting *mem.Meeting      // of this rank's process
	refuted chan *mem.Outcome // gets the outcome of an exchange there if another rank contradicts this one
}

func (r *regroup) config() tcp.Config {
	return tcp.Config{
		Wire: r.p.wire, Log: r.p.log, Serves: true, UnknownTime: serveWait, Was: r.self.Was, Without: r.self.Without,
	}
}

// id returns the unique id that a rank of the communicator serves.
func (r *regroup) id(rank int) (lifecycle.UniqueID, error) {
	seed := binary.LittleEndian.AppendUint32(slices.Clone(r.Seed), uint32(rank))
	return lifecycle.UniqueIDFromSecret(seed, r.Addresses[rank])
}

// hold serves this rank's meeting.
func (r *regroup) hold() error {
	id, err := r.id(r.self.Was)
	if err != nil {
		return err
	}
	d, err := r.p.own()
	if err != nil {
		return err
	}
	if err := r.p.server.Serve(d, id); err != nil {
		return err
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.remember(func() { r.p.server.Forget(id) })
	r.meeting = r.p.server.Meeting(id)
	r.meeting.Hold(r.self, func(o *mem.Outcome) { r.refuted <- o })
	return nil
}

// Exchange implements rendezvous.Rendezvous.
func (r *regroup) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	began := time.Now()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var work sync.WaitGroup
	defer work.Wait()
	over := make(chan struct{})
	defer close(over)
	work.Go(func() {
		select {
		case o := <-r.refuted:
			_, err := o.Result(key, rank, began, nil)
			end(err)
		case <-over:
		}
	})
	if rank == 0 {
		asking, stop := context.WithCancel(ctx)
		work.Go(func() { r.ask(asking, key) })
		defer stop()
	}
	all, err := r.Rendezvous.Exchange(ctx, key, rank, size, payload)
	if _, alone := errors.AsType[*rendezvous.UnreachableError](err); alone && ctx.Err() != nil {
		how, why := rendezvous.HowEnded(ctx) // for the first rank, which asks when it comes
		r.meeting.Absent(key, r.self, how, why, func(*mem.Outcome) {})
	}
	if conflict, refuted := errors.AsType[*rendezvous.ConflictError](context.Cause(ctx)); refuted && err != nil {
		return nil, conflict
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
				if m := r.gone(ctx, key, rank); m.How != rendezvous.Waiting || m.Contradicts(r.self) {
					r.meeting.Absent(key, m, m.How, m.Detail, func(*mem.Outcome) {})
				}
			})
		}
		work.Wait()
	}
}

// gone returns how a rank that has not come has left, or that it contradicts this one. Otherwise How is Waiting, as the
// rank may still come.
func (r *regroup) gone(ctx context.Context, key string, rank int) rendezvous.Member {
	was := r.Members[rank]
	m := rendezvous.Member{Rank: rank, Size: len(r.Members), Host: r.Addresses[was]}
	id, err := r.id(was)
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
		cancel() // the Exchange below only gets the roll, and takes no part
		at := tcp.Dial(id, r.config())
		_, err = at.Exchange(over, key, 0, m.Size, nil)
		_ = at.Close()
		if said, ok := errors.AsType[*rendezvous.MissingError](err); ok {
			for _, other := range said.Gone() {
				if other.Rank == rank {
					return other
				}
			}
		}
		if said, ok := errors.AsType[*rendezvous.ConflictError](err); ok {
			for _, other := range said.Claims {
				if other.Was == was && other.Contradicts(r.self) {
					return other
				}
			}
		}
	case errors.Is(err, door.ErrUnknown): // it runs, and may come
	case door.Gone(err):
		m.How = rendezvous.Shut
	case door.Silent(err) && !door.LocalFault(err):
		m.How, m.Detail = rendezvous.Lost, err.Error()
	}
	return m
}

// meetLocally returns the rendezvous of an id in this process, which its first rank makes.
func (p *Point) meetLocally(id lifecycle.CommID) *mem.Meeting {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.local[id]
	if m == nil {
		m = mem.New()
		p.local[id] = m
		p.remember(func() { delete(p.local, id) })
	}
	return m
}

// remember adds a meeting to past, and forgets the oldest if there are too many. The caller holds p.mu.
func (p *Point) remember(forget func()) {
	p.past = append(p.past, forget)
	if len(p.past) > maxPast {
		p.past[0]()
		p.past = p.past[1:]
	}
}
