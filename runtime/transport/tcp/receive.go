package tcp

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// readSize is the most that is read at a time, so that the data stays in a core's cache until its User has copied it.
// After a read into the User's Room, the next read elsewhere is limited to peekSize, enough for the User to know what
// comes next. A Poll reads pollSize at most.
const (
	readSize = 128 << 10
	peekSize = 4 << 10
	pollSize = 16 << 10
)

// sayTime is the longest that writing a frame to the kernel may take.
const sayTime = 100 * time.Millisecond

// The frames on the control connection: type, length of the payload (2 bytes), payload.
const (
	frameNotice = 1 // from a rank that gave up before it was connected
	frameBye    = 2
)

// receiver is the receiving side of data. One goroutine at a time may read.
type receiver struct {
	buf   []byte
	size  int  // size of buf to use for the next read
	large bool // more data than the last read returned is likely to be there or on its way

	// For a plain connection: made once, so that receiving does not allocate.
	mu    sync.Mutex
	from  int // the socket
	read  func(p []byte) (int, error)
	ready func(fd uintptr) (done bool) // reads once; false if nothing has arrived
	poll  func(fd uintptr)
	moved bool  // the last read returned data
	err   error // why no more data will arrive
}

func (c *Conn) newReceiver() {
	r := &c.receiver
	r.buf, r.size = make([]byte, readSize), readSize
	r.read = func(p []byte) (int, error) { return unix.Read(r.from, p) }
	r.ready = func(fd uintptr) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return c.readOnce(fd, readSize)
	}
	r.poll = func(fd uintptr) { c.readOnce(fd, pollSize) }
}

// readOnce reads at most so many bytes, without waiting, and returns false if nothing has arrived. mu is held.
func (c *Conn) readOnce(fd uintptr, most int) bool {
	r := &c.receiver
	if r.moved = false; r.err != nil {
		return true
	}
	r.from = int(fd)
	err := c.receive(r.read, most)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false
	case err == nil:
		r.moved = true
	default:
		r.err = err
	}
	return true
}

// Poll receives what has arrived, unless a goroutine of the Conn is doing so, and reports whether there was anything.
// It never waits: it lets a caller that has nothing else to do avoid the wake-up time of that goroutine. Protected data
// and large data are only received by the goroutine, as the caller can do something else meanwhile.
func (c *Conn) Poll() (moved bool) {
	r := &c.receiver
	if c.sealed != nil || c.state.Load()&(closed|ended) != 0 || !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if r.moved = false; r.large {
		return false
	}
	_ = c.raw.Control(r.poll) // fails if the Conn was closed
	if r.err != nil {
		c.stopData() // the poller does not wake the goroutine for what was already read
	}
	return r.moved
}

// readData passes arriving data to the User until the peer's stream ends.
func (c *Conn) readData() {
	defer c.userDone()
	next := c.nextPlain
	if c.sealed != nil {
		next = c.nextSealed
	}
	for c.state.Load()&closed == 0 {
		if err := next(); err != nil {
			c.dataEnded(err)
			return
		}
	}
	_, _ = io.Copy(io.Discard, c.data) // closed: drain until the peer has read all, as a reset would discard its data
}

// nextPlain waits for data and passes it to the User.
func (c *Conn) nextPlain() error {
	err := c.raw.Read(c.receiver.ready)
	c.receiver.mu.Lock()
	err = cmp.Or(c.receiver.err, err)
	c.receiver.mu.Unlock()
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return &net.OpError{Op: "read", Net: "tcp", Source: c.data.LocalAddr(), Addr: c.data.RemoteAddr(), Err: errno}
	}
	return err
}

// nextSealed waits for a record and passes it to the User.
func (c *Conn) nextSealed() error {
	if err := c.sealed.Await(); err != nil {
		return err
	}
	return c.receive(c.sealed.Read, readSize)
}

