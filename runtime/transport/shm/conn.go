package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// piece is the number of bytes after which a long copy is shown to the peer, so that it reads the first part while the
// second is being written. It is a power of two and divides every ring.
const piece = 32 << 10

// burst is the most that one TrySend copies, so that a rank that sends a lot also gets to receive.
const burst = 256 << 10

// The bits of Conn.state.
const (
	closed = 1 << iota // by this side
	gaveUp             // this side sent a Notice
	gone               // the peer is gone; why is set
)

// line puts the following fields on other cache lines than the previous ones.
type line [128]byte

// Conn is one rank's end of a connection through two inboxes.
type Conn struct {
	// The sender's view: its slot in the peer's inbox.
	out      slot
	tail     uint64
	headSeen uint64 // out.head, as last read
	peerBell *atomic.Uint32
	_        line

	// The receiver's view: the peer's slot in its own inbox.
	in       slot
	head     uint64
	tailSeen uint64 // in.tail, as last read
	_        line

	state  atomic.Uint32
	why    atomic.Pointer[error]
	bell   *transport.Waiter
	rank   int
	peer   int
	inbox  *Inbox  // keeps in mapped
	theirs *Memory // keeps out mapped
}

// Agreed reports whether the peer could open this rank's inbox, and whether that is known yet.
func (c *Conn) Agreed() (opened, known bool) {
	v := c.out.verdict.Load()
	return v == verdictOpened || v == verdictConnected, v != verdictNone
}

// Confirm implements transport.Conn.
func (c *Conn) Confirm() {
	c.in.verdict.Store(verdictConnected)
	transport.RingWord(c.peerBell)
}

// Confirmed implements transport.Conn.
func (c *Conn) Confirmed() bool { return c.out.verdict.Load() == verdictConnected }

// GaveUp tells the Waiter if the peer's inbox says that the peer won't connect.
func (c *Conn) GaveUp() {
	if word32(c.theirs.mem, headerGaveUp).Load() == 0 {
		return
	}
	n, err := transport.DecodeNotice(c.theirs.mem[headerNotice:][:transport.MaxNotice])
	if err != nil {
		_ = c.corrupt("notice", uint64(c.theirs.mem[headerNotice]))
		return
	}
	c.lose(&transport.NoticeError{Peer: c.peer, Notice: n})
}

// RingIfAttending wakes the peer if it attends to its process's proxy, and reports whether it does.
func (c *Conn) RingIfAttending() bool {
	if word32(c.theirs.mem, headerAttend).Load() == 0 {
		return false
	}
	transport.RingWord(c.peerBell)
	return true
}

// Peer returns the rank at the other end.
func (c *Conn) Peer() int { return c.peer }

// Name returns "shm".
func (c *Conn) Name() string { return "shm" }

// TrySend implements transport.Conn.
func (c *Conn) TrySend(p []byte) (int, error) {
	if (c.state.Load() != 0 || c.in.status.Load() != 0) && len(p) > 0 {
		return 0, c.Check()
	}
	size := uint64(len(c.out.ring))
	sent := 0
	for sent < min(len(p), burst) {
		free := size - (c.tail - c.headSeen)
		if free < piece {
			if c.headSeen = c.out.head.Load(); c.tail-c.headSeen > size {
				return sent, c.corrupt("head", c.headSeen)
			}
			if free = size - (c.tail - c.headSeen); free == 0 {
				break
			}
		}
		// Copy up to the next multiple of a piece, so that pieces never wrap and the copies are aligned.
		at := c.tail & (size - 1)
		n := copy(c.out.ring[at:at+min(free, piece-at&(piece-1))], p[sent:])
		sent += n
		c.tail += uint64(n)
		c.out.tail.Store(c.tail)
		transport.RingWord(c.peerBell)
	}
	return sent, nil
}

