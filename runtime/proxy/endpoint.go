package proxy

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
)

// Card is what the other ranks of a communicator need to know about a rank's proxy.
type Card struct {
	Generation uint64
	FD         int // descriptor of the segment, in the rank's process; -1 for none
	Token      [16]byte
	UID        int // the user that can open the segment
}

// Member is a rank of a communicator, with its Card.
type Member struct {
	Card
	PID   int
	Local bool      // it uses the same Proxy
	Bell  *shm.Conn // the connection to a rank of another process of the node
}

// Endpoint is a rank of a communicator at its process's proxy. It has the rank's connections, which other ranks of its
// node also use, and the rank's streams over its own connections and those of other ranks.
type Endpoint struct {
	p     *Proxy
	token Token

	profile atomic.Pointer[profiler.Comm] // gets the events of operations that its rails send; see Profile

	mu      sync.Mutex
	phase   phase
	pending []*op        // operations of other ranks that arrived before Open
	users   map[int]bool // ranks that it may have to send for, including itself
	closed  bool
	onShut  []func()

	refused atomic.Pointer[func(error)] // see OnRefused

	// Set by Open.
	self    int
	routes  Routes
	members []Member
	waiter  *transport.Waiter
	window  uint64
	rails   map[int]*rail // by peer
	conns   []*Conn       // by peer; nil for peers on the same node

	// For the goroutine that drives the rank: the rails of this process with unsent data, and the carriers of other
	// processes that were not rung yet.
	unsent []*rail
	unrung []unrung
	polled []*tcp.Conn // the rails' connections
	next   int         // index in polled of the last one that Poll looked at
}

// unrung is a carrier that was given data and not rung since.
type unrung struct {
	c     *Conn // one of the streams that it carries
	bytes int
	large bool // a piece of the data is too large to be sent together with others
}

type phase uint8

const (
	prepared phase = iota
	open
	shut // it sends nothing more
)

// Prepare makes the Endpoint of a rank before it knows the others. It must be closed.
func (p *Proxy) Prepare(comm lifecycle.CommID) *Endpoint {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	e := &Endpoint{p: p, users: map[int]bool{}, token: Token{
		Comm: comm, PID: p.pid, Generation: binary.LittleEndian.Uint64(b[:]),
	}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints[e.token.Generation] = e
	return e
}

// Card returns the Endpoint's card.
func (e *Endpoint) Card() Card {
	c := e.p.card
	c.Generation = e.token.Generation
	return c
}

// The bounds of the bytes that a rank may send ahead of a receiver, and of the memory for these per communicator.
const (
	minWindow    = 64 << 10
	maxWindow    = 2 << 20
	windowBudget = 64 << 20
)

// windowFor returns the most bytes that a rank of a communicator of that size sends ahead of a receiver; a power of
// two.
func windowFor(ranks int) uint64 {
	w := uint64(maxWindow)
	for w > minWindow && w*uint64(ranks) > windowBudget {
		w /= 2
	}
	return w
}

// Open makes the streams of rank self to the remote ranks; all of them ring waiter. The caller connects and attaches
// the rails that Rails returns. The error is a PeerError that names a rank of this node whose memory can't be opened.
func (e *Endpoint) Open(self int, routes Routes, members []Member, remote []int, waiter *transport.Waiter) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.self, e.routes, e.members, e.waiter = self, routes, members, waiter
	e.token.Rank = self
	e.window = windowFor(len(members))
	e.rails, e.conns = make(map[int]*rail), make([]*Conn, len(members))
	for _, peer := range remote {
		if routes.Connected(self, peer) {
			e.rails[peer] = &rail{e: e, peer: peer, stage: make([]byte, 0, stageBytes)}
		}
		r := e.rails[peer]
		for _, neighbour := range routes.Ranks[routes.Node[self]] {
			if routes.Carries(self, neighbour, peer) {
				e.users[neighbour] = true
				r.coalescer.all |= 1 << (routes.index[neighbour] % 64)
			}
		}
		c := &Conn{
			e: e, peer: peer, number: e.p.streams.Add(1), carrier: routes.Carrier(self, peer),
			moved: make(chan struct{}, 1),
		}
		c.granted.Store(e.window)
		e.conns[peer] = c
		carrier := &members[c.carrier]
		if carrier.Local {
			c.via = e.p.endpoint(carrier.Generation)
			if c.via == nil {
				return e.unreachable(c, errClosed)
			}
			continue
		}
		m, err := e.p.neighbour(carrier)
		if err != nil {
			return e.unreachable(c, err)
		}
		c.neighbour, c.bell = m, carrier.Bell
	}
	e.phase = open
	e.p.start(e)
	waiting := e.pending
	e.pending = nil
	for _, o := range waiting {
		if r := e.accept(o); r != nil {
			r.kick()
		}
	}
	return nil
}

