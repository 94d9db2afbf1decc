package proxy

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// burst is the most that one TrySend passes to another process, so that a rank that sends a lot also gets to receive.
const burst = stepBytes

// The bits of Conn.state.
const (
	closed    = 1 << iota // by this side
	gaveUp                // this side sent a Notice
	gone                  // the peer has ended, and all its data has arrived; why is set
	confirmed             // the peer is connected to all ranks
)

// Conn is one rank's end of its stream to and from a rank that it reaches through the network. It implements
// transport.Conn.
type Conn struct {
	e      *Endpoint
	peer   int
	number uint32 // number among the streams of the process; not 0

	// Outgoing.
	mu        sync.Mutex // held by TrySend and by the calls that end it
	via       *Endpoint  // the carrier's Endpoint, if in this process
	neighbour *neighbour // else the carrier's process
	bell      *shm.Conn  // the connection to the carrier
	carrier   int
	op        *op           // the operation that sends from the caller's memory; nil for none
	reported  int           // bytes of op that TrySend has returned as sent
	sent      uint64        // bytes put into operations
	lent      int           // of sent: bytes that the kernel reads in the caller's memory, and bytes behind them
	returned  atomic.Uint64 // of lent: bytes that have arrived since
	moved     chan struct{} // signaled when returned grows, and when the peer is gone
	granted   atomic.Uint64
	waits     atomic.Uint32 // a tape.Phase
	waiting   events        // the profiler's events of a wait for credit or an operation

	// Incoming. Positions never wrap.
	_        [128]byte
	arriving sync.Mutex // held while data is written to ring or placed
	ring     []byte     // made when the first data arrives
	tail     atomic.Uint64
	placed   []byte // the rank's memory for data from placedAt on
	placedAt uint64 // the rank sets placed and placedAt, with arriving held
	_        [128]byte
	head     atomic.Uint64 // written by Release
	seen     uint64        // Release's copy of head
	back     atomic.Uint64 // the part of head that was credited to the peer
	// lentArrived is how much of the data lent by the peer has arrived without the peer having been told.
	lentArrived atomic.Uint32
	_           [128]byte
	state       atomic.Uint32
	why         atomic.Pointer[error]

	arrivals arrivals
}

// Name returns "tcp", or "pxn" if another rank of the node sends.
func (c *Conn) Name() string {
	if c.carrier == c.e.self {
		return "tcp"
	}
	return "pxn"
}

// Carrier returns the rank whose proxy sends to the peer for this rank.
func (c *Conn) Carrier() int { return c.carrier }

// Waits returns what this rank's sends wait for: PhaseCredit, PhasePool, PhaseNetwork, or PhaseNone for nothing.
func (c *Conn) Waits() tape.Phase {
	if w := tape.Phase(c.waits.Load()); w != tape.PhaseNone {
		return w
	}
	if c.neighbour != nil && c.neighbour.holds(c) || c.neighbour == nil && c.via.holds(c.peer) {
		return tape.PhaseNetwork
	}
	return tape.PhaseNone
}

// TrySend implements transport.Conn.
func (c *Conn) TrySend(p []byte) (int, error) {
	n, err := c.trySend(p)
	if len(p) >= lentBytes {
		c.attend()
	}
	return n, err
}

// attend sends what other ranks have submitted. Otherwise a rank only does that when it waits, and a rank that is busy
// with large data hardly waits.
func (c *Conn) attend() {
	if s := c.e.p.segment; s != nil && s.submitted.Load() != 0 && c.e.waiter.Attends() {
		c.e.Attend()
	}
}

