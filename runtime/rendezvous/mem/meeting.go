package mem

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// maxKeys bounds the keys of one unique id, and so a meeting's memory.
const maxKeys = 1 << 14

// Outcome is the end of a wait. One of Payloads, Failed and Refused is set. All ranks of an exchange share it.
type Outcome struct {
	Payloads [][]byte         // by rank
	Failed   *rendezvous.Roll // the exchange cannot complete
	Refused  string           // the id or the key cannot be used (any more), and why

	Encoded []byte // package tcp's encoding of the outcome, which it makes once for all ranks
}

// Result is what Exchange returns to a rank that has waited since the given time, with payloads that the ranks share.
// cause is what ended its own wait; nil if another rank did, or none.
func (o *Outcome) Result(key string, rank int, since time.Time, cause error) ([][]byte, error) {
	switch {
	case o.Failed != nil:
		roll := *o.Failed // which all ranks share
		roll.Key = key
		return nil, roll.Err(rank, since, cause)
	case o.Refused != "":
		return nil, errors.Join(cause, &rendezvous.StaleError{Key: key, Self: rank, Detail: o.Refused})
	default:
		return o.Payloads, nil
	}
}

// Meeting has the exchanges of one unique id: the ranks that have joined them, and those that have left. It is safe for
// concurrent use.
type Meeting struct {
	mu        sync.Mutex
	ranks     map[int]*claim
	exchanges map[string]*exchange
	departed  int
	forgotten string

	said rendezvous.Member // the first one that says who doesn't come; the others must not contradict it
	told func(*Outcome)    // of the first contradiction; may be nil
}

// claim is a rank's first owner, across all exchanges.
type claim struct {
	owner  any
	member rendezvous.Member
}

type exchange struct {
	roll    rendezvous.Roll
	waiting map[int]waiter
	done    bool // complete: its key can't be used again
	failed  bool // ranks that still join are told at once
}

type waiter struct {
	index   int // in roll.Members
	payload []byte
	deliver func(*Outcome)
}

// New returns a meeting. How many ranks there are, they say themselves, and must agree on.
func New() *Meeting {
	return &Meeting{ranks: map[int]*claim{}, exchanges: map[string]*exchange{}}
}

// Hold makes the meeting one to which nobody may come who contradicts a member, whether that comes itself or not. told
// is called with the first such exchange; it must neither block nor call the Meeting.
func (m *Meeting) Hold(member rendezvous.Member, told func(*Outcome)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said, m.told = member, told
	for key, ex := range m.exchanges { // others may have come before
		if i := slices.IndexFunc(ex.roll.Members, member.Contradicts); i >= 0 {
			m.refute(key, ex.roll.Members[i])
		}
	}
}

// refute compares a rank that comes to an exchange, or won't, with the first one that said who doesn't come. If they
// contradict each other, it returns the outcome for the rank, and fails the exchange.
func (m *Meeting) refute(key string, rank rendezvous.Member) *Outcome {
	if m.said.Without == "" {
		m.said = rank
	}
	if !rank.Contradicts(m.said) {
		return nil
	}
	roll := &rendezvous.Roll{Key: key, Size: rank.Size, Members: []rendezvous.Member{m.said, rank}}
	out := &Outcome{Failed: roll}
	if ex := m.exchanges[key]; ex != nil && !ex.done {
		if !ex.failed {
			ex.roll.Members = append(ex.roll.Members, roll.Members...)
		}
		ex.fail()
	}
	if m.told != nil {
		m.told(out)
		m.told = nil
	}
	return out
}

