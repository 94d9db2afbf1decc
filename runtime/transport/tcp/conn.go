package tcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// lingerTime is how long a closed connection may remain to let the peer receive everything.
const lingerTime = 2 * time.Second

// The bits of Conn.state.
const (
	closed = 1 << iota // by this side
	gone               // the peer is gone; why is set
	ended              // no more data will arrive
	bye                // the peer closed its end in order
)

// User uses a Conn. Its methods are called by goroutines of the Conn and by Poll, and must not block.
type User interface {
	// Room returns the memory for the next data, which may be shorter; nil if any memory will do. If it isn't nil, a
	// call of Filled follows at once, without waiting in between.
	Room() []byte

	// Filled reports that n bytes, 0 or more, have arrived at the beginning of Room. Its error has the same meaning as
	// Receive's.
	Filled(n int) error

	// Receive gets data that arrived elsewhere, in order. It takes all of it, and keeps no reference to p. An error
	// means that the peer violated the protocol, and ends the connection.
	Receive(p []byte) error

	// Ring reports that TrySend may find room again.
	Ring()

	// Lost reports why the peer is gone: a *lifecycle.PeerError, a *transport.NoticeError if it gave up before it was
	// connected, or nil if it closed its end in order. All that the peer had sent was received before.
	Lost(err error)
}

// Conn is one rank's end of the two TCP connections to a peer.
type Conn struct {
	sender
	receiver receiver

	state   atomic.Uint32
	why     atomic.Pointer[error]
	data    *net.TCPConn
	sealed  *door.Sealed // over data; nil if that is plain
	control halfConn
	user    User
	rank    int
	peer    int
	grace   time.Duration // how long the control connection has to tell why data ended
	using   atomic.Int32  // number of goroutines that still use the sockets
}

// sender is the sending side of data.
type sender struct {
	raw     syscall.RawConn
	write   func(fd uintptr) // writes parts; made once, so that sending does not allocate
	parts   [][]byte
	more    bool     // more data follows the parts at once
	pipe    *os.File // if not nil, n bytes of it are sent instead of parts
	gather  gather
	n       int
	err     error
	seal    *sealer       // nil: parts are the caller's memory
	blocked atomic.Bool   // the kernel's buffer was full, and watch is waiting for room
	full    chan struct{} // asks watch to wait
	done    chan struct{} // closed by Close; ends watch
}

func newConn(s *Listener, conns [kinds]halfConn, self, peer int, user User) (*Conn, error) {
	c := &Conn{control: conns[control], user: user, rank: self, peer: peer, grace: s.keepalive}
	switch conn := conns[data].(type) {
	case *door.Sealed:
		c.data, c.sealed, c.seal = conn.Conn.(*net.TCPConn), conn, newSealer(conn)
	case *net.TCPConn:
		c.data = conn
	}
	raw, err := c.data.SyscallConn()
	if err == nil {
		err = door.KeepWatch(c.control, s.keepalive)
	}
	if err != nil {
		c.shut()
		return nil, fmt.Errorf("set up the connection to rank %d: %w", peer, err)
	}
	c.raw, c.full, c.done = raw, make(chan struct{}, 1), make(chan struct{})
	c.write = c.tryWrite
	c.newReceiver()
	c.using.Store(3)
	s.wg.Go(c.readData)
	s.wg.Go(c.readControl)
	s.wg.Go(c.watch)
	return c, nil
}

// MaxParts is the most parts that one TrySend sends.
const MaxParts = 16

// TrySend sends as many bytes of the concatenated parts as the kernel accepts now, and returns how many that was: they
// were copied. more says that the caller will send more right after them, if there is room. It may be used by one
// goroutine at a time.
func (c *Conn) TrySend(parts [][]byte, more bool) (int, error) {
	c.parts, c.more = parts, more
	return c.trySend()
}

// Splices reports whether TrySplice can be used.
func (c *Conn) Splices() bool { return canSplice && c.seal == nil }