// receive reads at most so many bytes with read, and passes them to the User. It does not wait.
func (c *Conn) receive(read func([]byte) (int, error), most int) error {
	r := &c.receiver
	room := c.user.Room()
	to := r.buf[:min(r.size, most)]
	if room != nil {
		to = room[:min(len(room), most)]
	}
	n, err := read(to)
	for errors.Is(err, unix.EINTR) {
		n, err = read(to)
	}
	if n = max(n, 0); n == 0 && err == nil {
		err = io.EOF
	}
	r.large = room != nil || n == len(to)
	if c.state.Load()&closed != 0 {
		n = 0
	}
	var bad error
	if room != nil {
		bad, r.size = c.user.Filled(n), peekSize
	} else if n > 0 {
		bad, r.size = c.user.Receive(to[:n]), readSize
	}
	if bad != nil {
		c.lose(lifecycle.CodeInternal, "it sent what makes no sense", bad)
		return bad
	}
	return err
}

// dataEnded records that no more data will arrive. The control connection tells why, unless only data broke.
func (c *Conn) dataEnded(err error) {
	known := c.know(ended)&(closed|gone) != 0
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.closeWrite() // the peer no longer reads; end this direction, too
	case known || errors.Is(err, unix.ECONNRESET):
	default:
		c.lose(lifecycle.CodeUnreachable, "the connection broke", err)
	}
	if !known {
		_ = c.control.SetReadDeadline(time.Now().Add(c.grace))
	}
}

// readControl waits for the peer's frames, and for its end.
func (c *Conn) readControl() {
	defer c.userDone()
	for {
		notice, err := readFrame(c.control)
		switch {
		case err == nil && notice != nil: // the peer gave up while it dialed
			c.end(&transport.NoticeError{Peer: c.peer, Notice: *notice})
			continue // until the peer closes
		case err == nil:
			if c.why.Load() == nil {
				c.state.Or(bye)
			}
			c.end(transport.PeerClosed(c.peer))
			_ = c.control.CloseWrite()
		case c.state.Load()&(closed|gone) != 0:
		case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			c.lose(lifecycle.CodeRankDead,
				"its kernel closed the connection without a goodbye, so the process ended", err)
			_ = door.KeepWatch(c.data, c.grace) // its kernel sends the rest, but no end if the host goes down, too
		case errors.Is(err, door.ErrForged):
			c.lose(lifecycle.CodeUnreachable, "the connection broke", err)
			c.stopData()
		case errors.Is(err, errFrame):
			c.lose(lifecycle.CodeInternal, "it spoke nonsense on the control connection", err)
			c.stopData()
		default:
			c.lose(lifecycle.CodeUnreachable,
				"its host does not answer any more; look at the network and at the host", err)
			c.stopData()
		}
		return
	}
}

// stopData ends readData when the end of the peer's stream will not arrive.
func (c *Conn) stopData() { _ = c.data.SetReadDeadline(time.Unix(1, 0)) }

// errFrame is the error of a frame that no peer of this version sends.
var errFrame = errors.New("bad control frame")

// readFrame reads one frame: a notice, or a bye, for which it returns nil.
func readFrame(r io.Reader) (*transport.Notice, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.LittleEndian.Uint16(head[1:]))
	switch {
	case head[0] == frameBye && size == 0:
		return nil, nil //nolint:nilnil // a bye has no notice
	case head[0] != frameNotice || size > transport.MaxNotice:
		return nil, fmt.Errorf("%w: type %d, %d bytes", errFrame, head[0], size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	n, err := transport.DecodeNotice(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return &n, nil
}

// say writes a frame, whose first byte is its type, to a control connection. The kernel's buffer has room for it.
func say(control net.Conn, frame []byte) {
	binary.LittleEndian.PutUint16(frame[1:], uint16(len(frame)-3))
	_ = control.SetWriteDeadline(time.Now().Add(sayTime))
	_, _ = control.Write(frame)
}
