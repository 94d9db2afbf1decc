package etcd

import (
	"strings"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

// The keys of a unique id, below its prefix.
const (
	generationKey = "gen"
	rankKeys      = "rank/"
	eventKeys     = "event/"
)

// room is the state of a unique id, according to the changes that etcd has reported so far. It does no I/O, and reads
// the clock only for the times in rolls.
type room struct {
	own  string // this rank's name
	seal seal

	mu         sync.Mutex
	generation string
	meeting    *mem.Meeting                 // of the generation
	ranks      map[string]rendezvous.Member // present ones, of any generation, by name
	closed     map[string]bool              // names of ranks with an event done
	heard      map[string]bool              // names of ranks with an event since this rank came
	deliver    func(answer)                 // takes the outcomes of this rank's exchange; nil if there is none
}

// answer is the outcome of this rank's joined or confirmed event.
type answer struct {
	generation, what string
	*mem.Outcome
}

func newRoom(own string, s seal) *room {
	return &room{
		own: own, seal: s, ranks: map[string]rendezvous.Member{}, closed: map[string]bool{}, heard: map[string]bool{},
	}
}

// put takes a key that was written, before this rank came or since. It tells whether a generation begins.
func (r *room) put(prefix string, key, value []byte, since bool) (begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(string(key), prefix)
	switch {
	case name == generationKey:
		var generation string
		if !r.seal.open(key, value, &generation) || generation == r.generation {
			return false
		}
		r.generation, r.meeting = generation, mem.New()
		return true
	case strings.HasPrefix(name, rankKeys):
		var m rendezvous.Member
		if r.seal.open(key, value, &m) {
			m.Arrived = time.Now()
			r.ranks[strings.TrimPrefix(name, rankKeys)] = m
		}
	case strings.HasPrefix(name, eventKeys):
		owner, _, _ := strings.Cut(strings.TrimPrefix(name, eventKeys), "/")
		r.heard[owner] = since
		var ev event
		if r.seal.open(key, value, &ev) && ev.Generation == r.generation && r.meeting != nil {
			r.apply(owner, &ev)
		}
	}
	return false
}

func (r *room) apply(owner string, ev *event) {
	switch ev.What {
	case joined, confirmed, withdrew:
		if rendezvous.CheckArgs(ev.Key, ev.Member.Size, ev.Payload) != nil {
			return
		}
		deliver := func(*mem.Outcome) {}
		if owner == r.own && r.deliver != nil {
			mine := r.deliver
			deliver = func(o *mem.Outcome) { mine(answer{ev.Generation, ev.What, o}) }
		}
		if ev.What == withdrew {
			r.meeting.Absent(ev.Key, ev.Member, ev.How, ev.Reason, deliver)
			return
		}
		r.meeting.Join(owner, keyOf(ev.What, ev.Key), ev.Member, ev.Payload, deliver)
	case gaveUp:
		r.meeting.Leave(owner, keyOf(joined, ev.Key), ev.Member.Rank, ev.How, ev.Reason)
		r.meeting.Leave(owner, keyOf(confirmed, ev.Key), ev.Member.Rank, ev.How, ev.Reason)
	case done:
		r.closed[owner] = true
		r.meeting.Depart(owner, rendezvous.Closed, "")
	}
}

// keyOf is the meeting's key for an exchange, or for its confirmation.
func keyOf(what, key string) string {
	if what == confirmed {
		return key + "\x00"
	}
	return key
}

// gone takes a removed key: if it is a rank's key, the rank's lease has ended. If that is rank 0, without an event
// since this rank came, it had died before, and its generation ends: the next rank 0 begins another one.
func (r *room) gone(prefix string, key []byte) {
	owner, isRank := strings.CutPrefix(strings.TrimPrefix(string(key), prefix), rankKeys)
	if !isRank {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.ranks[owner]
	delete(r.ranks, owner)
	if m.Rank == 0 && r.meeting != nil && !r.heard[owner] && r.meeting.Has(owner) {
		r.generation, r.meeting = "", nil
	}
	if r.meeting != nil && !r.closed[owner] {
		r.meeting.Depart(owner, rendezvous.Lost, "etcd got no keep-alive for "+leaseTime.String())
	}
	delete(r.closed, owner)
}

// begun returns the current generation; empty before rank 0 has come.
func (r *room) begun() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation
}

// expect sets where the outcome of this rank's exchange goes.
func (r *room) expect(deliver func(answer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deliver = deliver
}

// roll returns the known roll of an exchange.
func (r *room) roll(key string, size int) *rendezvous.Roll {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meeting != nil {
		for _, what := range []string{confirmed, joined} {
			if roll := r.meeting.Roll(keyOf(what, key)); roll != nil {
				roll.Key = key
				return roll
			}
		}
	}
	roll := &rendezvous.Roll{Key: key, Size: size}
	for _, m := range r.ranks {
		roll.Members = append(roll.Members, m)
	}
	roll.Sort()
	return roll
}
