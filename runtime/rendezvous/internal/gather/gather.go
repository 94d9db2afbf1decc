// Package gather is the pure machine behind every rendezvous: the exchanges of one unique id, the ranks that have
// joined them and those that have left. It has no lock, no clock and no I/O. Its owner serialises the calls, tells the
// time, and delivers what comes out.
package gather

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// maxKeys bounds what a program in a loop can make a server remember.
const maxKeys = 1 << 14

// Outcome is the end of one rank's wait. Exactly one field is set.
type Outcome struct {
	Payloads [][]byte         // by rank; shared by all receivers of the exchange
	Failed   *rendezvous.Roll // the exchange cannot complete; shared, not to be written
	Refused  string           // the id or the key cannot be used (any more), and why
}

// Gather holds the exchanges of one unique id.
type Gather struct {
	size      int // 0: whatever the first rank says
	seats     map[int]*seat
	exchanges map[string]*exchange
	departed  int
	forgotten string
}

// seat is what an id remembers of a rank across its exchanges.
type seat struct {
	owner  any
	member rendezvous.Member
}

type exchange struct {
	roll    rendezvous.Roll
	waiting map[int]waiter
	done    bool // complete: its key is used up
	failed  bool // some rank cannot come any more: those that still join are told at once
}

type waiter struct {
	index   int // in roll.Members
	payload []byte
	deliver func(Outcome)
}

// New returns the machine for an id with the given number of ranks, or, with 0, with as many as the first rank says.
func New(size int) *Gather {
	return &Gather{size: size, seats: map[int]*seat{}, exchanges: map[string]*exchange{}}
}

// Join adds a rank to the exchange of a key. The owner is what speaks for the rank, a connection for instance: one rank
// has one owner. Deliver is called exactly once, from this or a later call into the machine; it must not block nor call
// back.
func (g *Gather) Join(
	now time.Time, owner any, key string, m rendezvous.Member, payload []byte, deliver func(Outcome),
) {
	if g.forgotten != "" {
		deliver(Outcome{Refused: g.forgotten})
		return
	}
	ex := g.exchanges[key]
	if ex == nil {
		if len(g.exchanges) >= maxKeys {
			deliver(Outcome{Refused: "too many keys were used with this unique id; make a new one"})
			return
		}
		ex = g.open(key, m.Size)
	}
	if ex.done {
		deliver(Outcome{Refused: "this key was used before; each exchange of a unique id needs a key of its own"})
		return
	}
	m.Arrived, m.Left, m.How = now, time.Time{}, rendezvous.Waiting

	previous := g.seats[m.Rank]
	switch {
	case previous == nil:
		g.seats[m.Rank] = &seat{owner: owner, member: m}
	case previous.owner != owner:
		// Another process has this number: show both, unless the first is on the roll already.
		if !slices.ContainsFunc(ex.roll.Members, func(o rendezvous.Member) bool { return o.Rank == m.Rank }) {
			ex.roll.Members = append(ex.roll.Members, previous.member)
		}
		ex.failed = true
	}
	if _, twice := ex.waiting[m.Rank]; twice {
		ex.failed = true
	}
	if m.Size != ex.roll.Size || m.Rank < 0 || m.Rank >= m.Size {
		ex.failed = true
	}
	if len(ex.roll.Members) < 2*ex.roll.Size+16 { // more are a program that tries again and again
		ex.roll.Members = append(ex.roll.Members, m)
	}

	if ex.failed {
		// Not put among the waiting: it may carry a number that is another's there.
		ex.fail()
		deliver(Outcome{Failed: ex.snapshot()})
		return
	}
	ex.waiting[m.Rank] = waiter{index: len(ex.roll.Members) - 1, payload: payload, deliver: deliver}
	if len(ex.waiting) == ex.roll.Size {
		ex.complete()
	}
}

