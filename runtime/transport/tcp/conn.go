package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// lingerTime is the longest that a closed connection stays behind to see that the peer got everything.
const lingerTime = 2 * time.Second

// The bits of Conn.state.
const (
	closed    = 1 << iota // by this side
	gaveUp                // this side sent a Notice
	gone                  // the peer is; why is set
	ended                 // no more data will arrive
	confirmed             // the peer is connected with all
)

// Conn is one rank's end of the two TCP connections to a peer.
type Conn struct {
	sender
	receiver

	state   atomic.Uint32
	why     atomic.Pointer[error]
	data    *net.TCPConn
	control halfConn
	bell    *transport.Waiter
	rank    int
	peer    int
	grace   time.Duration // within which the control connection must say why data ended
	using   atomic.Int32  // goroutines that still use the sockets
}

// sender is the sending side of data.
type sender struct {
	raw     syscall.RawConn
	write   func(fd uintptr) bool // writes p; made once, so that sending does not allocate
	p       []byte
	n       int
	err     error
	seal    *sealer       // nil: p is the caller's memory
	blocked atomic.Bool   // the kernel's buffer is full; watch waits for room and owns raw until then
	full    chan struct{} // asks watch to wait
	done    chan struct{} // closed by Close; ends watch
}

func newConn(s *Listener, conns [kinds]halfConn, self, peer int, bell *transport.Waiter) (*Conn, error) {
	c := &Conn{control: conns[control], bell: bell, rank: self, peer: peer, grace: s.keepalive}
	switch conn := conns[data].(type) {
	case *door.Sealed:
		c.data, c.seal = conn.Conn.(*net.TCPConn), newSealer(conn)
	case *net.TCPConn:
		c.data = conn
	}
	c.in = conns[data]
	raw, err := c.data.SyscallConn()
	if err == nil {
		err = door.KeepWatch(c.control, s.keepalive)
	}
	if err != nil {
		_ = c.data.Close()
		_ = c.control.Close()
		return nil, fmt.Errorf("set up the connection to rank %d: %w", peer, err)
	}
	c.raw, c.full, c.done = raw, make(chan struct{}, 1), make(chan struct{})
	c.write = c.tryWrite
	c.ring, c.room = make([]byte, ringSize), make(chan struct{}, 1)
	c.using.Store(3)
	s.wg.Go(c.readData)
	s.wg.Go(c.readControl)
	s.wg.Go(c.watch)
	return c, nil
}

// Name returns "tcp".
func (c *Conn) Name() string { return "tcp" }

// TrySend implements transport.Conn.
func (c *Conn) TrySend(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if c.state.Load()&(closed|gaveUp|gone) != 0 {
		return 0, c.refusal()
	}
	if c.blocked.Load() {
		return 0, nil
	}
	if c.seal != nil {
		return c.trySendSealed(p)
	}
	c.p = p
	err := c.raw.Write(c.write)
	c.p = nil
	switch {
	case err != nil: // Close was faster
		return 0, c.refusal()
	case c.err == nil:
		return c.n, nil
	case errors.Is(c.err, unix.EAGAIN):
		c.blocked.Store(true)
		c.full <- struct{}{} // has room: watch takes one before it ends blocked
		return 0, nil
	default:
		// The peer is gone. Why is the control connection's to say, which rings when it knows.
		return 0, nil
	}
}

// tryWrite writes once and never waits.
func (s *sender) tryWrite(fd uintptr) bool {
	s.n, s.err = unix.SendmsgN(int(fd), s.p, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	return true
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
			c.bell.Ring()
			continue
		}
		looked := false
		_ = c.raw.Write(func(fd uintptr) bool {
			if looked {
				return true
			}
			looked = true // the poller tells of changes only: room may have come before it began to watch
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(poll, 0)
			return n > 0 || err != nil
		})
		c.blocked.Store(false)
		c.bell.Ring()
	}
}

// Confirm tells the peer that this rank is connected with all others; Confirmed tells whether the peer has said so.
func (c *Conn) Confirm() { say(c.control, []byte{frameConnected, 0, 0}) }

// Confirmed is the peer's Confirm.
func (c *Conn) Confirmed() bool { return c.state.Load()&confirmed != 0 }

// Notify implements transport.Conn.
func (c *Conn) Notify(n transport.Notice) {
	if c.state.Or(gaveUp)&(gaveUp|closed) == 0 {
		say(c.control, transport.AppendNotice([]byte{frameNotice, 0, 0}, n))
		c.closeWrite() // so that the peer knows when it has read the last byte
	}
}

// Close implements transport.Conn. It returns at once: everything that was taken from the caller was copied. The
// sockets stay until the peer has read everything, or lingerTime has passed.
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
	c.wakeReader()
	return nil
}

func (c *Conn) lose(code lifecycle.Code, detail string, err error) {
	c.end(&lifecycle.PeerError{Code: code, Rank: c.peer, Self: c.rank, Detail: detail, Err: err}, c.bell.PeerLost)
}

// end makes err the reason for which the peer is gone, unless there is one, and tells it.
func (c *Conn) end(err error, tell func(peer int, err error)) {
	if c.state.Load()&closed == 0 && c.why.CompareAndSwap(nil, &err) {
		c.state.Or(gone)
		tell(c.peer, err)
	}
}

func (c *Conn) refusal() error {
	if s := c.state.Load(); s&gone != 0 && s&closed == 0 {
		return *c.why.Load()
	}
	return transport.ErrClosed
}

// userDone is the end of a goroutine that uses the sockets. The last one closes them: watch stays until Close.
func (c *Conn) userDone() {
	if c.using.Add(-1) == 0 {
		c.shut()
	}
}

func (c *Conn) shut() {
	_ = c.data.Close()
	_ = c.control.Close()
}