func (c *Conn) trySend(p []byte) (total int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if c.state.Load()&(closed|gaveUp|gone) != 0 {
		return 0, c.refusal()
	}
	if c.op != nil {
		n, all := c.progress()
		if !all {
			return n, nil
		}
		total, p = n, p[n:]
	}
	c.waits.Store(uint32(tape.PhaseNone))
	if c.lent > 0 {
		n := int(min(c.returned.Swap(0), uint64(c.lent)))
		c.lent -= n
		total, p = n, p[n+c.lent:]
	}
	for taken := 0; len(p) > 0 && taken < burst; {
		room := c.granted.Load() - c.sent
		if room == 0 {
			c.waitFor(tape.PhaseCredit)
			break
		}
		n := int(min(uint64(len(p)), room))
		if c.neighbour != nil {
			n = c.sendShared(p[:n])
		} else {
			n = c.send(p[:n])
		}
		taken += n
		if c.lent == 0 {
			total += n
		}
		if p = p[n:]; n == 0 || c.op != nil {
			break
		}
	}
	if c.lent > 0 && c.waits.Load() == uint32(tape.PhaseNone) {
		c.waits.Store(uint32(tape.PhaseNetwork))
	}
	return total, nil
}

// waitFor records what the rank's send waits for.
func (c *Conn) waitFor(w tape.Phase) {
	c.waits.Store(uint32(w))
	c.profileWait()
}

// progress returns how much more of op was sent, and whether that is all.
func (c *Conn) progress() (n int, all bool) {
	done := int(c.op.done.Load())
	n, all = done-c.reported, done == len(c.op.data)
	if c.reported = done; all {
		c.e.p.pool.put(c.op)
		c.op = nil
		c.e.p.released()
	}
	return n, all
}

// send makes an operation for the proxy of this process, and returns how many bytes of p are no longer needed.
func (c *Conn) send(p []byte) int {
	o := c.e.p.get(c)
	if o == nil {
		c.waitFor(tape.PhasePool)
		return 0
	}
	c.e.profileEnd(&c.waiting, lifecycle.CodeOK)
	c.fill(o, kindData)
	o.round = c.e.waiter.Round()
	switch {
	case o.slot >= 0: // the pool is exhausted
		p = p[:copy(c.e.p.segment.bytes(o.slot), p)]
		o.data = c.e.p.segment.bytes(o.slot)[:len(p)]
	case len(p) <= inlineBytes:
		o.data = o.inline[:copy(o.inline[:], p)]
	default:
		o.data, o.stream = p, c
		c.op, c.reported = o, 0
	}
	c.sent += uint64(len(p))
	if c.op == nil && c.e.waiter.Attends() {
		if r := c.via.queue(o); r != nil {
			c.e.later(r)
		}
		return len(p)
	}
	c.via.submit(o)
	if c.op == nil {
		return len(p)
	}
	n, all := c.progress()
	if !all {
		c.waits.Store(uint32(tape.PhaseNetwork))
	}
	return n
}

// fill fills in an operation's header.
func (c *Conn) fill(o *op, k kind) {
	o.kind, o.token, o.to, o.credit, o.back = k, c.e.token, c.peer, c.credit(), c.lentArrived.Swap(0)
	o.round, o.sent, o.stream, o.piped = 0, 0, nil, false
	o.done.Store(0)
}

// sendShared lends p to a pipe of the carrier's process, or copies it into a pipe or a slot, and returns how many bytes
// fit. Data behind lent data counts as lent, too.
func (c *Conn) sendShared(p []byte) int {
	k := kindData
	i, n, piped, lent := c.neighbour.writePipe(c, p)
	if i < 0 {
		if i = c.neighbour.claim(c, true); i < 0 {
			c.waitFor(tape.PhasePool)
			return 0
		}
		n = copy(c.neighbour.segment.bytes(i), p)
	}
	c.e.profileEnd(&c.waiting, lifecycle.CodeOK)
	c.sent += uint64(n)
	if lent || c.lent > 0 {
		k = kindLent
		c.lent += n
	}
	c.neighbour.submit(i, c, k, c.e.waiter.Round(), n, piped)
	if !c.e.waiter.Attends() || !c.e.ringLater(c, n) {
		c.ringCarrier(false)
	}
	return n
}