// TrySplice is TrySend for n bytes in a pipe: it sends the pages that hold them without a copy.
func (c *Conn) TrySplice(pipe *os.File, n int) (int, error) {
	c.pipe, c.n = pipe, n
	return c.trySend()
}

func (c *Conn) trySend() (int, error) {
	defer func() { c.parts, c.pipe = nil, nil }()
	if c.state.Load()&(closed|gone) != 0 {
		return 0, c.refusal()
	}
	if c.seal != nil {
		if c.blocked.Load() {
			return 0, nil
		}
		return c.trySendSealed(c.parts)
	}
	err := c.raw.Control(c.write)
	switch {
	case err != nil: // the Conn was closed meanwhile
		return 0, c.refusal()
	case c.err == nil:
		return c.n, nil
	case errors.Is(c.err, unix.EAGAIN):
		if !c.blocked.Swap(true) {
			c.full <- struct{}{} // doesn't block: watch receives before it clears blocked
		}
		return 0, nil
	default:
		// The peer is gone; the control connection will tell why.
		return 0, nil
	}
}

// tryWrite writes once and never waits.
func (s *sender) tryWrite(fd uintptr) {
	if s.pipe != nil {
		s.n, s.err = splice(int(fd), s.pipe, s.n)
	} else {
		s.n, s.err = s.gather.send(int(fd), s.parts, s.more)
	}
}

// watch waits for room in the kernel's buffer whenever it was full.
func (c *Conn) watch() {
	defer c.userDone()
	for {
		select {
		case <-c.full:
		case <-c.done:
			if c.blocked.Load() && c.seal != nil {
				c.flush()
			}
			return
		}
		if c.seal != nil {
			c.flush()
			c.user.Ring()
			continue
		}
		looked := false
		_ = c.raw.Write(func(fd uintptr) bool {
			if looked {
				return true
			}
			looked = true // the poller only reports changes: there may have been room before it began to watch
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(poll, 0)
			return n > 0 || err != nil
		})
		c.blocked.Store(false)
		c.user.Ring()
	}
}

// Close closes this end. It returns at once: everything taken from the caller was copied. The sockets stay open until
// the peer has read everything, or lingerTime has passed. Idempotent.
func (c *Conn) Close() error {
	if c.state.Or(closed)&closed != 0 {
		return nil
	}
	say(c.control, []byte{frameBye, 0, 0})
	c.closeWrite()
	_ = c.control.CloseWrite()
	end := time.Now().Add(lingerTime)
	_ = c.data.SetReadDeadline(end)
	_ = c.control.SetReadDeadline(end)
	if c.seal == nil {
		end = time.Unix(1, 0) // watch has nothing to write
	}
	_ = c.data.SetWriteDeadline(end) // releases watch
	close(c.done)
	return nil
}

func (c *Conn) lose(code lifecycle.Code, detail string, err error) {
	c.end(&lifecycle.PeerError{Code: code, Rank: c.peer, Self: c.rank, Detail: detail, Err: err})
}

// end records err as the reason why the peer is gone, unless a reason is already recorded.
func (c *Conn) end(err error) {
	if c.why.CompareAndSwap(nil, &err) {
		c.know(gone)
	}
}

// know records that the peer is gone, or that the last of its data has arrived. Once both are true, it calls User.Lost.
func (c *Conn) know(what uint32) (before uint32) {
	before = c.state.Or(what)
	if before&closed == 0 && before&(gone|ended) == (gone|ended)&^what {
		if before&bye != 0 {
			c.user.Lost(nil)
		} else {
			c.user.Lost(*c.why.Load())
		}
	}
	return before
}

func (c *Conn) refusal() error {
	if s := c.state.Load(); s&gone != 0 && s&closed == 0 {
		return *c.why.Load()
	}
	return transport.ErrClosed
}

// userDone ends a goroutine that uses the sockets. The last such goroutine closes them: watch stays until Close.
func (c *Conn) userDone() {
	if c.using.Add(-1) == 0 {
		c.shut()
	}
}

func (c *Conn) shut() {
	_ = c.data.Close()
	_ = c.control.Close()
}
