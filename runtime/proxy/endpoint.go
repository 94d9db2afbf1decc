package proxy

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
)

// Card is what the other ranks of a communicator must know of a rank's proxy.
type Card struct {
	Generation uint64
	FD         int // of the segment, in the rank's process; -1 for none
	Token      [16]byte
	UID        int // who can open the segment
}

// Member is a rank of a communicator as its Card says.
type Member struct {
	Card
	PID   int
	Local bool      // it is of the same Proxy
	Bell  *shm.Conn // of a rank of another process of the node
}

// Endpoint is a rank of a communicator at its process's proxy: its connections, which other ranks of its node use, too,
// and its streams over those and over the connections of others.
type Endpoint struct {
	p     *Proxy
	token Token

	profile atomic.Pointer[profiler.Comm] // what is told of operations that its rails send; see Profile

	mu      sync.Mutex
	phase   phase
	pending []*op        // operations of other ranks that came before Open
	users   map[int]bool // ranks for which it may have to send, itself among them
	closed  bool
	onShut  []func()

	refused atomic.Pointer[func(error)] // see OnRefused

	// Of Open.
	self    int
	routes  Routes
	members []Member
	waiter  *transport.Waiter
	window  uint64
	rails   map[int]*rail // by peer
	conns   []*Conn       // by peer; nil where the network is not needed

	// What the rank has handed over in its operation and nobody was told of yet: the rails of this process that have
	// something to send, and a stream to each carrier of another one. Of the goroutine that drives the rank.
	untold  []*rail
	unasked []*Conn
}

type phase uint8

const (
	prepared phase = iota
	open
	shut // no more is sent
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

// Card is the Endpoint's.
func (e *Endpoint) Card() Card {
	c := e.p.card
	c.Generation = e.token.Generation
	return c
}

// The bounds of what a rank may be ahead of a receiver, and of the memory for that of a communicator.
const (
	leastWindow = 64 << 10
	mostWindow  = 512 << 10
	allWindows  = 64 << 20
)

// windowFor is the most bytes that a rank of a communicator of that size sends ahead of a receiver; a power of two.
func windowFor(ranks int) uint64 {
	w := uint64(mostWindow)
	for w > leastWindow && w*uint64(ranks) > allWindows {
		w /= 2
	}
	return w
}

// Open makes the streams of rank self to the ranks that remote names. waiter is rung by all of them. The rails, which
// Rails names, must be connected and attached. It fails with a PeerError that names a rank of this node if that one's
// memory can't be opened.
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
		for _, mate := range routes.Ranks[routes.Node[self]] {
			if routes.Carries(self, mate, peer) {
				e.users[mate] = true
				r.gather.all |= 1 << (routes.index[mate] % 64)
			}
		}
		c := &Conn{e: e, peer: peer, number: e.p.streams.Add(1), carrier: routes.Carrier(self, peer)}
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
		m, err := e.p.mate(carrier)
		if err != nil {
			return e.unreachable(c, err)
		}
		c.mate, c.bell = m, carrier.Bell
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

// Rails are the peers with which the rank needs a connection.
func (e *Endpoint) Rails() (peers []int) {
	for peer := range e.rails {
		peers = append(peers, peer)
	}
	return peers
}

// Rail is whom the connection with a peer serves.
func (e *Endpoint) Rail(peer int) tcp.User { return e.rails[peer] }

// Attach hands over the connection with a peer.
func (e *Endpoint) Attach(peer int, c *tcp.Conn) { e.rails[peer].attach(c) }

// Conn is the stream to and from a peer.
func (e *Endpoint) Conn(peer int) *Conn { return e.conns[peer] }

// submit takes an operation of this process and sends what can be sent.
func (e *Endpoint) submit(o *op) {
	if r := e.queue(o); r != nil {
		r.kick()
	}
}

// queue takes an operation of this process, and returns the rail to be kicked.
func (e *Endpoint) queue(o *op) *rail {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accept(o)
}

// Attend sends what the rank has handed over, together with what other processes have submitted, and tells other
// processes what they have to send. It says whether something was submitted. A rank that is in an operation calls it
// before it waits, and when it leaves.
func (e *Endpoint) Attend() (moved bool) {
	moved = e.p.attend(e)
	next := e.waiter.Round()
	if next != 0 && !e.waiter.Attends() {
		next++ // it is done with this one
	}
	held := e.untold[:0]
	for _, r := range e.untold {
		if r.gathers(next) {
			held = append(held, r)
		} else {
			r.kick()
		}
	}
	clear(e.untold[len(held):])
	e.untold = held
	for _, c := range e.unasked {
		c.ask(next != 0)
	}
	clear(e.unasked)
	e.unasked = e.unasked[:0]
	return moved
}

// sendLate sends what has been waiting for other ranks for too long.
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

// later has a rail kicked when the rank attends to it.
func (e *Endpoint) later(r *rail) {
	if !slices.Contains(e.untold, r) {
		e.untold = append(e.untold, r)
	}
}

// accept queues an operation with the rail that it is for, and returns that to be kicked. e.mu is held.
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
		e.left(o.token.Rank)
		e.p.complete(o, 0)
		return nil
	}
	e.profileStart(o)
	r := e.rails[o.to]
	r.push(o)
	return r
}

