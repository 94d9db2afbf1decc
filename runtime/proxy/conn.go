package proxy

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
)

// burst is the most that one TrySend hands to another process, so that a rank that sends much also gets to receive.
const burst = 256 << 10

// The bits of Conn.state.
const (
	closed    = 1 << iota // by this side
	gaveUp                // this side sent a Notice
	gone                  // the peer is, and all that it had sent has come; why is set
	confirmed             // the peer is connected with all
)

// Conn is one rank's end of its stream to and from a rank that it reaches through the network. It implements
// transport.Conn.
type Conn struct {
	e      *Endpoint
	peer   int
	number uint32 // among the streams of the process; not 0

	// Outgoing.
	mu      sync.Mutex // of TrySend and what ends it
	via     *Endpoint  // the carrier's, in this process
	mate    *mate      // or the carrier's process
	bell    *shm.Conn  // and the connection with the carrier
	carrier int
	op      *op    // the operation that sends from the caller's memory; nil for none
	told    int    // what the caller knows of its progress
	sent    uint64 // bytes that operations were made of
	granted atomic.Uint64
	waits   atomic.Uint32
	waiting events // for credit or an operation

	// Incoming. Positions never wrap.
	_     [128]byte
	ring  []byte // made when the first data comes
	tail  atomic.Uint64
	_     [128]byte
	head  atomic.Uint64 // written by Release
	seen  uint64        // head, as Release keeps it
	back  atomic.Uint64 // what of head the peer was told
	_     [128]byte
	state atomic.Uint32
	why   atomic.Pointer[error]

	arrivals arrivals
}

// Name is "tcp", and "pxn" where another rank of the node sends.
func (c *Conn) Name() string {
	if c.carrier == c.e.self {
		return "tcp"
	}
	return "pxn"
}

// Carrier is the rank whose proxy sends what this one sends to the peer.
func (c *Conn) Carrier() int { return c.carrier }

// Waits says what keeps this rank from sending, or what it sent from going out.
func (c *Conn) Waits() transport.Wait {
	if w := transport.Wait(c.waits.Load()); w != transport.WaitNone {
		return w
	}
	if c.mate != nil && c.mate.holds(c) || c.mate == nil && c.via.holds(c.peer) {
		return transport.WaitNetwork
	}
	return transport.WaitNone
}

// TrySend implements transport.Conn.
func (c *Conn) TrySend(p []byte) (total int, err error) {
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
	c.waits.Store(uint32(transport.WaitNone))
	for len(p) > 0 && total < burst {
		room := c.granted.Load() - c.sent
		if room == 0 {
			c.waitFor(transport.WaitCredit)
			break
		}
		n := int(min(uint64(len(p)), room))
		if c.mate != nil {
			n = c.hand(p[:n])
		} else {
			n = c.send(p[:n])
		}
		total += n
		if p = p[n:]; n == 0 || c.op != nil {
			break
		}
	}
	return total, nil
}

// waitFor notes what keeps the rank from handing over what it has.
func (c *Conn) waitFor(w transport.Wait) {
	c.waits.Store(uint32(w))
	c.profileWait()
}

// progress is how much more was sent of the operation that sends from the caller's memory, and whether that is all.
func (c *Conn) progress() (n int, all bool) {
	done := int(c.op.done.Load())
	n, all = done-c.told, done == len(c.op.data)
	if c.told = done; all {
		c.e.p.pool.put(c.op)
		c.op = nil
		c.e.p.released()
	}
	return n, all
}

// send makes an operation for the proxy of this process, and returns how much of p is not needed any more.
func (c *Conn) send(p []byte) int {
	o := c.e.p.get(c)
	if o == nil {
		c.waitFor(transport.WaitPool)
		return 0
	}
	c.e.profileEnd(&c.waiting, lifecycle.CodeOK)
	c.name(o, kindData)
	o.round = c.e.waiter.Round()
	switch {
	case o.slot >= 0: // the pool is exhausted
		p = p[:copy(c.e.p.segment.bytes(o.slot), p)]
		o.data = c.e.p.segment.bytes(o.slot)[:len(p)]
	case len(p) <= inlineBytes:
		o.data = o.inline[:copy(o.inline[:], p)]
	default:
		o.data, o.stream = p, c
		c.op, c.told = o, 0
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
		c.waits.Store(uint32(transport.WaitNetwork))
	}
	return n
}

// name says whose an operation is.
func (c *Conn) name(o *op, k kind) {
	o.kind, o.token, o.to, o.credit = k, c.e.token, c.peer, c.credit()
	o.round, o.sent, o.stream = 0, 0, nil
	o.done.Store(0)
}

