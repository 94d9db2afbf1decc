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
	Failed   *rendezvous.Roll // set if the exchange cannot complete
	Refused  string           // says why the id or the key can't be used, or no longer

	Encoded []byte // package tcp's encoding of the outcome, which it makes once for all ranks
}

// Result returns the results of Exchange for a rank that has waited since the given time; the ranks share the payloads.
// cause is what ended the rank's own wait; nil if another rank or nothing did.
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

// Meeting holds the exchanges of one unique id: the ranks that have joined them, and those that have left. It is safe
// for concurrent use.
type Meeting struct {
	mu        sync.Mutex
	ranks     map[int]*claim
	exchanges map[string]*exchange
	departed  int
	forgotten string

	said rendezvous.Member // the first member with Without set; the others must not contradict it
	told func(*Outcome)    // called with the first contradiction; may be nil
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
	failed  bool // ranks that still join get the outcome at once
}

type waiter struct {
	index   int // in roll.Members
	payload []byte
	deliver func(*Outcome)
}

// New returns a meeting. The ranks themselves say how many they are, and must agree.
func New() *Meeting {
	return &Meeting{ranks: map[int]*claim{}, exchanges: map[string]*exchange{}}
}

// Hold makes the meeting refuse ranks that contradict member, whether member itself comes or not. told is called with
// the outcome of the first such exchange; it must neither block nor call the Meeting.
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

// refute compares a rank that comes to an exchange, or won't, with the first member that named absent ranks. If they
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

// Join adds a rank to the exchange of a key. The owner stands for the rank's process, for instance its connection: one
// rank has one owner. deliver is called exactly once, by this call or a later one; it must neither block nor call the
// Meeting.
func (m *Meeting) Join(owner any, key string, rank rendezvous.Member, payload []byte, deliver func(*Outcome)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex, refused := m.exchange(key, rank)
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
	ex.list(rank)
	if ex.failed {
		// It is not added to the waiting ranks, as another process with its number may be there.
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

// exchange returns the exchange of a key, which it makes if the key is new, or why a rank can't take part in it.
func (m *Meeting) exchange(key string, rank rendezvous.Member) (ex *exchange, refused *Outcome) {
	if refuted := m.refute(key, rank); refuted != nil {
		return nil, refuted
	}
	ex = m.exchanges[key]
	switch {
	case m.forgotten != "":
		return nil, &Outcome{Refused: m.forgotten}
	case ex == nil && len(m.exchanges) >= maxKeys:
		return nil, &Outcome{Refused: "too many keys were used with this unique id; make a new one"}
	case ex == nil:
		ex = m.open(key, rank.Size)
	case ex.done:
		return nil, &Outcome{
			Refused: "this key was used before; each exchange of a unique id needs a key of its own",
		}
	}
	return ex, nil
}

// open makes an exchange. If a rank has left the id, the exchange has failed from the beginning.
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

// absent returns a member for the roll of an exchange that it never joined.
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

// Leave removes a rank from an exchange that it has joined; the exchange fails. All waiting ranks, including this one,
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

// Absent says that a rank will not join the exchange of a key; the exchange fails for all ranks that wait or come
// later. deliver is called once, with the outcome.
func (m *Meeting) Absent(
	key string, rank rendezvous.Member, how rendezvous.Departure, detail string, deliver func(*Outcome),
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ex, refused := m.exchange(key, rank)
	if refused != nil {
		deliver(refused)
		return
	}
	rank.Arrived = time.Time{}
	rank.Leave(how, detail)
	again := func(o rendezvous.Member) bool { // it may repeat the call
		return o.Arrived.IsZero() && o.Rank == rank.Rank && o.Where() == rank.Where()
	}
	if i := slices.IndexFunc(ex.roll.Members, again); i >= 0 {
		ex.roll.Members[i] = rank
	} else {
		ex.list(rank)
	}
	ex.fail()
	deliver(&Outcome{Failed: ex.snapshot()})
}

// Depart removes all ranks of an owner from the id for good. Every incomplete exchange fails. It tells whether all
// ranks have now come and left, so that the id is no longer needed.
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

// list puts a member on the roll, up to a bound: a program in a loop may send any number.
func (ex *exchange) list(member rendezvous.Member) {
	if len(ex.roll.Members) < 2*ex.roll.Size+16 {
		ex.roll.Members = append(ex.roll.Members, member)
	}
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
