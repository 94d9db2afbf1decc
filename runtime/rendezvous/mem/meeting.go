package mem

import (
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// maxKeys bounds what a program in a loop can make a process remember.
const maxKeys = 1 << 14

// Outcome is the end of a wait. One of Payloads, Failed and Refused is set. All ranks of an exchange share it.
type Outcome struct {
	Payloads [][]byte         // by rank
	Failed   *rendezvous.Roll // the exchange cannot complete
	Refused  string           // the id or the key cannot be used (any more), and why

	Encoded []byte // package tcp keeps here what it sends to all ranks, so that it is encoded once
}

// Meeting holds the exchanges of one unique id: the ranks that have joined them, and those that have left. It is safe
// for concurrent use.
type Meeting struct {
	mu        sync.Mutex
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
	deliver func(*Outcome)
}

// New returns the meeting of a number of ranks, or, with 0, of as many as the first rank says.
func New(size int) *Meeting {
	return &Meeting{size: size, seats: map[int]*seat{}, exchanges: map[string]*exchange{}}
}

// Join adds a rank to the exchange of a key. The owner is what speaks for the rank, a connection for instance: one rank
// has one owner. Deliver is called exactly once, from this or a later call; it must not block nor call back.
func (m *Meeting) Join(owner any, key string, rank rendezvous.Member, payload []byte, deliver func(*Outcome)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex, refused := m.exchange(key, rank.Size)
	if refused != nil {
		deliver(refused)
		return
	}
	rank.Arrived, rank.Left, rank.How = time.Now(), time.Time{}, rendezvous.Waiting

	previous := m.seats[rank.Rank]
	switch {
	case previous == nil:
		m.seats[rank.Rank] = &seat{owner: owner, member: rank}
	case previous.owner != owner:
		// Another process has this number: show both, unless the first is on the roll already.
		if !slices.ContainsFunc(ex.roll.Members, func(o rendezvous.Member) bool { return o.Rank == rank.Rank }) {
			ex.roll.Members = append(ex.roll.Members, previous.member)
		}
		ex.failed = true
	}
	_, twice := ex.waiting[rank.Rank]
	if twice || rank.Size != ex.roll.Size || rank.Rank < 0 || rank.Rank >= rank.Size {
		ex.failed = true
	}
	if len(ex.roll.Members) < 2*ex.roll.Size+16 { // more are a program that tries again and again
		ex.roll.Members = append(ex.roll.Members, rank)
	}

	if ex.failed {
		// Not put among the waiting: it may carry a number that is another's there.
		ex.fail()
		deliver(&Outcome{Failed: ex.snapshot()})
		return
	}
	ex.waiting[rank.Rank] = waiter{index: len(ex.roll.Members) - 1, payload: payload, deliver: deliver}
	if len(ex.waiting) == ex.roll.Size {
		payloads := make([][]byte, ex.roll.Size)
		for rank, w := range ex.waiting {
			payloads[rank] = w.payload
		}
		ex.done = true
		ex.drain(&Outcome{Payloads: payloads})
		ex.roll.Members = nil
	}
}

// exchange is that of a key, which is opened where it is new; or why a rank can't come to it.
func (m *Meeting) exchange(key string, size int) (ex *exchange, refused *Outcome) {
	ex = m.exchanges[key]
	switch {
	case m.forgotten != "":
		return nil, &Outcome{Refused: m.forgotten}
	case ex == nil && len(m.exchanges) >= maxKeys:
		return nil, &Outcome{Refused: "too many keys were used with this unique id; make a new one"}
	case ex == nil:
		ex = m.open(key, size)
	case ex.done:
		return nil, &Outcome{
			Refused: "this key was used before; each exchange of a unique id needs a key of its own",
		}
	}
	return ex, nil
}

// open starts an exchange. A rank that has left the id cannot come to it, so it has failed before it began.
func (m *Meeting) open(key string, size int) *exchange {
	if m.size > 0 {
		size = m.size
	}
	ex := &exchange{
		roll: rendezvous.Roll{Key: key, Size: size}, waiting: map[int]waiter{}, failed: m.departed > 0,
	}
	for _, s := range m.seats {
		if s.member.How != rendezvous.Waiting {
			ex.roll.Members = append(ex.roll.Members, absent(s.member))
		}
	}
	m.exchanges[key] = ex
	return ex
}

// absent is a member as seen by an exchange that it never came to.
func absent(rank rendezvous.Member) rendezvous.Member {
	rank.Arrived = time.Time{}
	return rank
}

// Has tells whether an owner speaks for a rank.
func (m *Meeting) Has(owner any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seats {
		if s.owner == owner {
			return true
		}
	}
	return false
}

// Leave takes a rank out of an exchange that it has joined, and which cannot complete without it. All that wait, the
// leaver too, are told. It does nothing when the exchange is over for that rank.
func (m *Meeting) Leave(owner any, key string, rank int, how rendezvous.Departure, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex := m.exchanges[key]
	if ex == nil {
		return
	}
	if w, ok := ex.waiting[rank]; ok && m.seats[rank].owner == owner {
		ex.roll.Members[w.index].Leave(how, detail)
		ex.fail()
	}
}

// Absent says that a rank will not join the exchange of a key. All that wait, and those that come yet, are told.
// Deliver is called once, with the exchange's end.
func (m *Meeting) Absent(
	key string, rank rendezvous.Member, how rendezvous.Departure, detail string, deliver func(*Outcome),
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex, refused := m.exchange(key, rank.Size)
	if refused != nil {
		deliver(refused)
		return
	}
	rank.Arrived = time.Time{}
	rank.Leave(how, detail)
	if len(ex.roll.Members) < 2*ex.roll.Size+16 {
		ex.roll.Members = append(ex.roll.Members, rank)
	}
	ex.fail()
	deliver(&Outcome{Failed: ex.snapshot()})
}

// Depart takes all ranks of an owner out of the id, for good. Every exchange that is not complete fails. It tells
// whether every rank has now come and left, so that nobody can need the id again.
func (m *Meeting) Depart(owner any, how rendezvous.Departure, detail string) (over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := m.size
	for rank, s := range m.seats {
		if size == 0 {
			size = s.member.Size
		}
		if s.owner != owner || s.member.How != rendezvous.Waiting {
			continue
		}
		s.member.Leave(how, detail)
		m.departed++
		for _, ex := range m.exchanges {
			if ex.done {
				continue
			}
			if w, ok := ex.waiting[rank]; ok {
				ex.roll.Members[w.index].Leave(how, detail)
			} else if !ex.failed {
				ex.roll.Members = append(ex.roll.Members, absent(s.member))
			}
			ex.fail()
		}
	}
	return size > 0 && len(m.seats) >= size && m.departed == len(m.seats)
}

// Forget ends the id: ranks that wait or still come are refused with the reason. It tells whether this was the first
// time.
func (m *Meeting) Forget(reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forgotten != "" {
		return false
	}
	m.forgotten = reason
	for _, ex := range m.exchanges {
		ex.drain(&Outcome{Refused: reason})
	}
	m.seats, m.exchanges = nil, nil
	return true
}

// Roll returns the state of an exchange, nil when nobody waits in it.
func (m *Meeting) Roll(key string) *rendezvous.Roll {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex := m.exchanges[key]
	if ex == nil || len(ex.waiting) == 0 {
		return nil
	}
	return ex.snapshot()
}

func (ex *exchange) fail() {
	ex.failed = true
	if len(ex.waiting) > 0 {
		ex.drain(&Outcome{Failed: ex.snapshot()})
	}
}

func (ex *exchange) drain(out *Outcome) {
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