// Rails returns the peers to which the rank needs a connection.
func (e *Endpoint) Rails() []int { return slices.Collect(maps.Keys(e.rails)) }

// Rail returns the user of the connection to a peer.
func (e *Endpoint) Rail(peer int) tcp.User { return e.rails[peer] }

// Attach hands over the connection to a peer.
func (e *Endpoint) Attach(peer int, c *tcp.Conn) {
	r := e.rails[peer]
	if e.p.segment != nil && e.routes.PXN && c.Splices() {
		e.p.openPipes()
	}
	r.conn.Store(c)
	e.mu.Lock()
	e.polled = append(e.polled, c)
	e.mu.Unlock()
	r.kick()
}

// pollAtMost is how many connections one Poll looks at: each costs a system call.
const pollAtMost = 4

// Poll receives data that has arrived for the rank, from a few connections at a time, and reports whether there was
// any. It is for the goroutine that drives the rank, once all connections are attached.
func (e *Endpoint) Poll() (moved bool) {
	for range min(len(e.polled), pollAtMost) {
		e.next = (e.next + 1) % len(e.polled)
		moved = e.polled[e.next].Poll() || moved
	}
	return moved
}

// Conn returns the stream to and from a peer.
func (e *Endpoint) Conn(peer int) *Conn { return e.conns[peer] }

// submit queues an operation of this process, and sends as much as possible.
func (e *Endpoint) submit(o *op) {
	if r := e.queue(o); r != nil {
		r.kick()
	}
}

// queue queues an operation of this process, and returns its rail, which the caller must kick.
func (e *Endpoint) queue(o *op) *rail {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accept(o)
}

// Attend sends this rank's queued data together with that of other processes, and rings the processes that carry for
// this rank. It reports whether other processes had submitted something. A rank that is in an operation calls it before
// it waits, and when it leaves.
func (e *Endpoint) Attend() (moved bool) {
	moved = e.p.attend(e)
	next := e.waiter.Round()
	if next != 0 && !e.waiter.Attends() {
		next++ // this round is over for the rank
	}
	held := e.unsent[:0]
	for _, r := range e.unsent {
		if r.waitsForOthers(next) {
			held = append(held, r)
		} else {
			r.kick()
		}
	}
	clear(e.unsent[len(held):])
	e.unsent = held
	for _, u := range e.unrung {
		if u.bytes > 0 {
			u.c.ringCarrier(next != 0 && !u.large)
		}
	}
	clear(e.unrung)
	e.unrung = e.unrung[:0]
	return moved
}

// sendLate sends data that has waited for other ranks for too long.
func (e *Endpoint) sendLate() {
	e.mu.Lock()
	rails := e.rails
	if e.phase != open {
		rails = nil
	}
	e.mu.Unlock()
	for _, r := range rails {
		if r.late() {
			r.kick()
		}
	}
}

// later makes the rank's next Attend kick a rail.
func (e *Endpoint) later(r *rail) {
	if !slices.Contains(e.unsent, r) {
		e.unsent = append(e.unsent, r)
	}
}

// ringBytes is how much data a rank in an operation submits to a carrier before it rings the carrier.
const ringBytes = 128 << 10

// ringLater makes the rank's next Attend ring the carrier of c for n more bytes. It returns false if the carrier has
// got so much since it was last rung that the caller must ring it now.
func (e *Endpoint) ringLater(c *Conn, n int) bool {
	i := slices.IndexFunc(e.unrung, func(u unrung) bool { return u.c.carrier == c.carrier })
	if i < 0 {
		i = len(e.unrung)
		e.unrung = append(e.unrung, unrung{c: c})
	}
	u := &e.unrung[i]
	u.bytes, u.large = u.bytes+n, u.large || n > packBytes
	if u.bytes < ringBytes {
		return true
	}
	u.bytes, u.large = 0, false
	return false
}

// accept queues an operation on its rail, and returns the rail, which the caller must kick. e.mu is held.
func (e *Endpoint) accept(o *op) *rail {
	switch e.phase {
	case prepared:
		e.pending = append(e.pending, o)
		return nil
	case shut:
		e.p.complete(o, len(o.data))
		return nil
	case open:
	}
	if err := e.check(o); err != nil {
		e.p.refuse(e, err)
		e.p.complete(o, len(o.data))
		return nil
	}
	if o.kind == kindLeave {
		e.release(o.token.Rank)
		e.p.complete(o, 0)
		return nil
	}
	e.profileStart(o)
	r := e.rails[o.to]
	r.push(o)
	return r
}