// ringCarrier makes the carrier's process send the submitted operations: a rank of it that is in an operation, or else
// its Proxy's goroutine. Operations of a round are sent when the carrier is in the same round, so they don't wake its
// process.
func (c *Conn) ringCarrier(round bool) {
	if attends := c.bell != nil && c.bell.RingIfAttending(); !attends && !round {
		c.neighbour.segment.bell.ring()
	}
}

// control sends an operation without data, or a notice. It never waits: if there is no room, the operation is
// postponed.
func (c *Conn) control(k kind, data []byte) {
	if c.neighbour == nil {
		o := c.e.p.pool.get()
		if o == nil {
			o = new(op)
		}
		o.slot, o.data = -1, data
		c.fill(o, k)
		c.via.submit(o)
		return
	}
	i := -1
	if !c.e.p.hasPostponed(c) {
		i = c.neighbour.claim(c, false)
	}
	if i >= 0 {
		c.neighbour.submit(i, c, k, 0, copy(c.neighbour.segment.bytes(i), data), false)
		c.ringCarrier(false)
	} else {
		c.e.p.postpone(c, k, data)
	}
}

// credit returns the number of received bytes that the rank has taken and that the peer was not credited for. It counts
// them as credited.
func (c *Conn) credit() uint64 {
	for {
		head, back := c.head.Load(), c.back.Load()
		if head <= back {
			return 0
		}
		if c.back.CompareAndSwap(back, head) {
			return head - back
		}
	}
}

// put appends received data, and reports whether there was room.
func (c *Conn) put(b []byte) bool {
	c.arriving.Lock()
	defer c.arriving.Unlock()
	for len(b) > 0 && c.state.Load()&closed == 0 {
		n := copy(c.space(), b)
		if n == 0 {
			return false
		}
		c.tail.Add(uint64(n))
		b = b[n:]
	}
	return true
}

// room returns the memory for the next data, up to n bytes; nil if only little is contiguous or the stream is closed.
// If it isn't nil, room returns with arriving held until filled, so that the rank can't take the memory back before.
func (c *Conn) room(n int) []byte {
	c.arriving.Lock()
	if c.state.Load()&closed == 0 {
		if room := c.space(); len(room) >= packBytes {
			return room[:min(n, len(room))]
		}
	}
	c.arriving.Unlock()
	return nil
}

// filled appends n bytes that were written to the room.
func (c *Conn) filled(n int) {
	c.tail.Add(uint64(n))
	c.arriving.Unlock()
}

// space returns the memory for the next data, limited to what is contiguous and what the peer is allowed to send.
// arriving is held.
func (c *Conn) space() []byte {
	size, tail := c.e.window, c.tail.Load()
	allowed := size - (tail - c.head.Load())
	if at := tail - c.placedAt; at < uint64(len(c.placed)) {
		return c.placed[at:][:min(uint64(len(c.placed))-at, allowed)]
	}
	if c.ring == nil {
		c.ring = make([]byte, size)
	}
	at := tail & (size - 1)
	room := c.ring[at:][:min(size-at, allowed)]
	if c.placed != nil && tail < c.placedAt {
		room = room[:min(uint64(len(room)), c.placedAt-tail)]
	}
	return room
}

// Place implements transport.Placer.
func (c *Conn) Place(p []byte) {
	c.arriving.Lock()
	defer c.arriving.Unlock()
	c.placedAt = (c.tail.Load() + 7) &^ 7 // no word may be partly in the ring and partly in p
	if came := c.placedAt - c.seen; came < uint64(len(p)) {
		c.placed = p[came:]
	} else {
		c.placed = nil
	}
}