// open starts an exchange. A rank that has left the id cannot come to it, so it has failed before it began.
func (g *Gather) open(key string, size int) *exchange {
	if g.size > 0 {
		size = g.size
	}
	ex := &exchange{roll: rendezvous.Roll{Key: key, Size: size}, waiting: map[int]waiter{}}
	if g.departed > 0 {
		ex.failed = true
		for _, s := range g.seats {
			if s.member.How != rendezvous.Waiting {
				ex.roll.Members = append(ex.roll.Members, absent(s.member))
			}
		}
	}
	g.exchanges[key] = ex
	return ex
}

// absent is a member as seen by an exchange that it never came to.
func absent(m rendezvous.Member) rendezvous.Member {
	m.Arrived = time.Time{}
	return m
}

// Leave takes a rank that gave up out of an exchange, which cannot complete without it. All that wait, the leaver
// too, are told. It does nothing when the exchange is over for that rank.
func (g *Gather) Leave(now time.Time, owner any, key string, rank int, detail string) {
	ex := g.exchanges[key]
	if ex == nil {
		return
	}
	w, ok := ex.waiting[rank]
	if !ok || g.seats[rank].owner != owner {
		return
	}
	m := &ex.roll.Members[w.index]
	m.Left, m.How, m.Detail = now, rendezvous.GaveUp, detail
	ex.fail()
}

// Depart takes all ranks of an owner out of the id, for good. Every exchange that is not complete fails.
func (g *Gather) Depart(now time.Time, owner any, how rendezvous.Departure, detail string) {
	for rank, s := range g.seats {
		if s.owner != owner || s.member.How != rendezvous.Waiting {
			continue
		}
		s.member.Left, s.member.How, s.member.Detail = now, how, detail
		g.departed++
		for _, ex := range g.exchanges {
			if ex.done {
				continue
			}
			if w, ok := ex.waiting[rank]; ok {
				m := &ex.roll.Members[w.index]
				m.Left, m.How, m.Detail = now, how, detail
			} else if !ex.failed {
				ex.roll.Members = append(ex.roll.Members, absent(s.member))
			}
			ex.fail()
		}
	}
}

// Forget ends the id: ranks that wait or still come are refused with the reason.
func (g *Gather) Forget(reason string) {
	g.forgotten = reason
	for _, ex := range g.exchanges {
		ex.drain(Outcome{Refused: reason})
	}
	g.seats, g.exchanges = nil, nil
}

// Roll returns the state of an exchange, false when nobody waits in it.
func (g *Gather) Roll(key string) (*rendezvous.Roll, bool) {
	ex := g.exchanges[key]
	if ex == nil || len(ex.waiting) == 0 {
		return nil, false
	}
	return ex.snapshot(), true
}

// Open returns the keys of the exchanges in which somebody waits, sorted.
func (g *Gather) Open() []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(g.exchanges)) {
		if len(g.exchanges[key].waiting) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Done reports whether every rank has come and left, so that nobody can need the id again.
func (g *Gather) Done() bool {
	size := g.size
	for _, s := range g.seats {
		if size == 0 {
			size = s.member.Size
		}
	}
	return size > 0 && len(g.seats) >= size && g.departed == len(g.seats)
}

func (ex *exchange) complete() {
	payloads := make([][]byte, ex.roll.Size)
	for rank, w := range ex.waiting {
		payloads[rank] = w.payload
	}
	ex.done = true
	ex.drain(Outcome{Payloads: payloads})
	ex.roll.Members = nil
}

func (ex *exchange) fail() {
	ex.failed = true
	if len(ex.waiting) > 0 {
		ex.drain(Outcome{Failed: ex.snapshot()})
	}
}

func (ex *exchange) drain(out Outcome) {
	waiting := ex.waiting
	ex.waiting = nil
	for _, w := range waiting {
		w.deliver(out)
	}
}

func (ex *exchange) snapshot() *rendezvous.Roll {
	roll := ex.roll
	roll.Members = slices.Clone(roll.Members)
	roll.Sort()
	return &roll
}