// holds reports whether there is queued data for a rank.
func (e *Endpoint) holds(to int) bool {
	e.mu.Lock()
	r := e.rails[to]
	e.mu.Unlock()
	if r == nil {
		return false
	}
	return r.full.Load()
}

// check checks an operation when it enters the process: this rank must be the carrier.
func (e *Endpoint) check(o *op) error {
	from := o.token.Rank
	if from < 0 || from >= len(e.members) || e.routes.Node[from] != e.routes.Node[e.self] {
		return fmt.Errorf("%w: rank %d is not of the node of rank %d", ErrToken, from, e.self)
	}
	if err := o.token.fits(e.of(from)); err != nil {
		return err
	}
	if o.piped && (!o.kind.isData() || len(o.data) == 0 || buffered(e.p.pipe(o.slot)) != len(o.data)) {
		return fmt.Errorf("%w: rank %d says of a pipe what is not so", ErrToken, from)
	}
	tooLong := o.kind != kindData && len(o.data) > o.kind.maxBytes() // data is cut into steps
	if o.kind == 0 || o.kind >= kinds || o.kind == kindLost && from != e.self || tooLong {
		return fmt.Errorf("%w: rank %d asks for operation %d with %d bytes", ErrToken, from, o.kind, len(o.data))
	}
	if o.kind != kindLeave && (e.rails[o.to] == nil || !e.routes.Carries(e.self, from, o.to)) {
		return fmt.Errorf("%w: rank %d does not carry from rank %d to rank %d", ErrToken, e.self, from, o.to)
	}
	return nil
}

// of returns the token of a rank.
func (e *Endpoint) of(rank int) Token {
	m := &e.members[rank]
	return Token{Comm: e.token.Comm, Rank: rank, PID: m.PID, Generation: m.Generation}
}

// admit checks a step when it enters the node: the peer must be the sender's carrier. It returns the step's stream.
func (e *Endpoint) admit(peer int, h *header) (*Conn, error) {
	if h.from < 0 || h.from >= len(e.conns) || e.conns[h.from] == nil || h.to != e.self {
		return nil, fmt.Errorf("%w: rank %d sends from rank %d to rank %d", ErrToken, peer, h.from, h.to)
	}
	if carrier := e.routes.Carrier(h.from, e.self); carrier != peer {
		return nil, fmt.Errorf("%w: rank %d sends for rank %d, for which rank %d does",
			ErrToken, peer, h.from, carrier)
	}
	got := Token{Comm: e.token.Comm, Rank: h.from, PID: h.pid, Generation: h.generation}
	if err := got.fits(e.of(h.from)); err != nil {
		return nil, err
	}
	return e.conns[h.from], nil
}

// detach takes back an operation of this process, and its memory.
func (e *Endpoint) detach(o *op) {
	e.mu.Lock()
	r, i := e.rails[o.to], slices.Index(e.pending, o)
	if i >= 0 {
		e.pending = slices.Delete(e.pending, i, i+1)
	}
	e.mu.Unlock()
	if i < 0 && r != nil {
		r.detach(o)
	}
}

// railLost marks the peers of all streams over a rail as lost. err is nil if the rail was closed in order.
func (e *Endpoint) railLost(r *rail, err error) {
	for _, c := range e.conns {
		if c == nil || e.routes.Carrier(c.peer, e.self) != r.peer {
			continue
		}
		switch {
		case c.peer != r.peer:
			c.lost(e.carrierLost(r.peer, fmt.Sprintf("what rank %d sent", c.peer), err))
		case err == nil:
			c.end(transport.PeerClosed(c.peer))
		default:
			c.lost(err)
		}
	}
	if e.routes.Carrier(r.peer, e.self) != r.peer && err != nil && lifecycle.CodeOf(err) != lifecycle.CodeRankDead {
		e.conns[r.peer].lost(err) // it can't be reached; its own carrier reports its death, after its data
	}
}

var errClosed = errors.New("it has closed")

// unreachable returns the error of a stream whose carrier can't be reached from this process.
func (e *Endpoint) unreachable(c *Conn, why error) error {
	return &lifecycle.PeerError{
		Code: lifecycle.CodeUnreachable, Rank: c.carrier, Self: e.self, Comm: e.token.Comm, Err: why,
		Detail: fmt.Sprintf("it carries what is for rank %d (NCCL_PXN_DISABLE=1 does without)", c.peer),
	}
}