// Peek implements transport.Conn.
func (c *Conn) Peek() ([]byte, error) {
	// Read the state first: all data has arrived before the peer is gone.
	s := c.state.Load()
	if s&closed != 0 {
		return nil, transport.ErrClosed
	}
	if n := c.tail.Load() - c.seen; n != 0 {
		if c.placed != nil && c.seen >= c.placedAt {
			at := c.seen - c.placedAt
			end := min(at+n, uint64(len(c.placed)))
			return c.placed[at:end:end], nil
		}
		if c.placed != nil {
			n = min(n, c.placedAt-c.seen)
		}
		size := uint64(len(c.ring))
		at := c.seen & (size - 1)
		end := min(at+n, size)
		return c.ring[at:end:end], nil
	}
	if s&gone != 0 {
		return nil, c.refusal()
	}
	return nil, nil
}

// Release implements transport.Conn.
func (c *Conn) Release(n int) {
	if n == 0 {
		return
	}
	c.seen += uint64(n)
	c.head.Store(c.seen)
	if c.arrivals.some.Load() {
		c.profileTaken(c.seen, lifecycle.CodeOK)
	}
	if c.seen-c.back.Load() >= c.e.window/2 && c.state.Load()&(closed|gaveUp|gone) == 0 {
		c.control(kindCredit, nil)
	}
	if c.placed != nil && c.seen >= c.placedAt+uint64(len(c.placed)) {
		c.Place(nil)
	}
	if n >= lentBytes {
		c.attend()
	}
}

// Confirm implements transport.Conn.
func (c *Conn) Confirm() { c.control(kindConfirm, nil) }

// Confirmed implements transport.Conn.
func (c *Conn) Confirmed() bool { return c.state.Load()&confirmed != 0 }

// Notify implements transport.Conn.
func (c *Conn) Notify(n transport.Notice) {
	if c.state.Or(gaveUp)&(gaveUp|closed) == 0 {
		c.detach()
		c.control(kindNotice, transport.AppendNotice(nil, n))
	}
}

// Close implements transport.Conn, but does not wait for lent memory: Endpoint.Close does that, for all streams at
// once.
func (c *Conn) Close() error {
	if c.state.Or(closed)&closed == 0 {
		c.detach()
		c.profileTaken(math.MaxUint64, lifecycle.CodeAbandoned)
		c.control(kindBye, nil)
		c.e.waiter.Ring() // wakes the goroutine that drives the rank
	}
	return nil
}

// takeBack takes back lent bytes that have arrived, and returns how many are still lent.
func (c *Conn) takeBack() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent -= int(min(c.returned.Swap(0), uint64(c.lent)))
	return c.lent
}

// peerGone reports whether the peer itself is gone. If only its carrier is gone, data that the carrier had sent may
// still arrive.
func (c *Conn) peerGone() bool {
	if c.state.Load()&gone == 0 {
		return false
	}
	why, ok := errors.AsType[*lifecycle.PeerError](*c.why.Load())
	return !ok || why.Rank != c.carrier || c.carrier == c.peer
}

func (c *Conn) signal() {
	select {
	case c.moved <- struct{}{}:
	default: // already signaled
	}
}

// detach takes back op, which sends from the caller's memory, and ends the wait for an operation.
func (c *Conn) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.profileEnd(&c.waiting, lifecycle.CodeAbandoned)
	if c.op == nil {
		return
	}
	c.via.detach(c.op)
	c.e.p.pool.put(c.op)
	c.op = nil
}

// lost records why the peer is lost, once all its data has arrived, unless a reason is already recorded.
func (c *Conn) lost(err error) {
	if c.end(err) && c.state.Load()&closed == 0 {
		c.e.waiter.PeerLost(c.peer, err)
	}
}

// end is lost for a peer that may have left in order. It reports whether err is the first reason.
func (c *Conn) end(err error) bool {
	first := c.why.CompareAndSwap(nil, &err)
	c.state.Or(gone)
	c.signal()
	c.e.waiter.Ring()
	return first
}

func (c *Conn) refusal() error {
	if s := c.state.Load(); s&gone != 0 && s&closed == 0 {
		return *c.why.Load()
	}
	return transport.ErrClosed
}