// Join adds a rank to the exchange of a key. The owner stands for the rank's process, as its connection does: one rank
// has one owner. Deliver is called exactly once, by this call or a later one; it must neither block nor call the
// Meeting.
func (m *Meeting) Join(owner any, key string, rank rendezvous.Member, payload []byte, deliver func(*Outcome)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if refuted := m.refute(key, rank); refuted != nil {
		deliver(refuted)
		return
	}
	ex, refused := m.exchange(key, rank.Size)
	if refused != nil {
		deliver(refused)
		return
	}
	rank.Arrived, rank.Left, rank.How = time.Now(), time.Time{}, rendezvous.Waiting

	previous := m.ranks[rank.Rank]
	switch {
	case previous == nil:
		m.ranks[rank.Rank] = &claim{owner: owner, member: rank}
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
	if len(ex.roll.Members) < 2*ex.roll.Size+16 { // a program in a loop may send any number
		ex.roll.Members = append(ex.roll.Members, rank)
	}

	if ex.failed {
		// It is not added to the waiting ranks, as another one with its number may be there.
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

// exchange is the exchange of a key, which is made if the key is new, or why a rank can't join it.
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

// open makes an exchange. If a rank has left the id, it has failed from the beginning.
func (m *Meeting) open(key string, size int) *exchange {
	ex := &exchange{
		roll: rendezvous.Roll{Key: key, Size: size}, waiting: map[int]waiter{}, failed: m.departed > 0,
	}
	for _, s := range m.ranks {
		if s.member.How != rendezvous.Waiting {
			ex.roll.Members = append(ex.roll.Members, absent(s.member))
		}
	}
	m.exchanges[key] = ex
	return ex
}

// absent is a member in the roll of an exchange that it never joined.
func absent(rank rendezvous.Member) rendezvous.Member {
	rank.Arrived = time.Time{}
	return rank
}

// Has tells whether an owner has a rank.
func (m *Meeting) Has(owner any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.ranks {
		if s.owner == owner {
			return true
		}
	}
	return false
}

// Leave removes a rank from an exchange that it has joined, which fails then. All ranks that wait, including this one,
// get the outcome. It does nothing if the exchange has ended for that rank.
func (m *Meeting) Leave(owner any, key string, rank int, how rendezvous.Departure, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex := m.exchanges[key]
	if ex == nil {
		return
	}
	if w, ok := ex.waiting[rank]; ok && m.ranks[rank].owner == owner {
		ex.roll.Members[w.index].Leave(how, detail)
		ex.fail()
	}
}

// Absent says that a rank will not join the exchange of a key, which fails then for all ranks that wait or come later.
// Deliver is called once, with the outcome.
func (m *Meeting) Absent(
	key string, rank rendezvous.Member, how rendezvous.Departure, detail string, deliver func(*Outcome),
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if refuted := m.refute(key, rank); refuted != nil {
		deliver(refuted)
		return
	}
	ex, refused := m.exchange(key, rank.Size)
	if refused != nil {
		deliver(refused)
		return
	}
	rank.Arrived = time.Time{}
	rank.Leave(how, detail)
	again := func(o rendezvous.Member) bool { // it may ask again and again
		return o.Arrived.IsZero() && o.Rank == rank.Rank && o.Where() == rank.Where()
	}
	if i := slices.IndexFunc(ex.roll.Members, again); i >= 0 {
		ex.roll.Members[i] = rank
	} else if len(ex.roll.Members) < 2*ex.roll.Size+16 {
		ex.roll.Members = append(ex.roll.Members, rank)
	}
	ex.fail()
	deliver(&Outcome{Failed: ex.snapshot()})
}

// Depart removes all ranks of an owner from the id for good. Every incomplete exchange fails. It tells whether all
// ranks have now come and left, so that the id is not needed any more.
func (m *Meeting) Depart(owner any, how rendezvous.Departure, detail string) (over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := 0
	for rank, s := range m.ranks {
		size = max(size, s.member.Size)
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
	return size > 0 && len(m.ranks) >= size && m.departed == len(m.ranks)
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
	m.ranks, m.exchanges = nil, nil
	return true
}

// Roll returns the state of an exchange, nil if no rank waits in it.
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