// hand copies p into a slot of the carrier's process, and returns how much of it.
func (c *Conn) hand(p []byte) int {
	i := c.mate.claim(c, true)
	if i < 0 {
		c.waitFor(transport.WaitPool)
		return 0
	}
	c.e.profileEnd(&c.waiting, lifecycle.CodeOK)
	n := copy(c.mate.segment.bytes(i), p)
	c.sent += uint64(n)
	c.mate.submit(i, c, kindData, c.e.waiter.Round(), n)
	if n > packBytes || !c.e.waiter.Attends() {
		c.ask(false)
	} else if !slices.ContainsFunc(c.e.unasked, func(of *Conn) bool { return of.carrier == c.carrier }) {
		c.e.unasked = append(c.e.unasked, c)
	}
	return n
}

// ask has the carrier's process send what was submitted. What is of a round goes out when the carrier is in that one,
// too, and needs nobody else's time before.
func (c *Conn) ask(round bool) {
	if attends := c.bell != nil && c.bell.RingIfAttending(); !attends && !round {
		transport.RingWord(c.mate.segment.bell)
	}
}

// control sends what has no data, or a notice. It never waits: what finds no room is sent later.
func (c *Conn) control(k kind, data []byte) {
	if c.mate == nil {
		o := c.e.p.pool.get()
		if o == nil {
			o = new(op)
		}
		o.slot, o.data = -1, data
		c.name(o, k)
		c.via.submit(o)
		return
	}
	i := -1
	if !c.e.p.owes(c) {
		i = c.mate.claim(c, false)
	}
	if i >= 0 {
		c.mate.submit(i, c, k, 0, copy(c.mate.segment.bytes(i), data))
		c.ask(false)
	} else {
		c.e.p.owe(c, k, data)
	}
}

// credit is what was taken of what the peer sent, and it does not know yet.
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

// grant says that the peer has taken so much more.
func (c *Conn) grant(n uint64) {
	if n > 0 {
		c.granted.Add(n)
	}
}

// put appends what has come to the ring, and says whether there was room.
func (c *Conn) put(b []byte) bool {
	if c.state.Load()&closed != 0 {
		return true
	}
	if c.ring == nil {
		c.ring = make([]byte, c.e.window)
	}
	size, tail := uint64(len(c.ring)), c.tail.Load()
	if tail-c.head.Load()+uint64(len(b)) > size {
		return false
	}
	n := copy(c.ring[tail&(size-1):], b)
	copy(c.ring, b[n:])
	c.tail.Store(tail + uint64(len(b)))
	return true
}

// Peek implements transport.Conn.
func (c *Conn) Peek() ([]byte, error) {
	// The state first: all data was there before it says gone.
	s := c.state.Load()
	if s&closed != 0 {
		return nil, transport.ErrClosed
	}
	if n := c.tail.Load() - c.seen; n != 0 {
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
	if c.seen-c.back.Load() >= c.e.window/4 && c.state.Load()&(closed|gaveUp|gone) == 0 {
		c.control(kindCredit, nil)
	}
}

// Confirm tells the peer that this rank is connected with all others; Confirmed tells whether the peer has said so.
func (c *Conn) Confirm() { c.control(kindConfirm, nil) }

// Confirmed is the peer's Confirm.
func (c *Conn) Confirmed() bool { return c.state.Load()&confirmed != 0 }

// Notify implements transport.Conn.
func (c *Conn) Notify(n transport.Notice) {
	if c.state.Or(gaveUp)&(gaveUp|closed) == 0 {
		c.detach()
		c.control(kindNotice, transport.AppendNotice(nil, n))
	}
}

// Close implements transport.Conn.
func (c *Conn) Close() error {
	if c.state.Or(closed)&closed == 0 {
		c.detach()
		c.profileTaken(math.MaxUint64, lifecycle.CodeAbandoned)
		c.control(kindBye, nil)
		c.e.waiter.Ring() // for whoever drives the rank
	}
	return nil
}

// detach ends the operation that sends from the caller's memory, and the wait for one.
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

// lost says why the peer is lost, when all that it had sent has come, unless that is known.
func (c *Conn) lost(err error) {
	if c.end(err) && c.state.Load()&closed == 0 {
		c.e.waiter.PeerLost(c.peer, err)
	}
}

// end is lost for a peer that left in order, too. It says whether err is the first reason.
func (c *Conn) end(err error) bool {
	first := c.why.CompareAndSwap(nil, &err)
	c.state.Or(gone)
	c.e.waiter.Ring()
	return first
}

func (c *Conn) refusal() error {
	if s := c.state.Load(); s&gone != 0 && s&closed == 0 {
		return *c.why.Load()
	}
	return transport.ErrClosed
}
