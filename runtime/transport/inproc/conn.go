package inproc

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
)

// How long Close waits for a reader that is in the middle of a piece, which takes microseconds.
const (
	peerPatience = 250 * time.Millisecond // for the peer, which may be reading this side's memory
	ownPatience  = 20 * time.Millisecond  // for this side, which may be reading the peer's
)

// The bits of Conn.state.
const (
	closed   = 1 << iota // by this side
	gaveUp               // this side sent a Notice
	peerGone             // the peer closed its end or sent a Notice; why is set
)

// Conn is one rank's end of a connection to another rank of the same process.
type Conn struct {
	// The sender's view of out.
	out      *pipe
	tail     uint64
	headSeen uint64 // out.head, as last read
	loaned   uint64 // out.loanTail
	taken    uint64 // how much of the loans TrySend has reported as taken
	_        line

	// The receiver's view of in.
	in       *pipe
	head     uint64
	loanHead uint64
	lent     bool // the last window was lent memory
	marked   bool // in.reading, as set by this side
	_        line

	state atomic.Uint32
	why   atomic.Pointer[transport.NoticeError]
	bell  atomic.Pointer[transport.Waiter]
	peer  *Conn
	rank  int // this side's rank
}

// Pair connects ranks a and b: the first Conn is a's end, the second is b's. Each side must call Attach before it uses
// its end; the other end may be used before that.
func Pair(a, b int) (*Conn, *Conn) {
	there, back := new(pipe), new(pipe)
	x := &Conn{out: there, in: back, rank: a}
	y := &Conn{out: back, in: there, rank: b}
	x.peer, y.peer = y, x
	return x, y
}

// Attach sets the doorbell of this side.
func (c *Conn) Attach(bell *transport.Waiter) {
	c.bell.Store(bell)
	if why := c.why.Load(); why != nil {
		c.tell(why)
	}
}

// Name returns "inproc".
func (c *Conn) Name() string { return "inproc" }

// ringPeer wakes the other side, if it is attached. Otherwise that side checks the connection when it attaches.
func (c *Conn) ringPeer() {
	if bell := c.peer.bell.Load(); bell != nil {
		bell.Ring()
	}
}

// tell reports a loss to this side's doorbell. An orderly end is not a loss: Peek and TrySend return it.
func (c *Conn) tell(why *transport.NoticeError) {
	bell := c.bell.Load()
	switch {
	case bell == nil: // Attach will report it
	case c.peer.state.Load()&gaveUp != 0:
		bell.PeerLost(why.Peer, why)
	default:
		bell.Ring()
	}
}

// TrySend implements transport.Conn.
func (c *Conn) TrySend(p []byte) (int, error) {
	// Read the state first: what the peer released before it left counts.
	s := c.state.Load()
	if c.taken != c.loaned && s&closed == 0 {
		n := int(c.out.loanHead.Load() - c.taken) // how much of the loan the peer has released since
		c.taken += uint64(n)
		if rest := p[n:]; n > 0 && len(rest) > 0 && c.taken == c.loaned && s == 0 {
			return n + c.start(rest), nil // p has grown since it was lent
		}
		if n > 0 || s == 0 {
			return n, nil
		}
	}
	if s != 0 && len(p) > 0 {
		return 0, c.refusal(s)
	}
	return c.start(p), nil
}

// start begins a message, or a part of one, by the path for its length, and returns how many bytes of it are taken.
func (c *Conn) start(p []byte) int {
	if len(p) > eagerMax {
		c.lend(p)
		return 0
	}
	return c.put(p)
}

func (c *Conn) lend(p []byte) {
	c.out.loan = p
	c.loaned += uint64(len(p))
	c.out.loanTail.Store(c.loaned)
	c.ringPeer()
}