// carrierLost returns the error of a stream whose carrier is lost. why is nil if it closed the connection.
func (e *Endpoint) carrierLost(carrier int, carried string, why error) error {
	lost := &lifecycle.PeerError{
		Code: lifecycle.CodeUnreachable, Rank: carrier, Self: e.self, Comm: e.token.Comm,
		Detail: fmt.Sprintf("it closed the connection, and carried %s", carried),
	}
	switch of, ok := errors.AsType[*lifecycle.PeerError](why); {
	case ok:
		lost.Code, lost.Detail, lost.Err = of.Code, fmt.Sprintf("%s; it carried %s", of.Detail, carried), of.Err
	case why != nil:
		lost.Detail, lost.Err = "it carried "+carried, why
	}
	return lost
}

// LocalRankDied reports that the process of a rank of this node has ended. The streams that it carried are lost, and
// the peers of the streams that this rank carried for it are told.
func (e *Endpoint) LocalRankDied(rank int, err error) {
	e.mu.Lock()
	isOpen := e.phase == open
	e.mu.Unlock()
	if !isOpen {
		return
	}
	for _, c := range e.conns {
		if c != nil && c.carrier == rank {
			c.lost(e.carrierLost(rank, fmt.Sprintf("what is for rank %d", c.peer), err))
		}
	}
	e.p.noteDead(e, rank)
}

// OnShut makes the Endpoint call f when no rank needs it any more, for instance to stop watching for LocalRankDied.
func (e *Endpoint) OnShut(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == shut {
		f()
	} else {
		e.onShut = append(e.onShut, f)
	}
}

// OnRefused makes the Endpoint call f for each operation that it refuses because of its token. f must not call the
// Endpoint.
func (e *Endpoint) OnRefused(f func(error)) { e.refused.Store(&f) }

// announceDeath tells the peers of a dead rank that it is dead, after all its data.
func (e *Endpoint) announceDeath(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.users[rank] || e.phase != open {
		return
	}
	notice := transport.AppendNotice(nil, transport.Notice{
		Code: lifecycle.CodeRankDead, Culprit: int32(rank),
		Detail: fmt.Sprintf("process %d of its host ended", e.members[rank].PID),
	})
	for to, r := range e.rails {
		if e.routes.Carries(e.self, rank, to) {
			r.push(&op{kind: kindLost, token: e.of(rank), to: to, data: notice, slot: -1})
			r.kick()
		}
	}
	e.release(rank)
}

// release records that a rank no longer needs the rails. e.mu is held.
func (e *Endpoint) release(rank int) {
	delete(e.users, rank)
	if len(e.users) == 0 && e.phase == open {
		e.shut()
	}
}

// shut closes the rails once all data is sent. e.mu is held.
func (e *Endpoint) shut() {
	e.phase = shut
	for _, r := range e.rails {
		r.close()
	}
	for _, f := range e.onShut {
		f()
	}
	e.p.forget(e, true)
}

// lentTime is the longest that Close waits for lent memory: errors must be reported within two seconds. A peer that is
// stopped for longer gets what is in the memory by then.
const lentTime = 500 * time.Millisecond

// awaitLent waits until the kernel no longer reads the memory of callers, as the lent data has arrived.
func (e *Endpoint) awaitLent() {
	late := time.NewTimer(lentTime)
	defer late.Stop()
	for _, c := range e.conns {
		for c != nil && c.takeBack() > 0 && !c.peerGone() {
			select {
			case <-c.moved:
			case <-late.C:
				return
			}
		}
	}
}

// Close releases what the rank holds. Its streams must be closed. The rails stay as long as other ranks of the node
// need them. Close waits until callers may modify the memory passed to TrySend, which takes microseconds, or lentTime
// if the peer takes nothing.
func (e *Endpoint) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	e.mu.Unlock()
	e.awaitLent()
	e.mu.Lock()
	if e.phase == prepared {
		e.phase = shut
		for _, o := range e.pending {
			e.p.complete(o, len(o.data))
		}
		e.pending = nil
		e.p.forget(e, false)
		e.mu.Unlock()
		return
	}
	if e.phase == open {
		e.release(e.self)
	}
	e.mu.Unlock()
	told := map[int]bool{e.self: true}
	for _, c := range e.conns {
		if c != nil && !told[c.carrier] {
			told[c.carrier] = true
			c.control(kindLeave, nil)
		}
	}
}

// abandon closes the rails even if other ranks need them, as the process ends.
func (e *Endpoint) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == open {
		e.shut()
	}
}
