package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// ErrClosed means that the mesh was closed.
var ErrClosed = errors.New("mesh: closed")

const (
	// eventQueue is how many events wait for OnEvent.
	eventQueue = 1 << 16
	// directHost and directFar are how many members get a fate directly, besides by gossip: on the witness's host, and
	// elsewhere.
	directHost, directFar = 64, 16
	// leaveTime is how long Close waits until the members that watch this process know that it leaves.
	leaveTime = 500 * time.Millisecond
)

// Mesh is this process's membership in the job. Its methods may be called from any goroutine.
type Mesh struct {
	config    Config
	self      Member
	host      Host
	rand      *mathrand.Rand // safe for use by several goroutines, as its source is
	transport memberlist.Transport
	list      *memberlist.Memberlist
	gossip    memberlist.TransmitLimitedQueue
	count     Stats

	mu     sync.Mutex // never held while memberlist is called, which calls back under locks of its own
	table  *table
	events []Event
	told   chan struct{} // there are events

	watcher *watcher
	asker   *asker

	leaveKnown chan string // names of the members that know that this one leaves
	ctx        context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup
	closing    sync.Once
}

// Start makes this process a member, alone until Join. It listens before it returns. Close ends it.
func Start(c Config) (*Mesh, error) {
	c.Tuning, c.Bind = cmp.Or(c.Tuning, OneMachine()), cmp.Or(c.Bind, netip.MustParseAddrPort("127.0.0.1:0"))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Host, c.Rand = cmp.Or[Host](c.Host, kernel{}), cmp.Or[mathrand.Source](c.Rand, runtimeRand{})
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	if c.Handler == nil {
		c.Handler = func(context.Context, string, []byte) []byte { return nil }
	}
	if c.LocalNote == nil {
		c.LocalNote = func(Member) []byte { return nil }
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Self.Instance = 1e18 + mathrand.Uint64N(9e18) // always 19 digits: the length of a question is not random
	m := &Mesh{
		config: c, self: c.Self, host: c.Host, rand: mathrand.New(c.Rand), told: make(chan struct{}, 1),
		leaveKnown: make(chan string, directHost),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if err := m.open(); err != nil {
		m.cancel()
		return nil, err
	}
	m.running.Go(m.watcher.run)
	m.running.Go(m.tell)
	return m, nil
}

func (m *Mesh) open() error {
	if m.transport = m.config.Transport; m.transport == nil {
		s, err := newSeal(m.config.Secret, m.config.Job)
		if err != nil {
			return err
		}
		if m.transport, err = listen(m.config.Bind, m.config.Advertise, s, &m.count); err != nil {
			return err
		}
	}
	m.config.Secret = nil
	ip, port, err := m.transport.FinalAdvertiseAddr("", 0)
	if err != nil {
		return fmt.Errorf("mesh: find the address to advertise: %w", err)
	}
	addr, _ := netip.AddrFromSlice(ip)
	m.self.Addr = netip.AddrPortFrom(addr.Unmap(), uint16(port))
	m.table = newTable(m.self)
	m.table.join(m.self, time.Now())
	m.gossip.RetransmitMult = m.config.Tuning.RetransmitMult
	m.gossip.NumNodes = func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.table.entries)
	}
	m.watcher = newWatcher(m)
	m.asker = newAsker(m)
	config := m.config.memberlistConfig(&delegate{m})
	config.Transport = m.transport
	if m.list, err = memberlist.Create(config); err != nil {
		_ = m.transport.Shutdown()
		return fmt.Errorf("mesh: start memberlist: %w", err)
	}
	return nil
}

type runtimeRand struct{}

func (runtimeRand) Uint64() uint64 { return mathrand.Uint64() }

// Self is this process as the others see it, with its address.
func (m *Mesh) Self() Member { return m.self }

// Stats are the counters since the start.
func (m *Mesh) Stats() *Stats { return &m.count }

// Join exchanges members with those that listen at seeds. It tries until one of them answers or ctx ends; its own
// address among the seeds is ignored. It returns how many answered.
func (m *Mesh) Join(ctx context.Context, seeds ...netip.AddrPort) (int, error) {
	var addrs []string
	for _, s := range seeds {
		if s != m.self.Addr {
			addrs = append(addrs, s.String())
		}
	}
	if len(addrs) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(ErrClosed) })()
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		n, err := await(ctx, m, func() (int, error) { return m.list.Join(addrs) })
		if err == nil {
			return n, nil
		}
		// Members that start at once should not retry at once.
		if pause(ctx, wait/2+time.Duration(m.rand.Int64N(int64(wait)))); ctx.Err() != nil {
			return 0, fmt.Errorf("mesh: join: %w; the last attempt: %w", context.Cause(ctx), err)
		}
	}
}

// await runs f on a goroutine that Close waits for. It returns f's result, or an error as soon as ctx or the mesh ends.
func await[T any](ctx context.Context, m *Mesh, f func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	if !m.spawn(func() {
		v, err := f()
		done <- result{v, err}
	}) {
		return value, ErrClosed
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	case <-m.ctx.Done():
		return value, ErrClosed
	}
}

// spawn runs f on a goroutine that Close waits for. It reports false, and does nothing, if the mesh is closing.
func (m *Mesh) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.running.Go(f)
	return true
}

// Members returns all members by host and rank, including those that are gone or out of reach. A member that has been
// so for an hour is forgotten if another one has its rank; of the others, the latest 4,096 are kept.
func (m *Mesh) Members() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Status, 0, len(m.table.entries))
	for _, e := range m.table.entries {
		all = append(all, e.Status)
	}
	slices.SortFunc(all, func(a, b Status) int { return byHostAndRank(&a.Member, &b.Member) })
	return all
}