// put copies as much of p as the ring has room for.
func (c *Conn) put(p []byte) int {
	free := ringSize - (c.tail - c.headSeen)
	if free < uint64(len(p)) {
		c.headSeen = c.out.head.Load()
		free = ringSize - (c.tail - c.headSeen)
	}
	n := min(len(p), int(free))
	if n == 0 {
		return 0
	}
	if c.out.ring == nil {
		c.out.ring = make([]byte, ringSize)
	}
	at := c.tail & (ringSize - 1)
	copied := copy(c.out.ring[at:], p[:n])
	copy(c.out.ring, p[copied:n])
	c.tail += uint64(n)
	c.out.tail.Store(c.tail)
	c.ringPeer()
	return n
}

// Peek implements transport.Conn.
func (c *Conn) Peek() ([]byte, error) {
	c.Rest()
	// The order of these loads keeps the order of the stream: what the peer did before it left was done before the
	// state said so, and the ring no longer grows once a loan is seen.
	s := c.state.Load()
	if s&closed != 0 {
		return nil, transport.ErrClosed
	}
	loanTail := c.in.loanTail.Load()
	if n := c.in.tail.Load() - c.head; n != 0 {
		c.lent = false
		at := c.head & (ringSize - 1)
		return c.in.ring[at:min(at+n, ringSize)], nil
	}
	if n := loanTail - c.loanHead; n != 0 {
		// Set the mark, then check whether the loan is still valid. Close revokes the loan, then checks the mark.
		c.lent, c.marked = true, true
		c.in.reading.Store(true)
		if !c.in.revoked.Load() {
			loan := c.in.loan
			return loan[len(loan)-int(n):], nil
		}
		c.Rest()
	}
	if s != 0 {
		return nil, c.refusal(s)
	}
	return nil, nil
}

// Release implements transport.Conn.
func (c *Conn) Release(n int) {
	if c.lent {
		c.loanHead += uint64(n)
		c.in.loanHead.Store(c.loanHead)
		c.Rest()
	} else {
		c.head += uint64(n)
		c.in.head.Store(c.head)
	}
	if n > 0 {
		c.ringPeer()
	}
}

// Rest declares that the last window is no longer read. Only the goroutine that calls Peek may call it.
func (c *Conn) Rest() {
	if c.marked {
		c.marked = false
		c.in.reading.Store(false)
	}
}

// Confirm implements transport.Conn.
func (c *Conn) Confirm() {
	c.out.confirmed.Store(true)
	c.ringPeer()
}

// Confirmed implements transport.Conn.
func (c *Conn) Confirmed() bool { return c.in.confirmed.Load() }

// Notify implements transport.Conn.
func (c *Conn) Notify(n transport.Notice) {
	if c.state.Or(gaveUp)&(gaveUp|closed) == 0 {
		c.peer.lose(&transport.NoticeError{Peer: c.rank, Notice: n})
	}
}

// Close implements transport.Conn.
func (c *Conn) Close() error {
	c.Revoke()
	await(&c.out.reading, peerPatience)
	if !await(&c.in.reading, ownPatience) {
		// The driver of this side left while reading a window; the peer's Close need not wait for it.
		c.in.reading.Store(false)
	}
	return nil
}

// Revoke is the part of Close that does not wait.
func (c *Conn) Revoke() {
	if c.state.Or(closed)&closed == 0 {
		c.out.revoked.Store(true)
		c.peer.lose(transport.PeerClosed(c.rank))
	}
}

// await waits for up to d until reading is false, and reports whether it is.
func await(reading *atomic.Bool, d time.Duration) bool {
	if !reading.Load() {
		return true
	}
	for start := time.Now(); reading.Load(); runtime.Gosched() {
		if time.Since(start) > d {
			return false
		}
	}
	return true
}

// lose records why the peer is gone, unless a reason is already recorded.
func (c *Conn) lose(why *transport.NoticeError) {
	if c.why.CompareAndSwap(nil, why) {
		c.state.Or(peerGone)
		c.tell(why)
	}
}

func (c *Conn) refusal(s uint32) error {
	if s&peerGone != 0 && s&closed == 0 {
		return c.why.Load()
	}
	return transport.ErrClosed
}