// Peek implements transport.Conn.
func (c *Conn) Peek() ([]byte, error) {
	s := c.state.Load()
	if s&closed != 0 {
		return nil, transport.ErrClosed
	}
	if c.tailSeen == c.head {
		if c.tailSeen = c.in.tail.Load(); c.tailSeen == c.head {
			return c.none()
		}
		if c.tailSeen-c.head > uint64(len(c.in.ring)) {
			bad := c.tailSeen
			c.tailSeen = c.head
			return nil, c.corrupt("tail", bad)
		}
	}
	at := c.head & uint64(len(c.in.ring)-1)
	end := min(at+c.tailSeen-c.head, uint64(len(c.in.ring)))
	return c.in.ring[at:end:end], nil
}

// none returns the results of Peek when no data is there.
func (c *Conn) none() ([]byte, error) {
	err := c.Check()
	if err == nil {
		return nil, nil
	}
	// What the peer sent before it left was there before its loss was known.
	if c.in.tail.Load() != c.head && c.state.Load()&closed == 0 {
		return nil, nil // the next Peek shows it
	}
	return nil, err
}

// Release implements transport.Conn.
func (c *Conn) Release(n int) {
	if n == 0 {
		return
	}
	half := uint64(len(c.in.ring) / 2)
	before := c.tailSeen - c.head
	c.head += uint64(n)
	c.in.head.Store(c.head)
	// A sender waits only if the ring was full. It is woken once, when half of the ring is free: if woken earlier, it
	// would go back to sleep after one piece.
	if before >= half && c.tailSeen-c.head <= half {
		transport.RingWord(c.peerBell)
	}
}

// Notify implements transport.Conn.
func (c *Conn) Notify(n transport.Notice) {
	if c.state.Or(gaveUp)&(gaveUp|closed) != 0 {
		return
	}
	var b [transport.MaxNotice]byte
	copy(c.out.notice, transport.AppendNotice(b[:0], n))
	c.out.status.Or(statusNotice)
	word32(c.theirs.mem, headerAlerts).Add(1)
	transport.RingWord(c.peerBell)
}

// Close implements transport.Conn. It does not wait: everything taken from the caller was copied.
func (c *Conn) Close() error {
	if c.state.Or(closed)&closed == 0 {
		c.out.status.Or(statusClosed)
		transport.RingWord(c.peerBell)
	}
	return nil
}

// Check checks whether the peer has sent a Notice, and tells the Waiter if so. It returns why the peer is gone, or nil.
func (c *Conn) Check() error {
	if c.state.Load() != 0 {
		return c.refusal()
	}
	s := c.in.status.Load()
	switch {
	case s == 0:
		return nil
	case s&statusNotice != 0:
		n, err := transport.DecodeNotice(c.in.notice)
		if err != nil {
			return c.corrupt("notice", uint64(c.in.notice[0]))
		}
		c.lose(&transport.NoticeError{Peer: c.peer, Notice: n})
	default:
		c.end(transport.PeerClosed(c.peer))
	}
	return c.refusal()
}

// Fail records that the peer is known to be gone, for example because its process died. It has no effect on a peer that
// had closed its end before.
func (c *Conn) Fail(err error) {
	if c.Check() == nil {
		c.lose(err)
	}
}

func (c *Conn) lose(err error) {
	if c.end(err) {
		c.bell.PeerLost(c.peer, err)
	}
}

// end records err as the reason why the peer is gone, unless a reason is already recorded.
func (c *Conn) end(err error) bool {
	first := c.why.CompareAndSwap(nil, &err)
	c.state.Or(gone)
	return first
}

// corrupt ends the connection because the peer wrote an invalid value.
func (c *Conn) corrupt(what string, value uint64) error {
	c.lose(&lifecycle.PeerError{
		Code: lifecycle.CodeInternal, Rank: c.peer, Self: c.rank,
		Detail: fmt.Sprintf("the shared memory is damaged: %s is %d", what, value),
	})
	return c.refusal()
}

func (c *Conn) refusal() error {
	if s := c.state.Load(); s&gone != 0 && s&closed == 0 {
		return *c.why.Load()
	}
	return transport.ErrClosed
}