// Member is the state of the member of that name.
func (m *Mesh) Member(name string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.table.entries[name]
	if e == nil {
		return Status{}, false
	}
	return e.Status, true
}

// change lets f change the table, and queues the events.
func (m *Mesh) change(f func(*table) []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := f(m.table)
	if len(events) == 0 {
		return
	}
	m.events = append(m.events, events...)
	m.events = m.events[max(0, len(m.events)-eventQueue):]
	signal(m.told)
	if slices.ContainsFunc(events, func(e Event) bool { return e.Member.sameHost(&m.self) }) {
		m.table.near++
		signal(m.watcher.awake)
	}
}

// tell calls OnEvent with the events until the mesh is closed.
func (m *Mesh) tell() {
	for {
		select {
		case <-m.told:
		case <-m.ctx.Done():
			return
		}
		m.mu.Lock()
		events := m.events
		m.events = nil
		m.mu.Unlock()
		for _, e := range events {
			m.config.OnEvent(e)
		}
	}
}

// hear records a fate that a witness saw, and passes it on if it is new.
func (m *Mesh) hear(f *fate) (fresh bool) {
	m.change(func(t *table) (events []Event) {
		events, fresh = t.observe(f, time.Now())
		return events
	})
	if fresh {
		m.spread(f, 0, 0)
	}
	return fresh
}

// announce is hear for a fate that this process saw itself: it also sends it to members of its host, and to some
// elsewhere, directly.
func (m *Mesh) announce(f *fate) {
	if m.hear(f) {
		m.spread(f, directHost, directFar)
	}
}

// spread forwards a fate by gossip, and directly to near members of this host and to far members of others.
func (m *Mesh) spread(f *fate, near, far int) {
	b := fateMessage(f)
	m.gossip.QueueBroadcast(namedBroadcast{f.name, b})
	if near+far == 0 {
		return
	}
	m.mu.Lock()
	members := m.table.some(near, far, m.rand)
	m.mu.Unlock()
	for i := range members {
		m.send(&members[i], b)
	}
}

// send sends a small message as one packet. It may get lost: gossip and the next check make up for it.
func (m *Mesh) send(to *Member, b []byte) {
	_ = m.list.SendToAddress(memberlist.Address{Addr: to.Addr.String(), Name: to.Name}, b)
}

// namedBroadcast is a fate to gossip; a later one of the same member replaces it.
type namedBroadcast struct {
	name string
	b    []byte
}

var _ memberlist.NamedBroadcast = namedBroadcast{}

func (r namedBroadcast) Name() string    { return r.name }
func (r namedBroadcast) Message() []byte { return r.b }
func (r namedBroadcast) Finished()       {}
func (r namedBroadcast) Invalidates(o memberlist.Broadcast) bool {
	other, ok := o.(memberlist.NamedBroadcast)
	return ok && other.Name() == r.name
}

func (m *Mesh) receive(kind byte, body []byte) error {
	r := wire.NewReader(body)
	switch kind {
	case msgFate:
		if f := readFate(r); r.Err() == nil {
			m.hear(&f)
		}
	case msgCheck, msgLeave, msgLeaveAck:
		about := readInstance(r)
		switch st, known := m.Member(about.Name); {
		case r.Err() != nil:
		case kind == msgCheck:
			m.watcher.about(about.Name, m.watcher.check)
		case kind == msgLeave && known && st.Member.Instance == about.ID:
			m.hear(&fate{name: about.Name, instance: about.ID, state: Left, cause: CauseTold, by: about.Name})
			m.send(&st.Member, nameMessage(msgLeaveAck, m.self.instance()))
		case kind == msgLeaveAck:
			select {
			case m.leaveKnown <- about.Name:
			default:
			}
		}
	case msgQuestion:
		return m.asker.question(body)
	case msgAnswers:
		return m.asker.answers(body)
	default:
		return errMessage
	}
	return r.Err()
}

// Close leaves the mesh. It informs the others, and first the members that watch this process. It waits for its
// goroutines and for running calls of OnEvent and Handler, so neither may call it. Leaving takes at most half a second
// and two gossip intervals, as it doesn't wait for members out of reach. memberlist's own goroutines end within a few
// probe intervals.
func (m *Mesh) Close() error {
	var err error
	m.closing.Do(func() {
		m.announceLeave()
		// announceLeave has informed the members already, so a short time is enough.
		_ = m.list.Leave(2 * m.config.Tuning.GossipInterval)
		m.mu.Lock()
		m.cancel()
		m.mu.Unlock()
		if err = m.list.Shutdown(); err != nil {
			err = fmt.Errorf("mesh: close: %w", err)
		}
		m.running.Wait()
	})
	return err
}

// announceLeave informs the others that this member leaves, and waits until its watchers have confirmed: otherwise they
// would report its death.
func (m *Mesh) announceLeave() {
	m.mu.Lock()
	watchers := m.table.ring(-1)
	m.mu.Unlock()
	m.spread(&fate{
		name: m.self.Name, instance: m.self.Instance, state: Left, cause: CauseTold, by: m.self.Name,
	}, directHost, directFar)
	const tries = 5
	for range tries {
		watchers = slices.DeleteFunc(watchers, func(w Member) bool { // it is stopped, or left meanwhile
			st, ok := m.Member(w.Name)
			return !ok || !st.State.running()
		})
		for i := range watchers {
			m.send(&watchers[i], nameMessage(msgLeave, m.self.instance()))
		}
		over := time.After(leaveTime / tries)
		for waiting := true; waiting && len(watchers) > 0; {
			select {
			case name := <-m.leaveKnown:
				watchers = slices.DeleteFunc(watchers, func(w Member) bool { return w.Name == name })
			case <-over:
				waiting = false
			}
		}
	}
}