// holds says whether there is something for a rank that has not gone out.
func (e *Endpoint) holds(to int) bool {
	e.mu.Lock()
	r := e.rails[to]
	e.mu.Unlock()
	if r == nil {
		return false
	}
	return r.full.Load()
}

// check is the border of the process: an operation of another rank must be one that this rank carries.
func (e *Endpoint) check(o *op) error {
	from := o.token.Rank
	if from < 0 || from >= len(e.members) || e.routes.Node[from] != e.routes.Node[e.self] {
		return fmt.Errorf("%w: rank %d is not of the node of rank %d", ErrToken, from, e.self)
	}
	if err := o.token.fits(e.of(from)); err != nil {
		return err
	}
	tooLong := o.kind != kindData && len(o.data) > o.kind.most() // data is cut into steps
	if o.kind == 0 || o.kind >= kinds || o.kind == kindLost && from != e.self || tooLong {
		return fmt.Errorf("%w: rank %d asks for operation %d with %d bytes", ErrToken, from, o.kind, len(o.data))
	}
	if o.kind != kindLeave && (e.rails[o.to] == nil || !e.routes.Carries(e.self, from, o.to)) {
		return fmt.Errorf("%w: rank %d does not carry from rank %d to rank %d", ErrToken, e.self, from, o.to)
	}
	return nil
}

// of is the token of a rank.
func (e *Endpoint) of(rank int) Token {
	m := &e.members[rank]
	return Token{Comm: e.token.Comm, Rank: rank, PID: m.PID, Generation: m.Generation}
}

// admit is the border of the node: what arrives must come from a rank for which the peer carries. It returns the stream
// that it is of.
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

// detach takes back the memory of an operation of this process.
func (e *Endpoint) detach(o *op) {
	e.mu.Lock()
	for i, waiting := range e.pending {
		if waiting == o {
			e.pending = append(e.pending[:i], e.pending[i+1:]...)
			e.mu.Unlock()
			return
		}
	}
	r := e.rails[o.to]
	e.mu.Unlock()
	if r != nil {
		r.detach(o)
	}
}

// railLost says of all streams that come over a rail that their peers are lost. err is nil if it was closed in order.
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
		e.conns[r.peer].lost(err) // nothing gets there; of its death, its carrier tells behind what it had sent
	}
}

var errClosed = errors.New("it has closed")

// unreachable is the error of a stream whose carrier this process can't hand anything to.
func (e *Endpoint) unreachable(c *Conn, why error) error {
	return &lifecycle.PeerError{
		Code: lifecycle.CodeUnreachable, Rank: c.carrier, Self: e.self, Comm: e.token.Comm, Err: why,
		Detail: fmt.Sprintf("it carries what is for rank %d (NCCL_PXN_DISABLE=1 does without)", c.peer),
	}
}

// carrierLost is the error of a stream whose carrier is lost. why is nil if it closed the connection.
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

// MateDied says that the process of a rank of this node has ended: what it carried is lost, and those are told for whom
// this rank carried what it sent.
func (e *Endpoint) MateDied(rank int, err error) {
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
	e.p.buries(e, rank)
}

// OnShut has f called when the Endpoint serves nobody any more, such as the end of a watch for MateDied.
func (e *Endpoint) OnShut(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == shut {
		f()
	} else {
		e.onShut = append(e.onShut, f)
	}
}

// OnRefused has f called with each operation that is refused because its token does not fit. f must not call the
// Endpoint.
func (e *Endpoint) OnRefused(f func(error)) { e.refused.Store(&f) }

// bury tells the peers of a dead rank that it is dead, behind all that it had sent.
func (e *Endpoint) bury(rank int) {
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
	e.left(rank)
}

// left says that a rank needs the rails no more. e.mu is held.
func (e *Endpoint) left(rank int) {
	delete(e.users, rank)
	if len(e.users) == 0 && e.phase == open {
		e.shut()
	}
}

// shut closes the rails when all is sent. e.mu is held.
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

// Close closes what the rank has. Its streams must be closed. The rails stay as long as other ranks of the node need
// them.
func (e *Endpoint) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
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
		e.left(e.self)
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

// abandon closes the rails though others may need them: the process ends.
func (e *Endpoint) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == open {
		e.shut()
	}
}
