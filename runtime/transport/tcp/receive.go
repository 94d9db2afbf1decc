package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// readSize is the most that is read at a time: it stays in a core's cache until its User has copied it. Behind data
// that was read into the User's Room, only as much is read elsewhere as tells the User what comes next.
const (
	readSize = 128 << 10
	peekSize = 4 << 10
)

// sayTime is the longest that a frame may take to get into the kernel.
const sayTime = 100 * time.Millisecond

// The frames on the control connection: type, length of the payload (2 bytes), payload.
const (
	frameNotice = 1 // of a rank that gave up before it was connected
	frameBye    = 2
)

// receiver is the receiving side of data, for the goroutine that reads.
type receiver struct {
	c    *Conn
	buf  []byte
	size int // of buf, for the next read
}

// readData hands what arrives to the User until the peer's stream ends.
func (c *Conn) readData() {
	defer c.userDone()
	r := receiver{c: c, buf: make([]byte, readSize), size: readSize}
	next := r.nextPlain()
	if c.sealed != nil {
		next = r.nextSealed
	}
	for c.state.Load()&closed == 0 {
		if err := next(); err != nil {
			c.dataEnded(err)
			return
		}
	}
	_, _ = io.Copy(io.Discard, c.data) // closed: stay until the peer has read all, so that no reset takes it away
}

// nextPlain returns a function that waits for data and passes it on, and allocates nothing.
func (r *receiver) nextPlain() func() error {
	var from int
	var err error
	read := func(p []byte) (int, error) { return unix.Read(from, p) }
	ready := func(fd uintptr) bool {
		from = int(fd)
		err = r.receive(read)
		return !errors.Is(err, unix.EAGAIN)
	}
	return func() error {
		if broken := r.c.raw.Read(ready); broken != nil {
			return broken
		}
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			data := r.c.data
			return &net.OpError{Op: "read", Net: "tcp", Source: data.LocalAddr(), Addr: data.RemoteAddr(), Err: errno}
		}
		return err
	}
}

// nextSealed waits for a record and passes it on.
func (r *receiver) nextSealed() error {
	if err := r.c.sealed.Await(); err != nil {
		return err
	}
	return r.receive(r.c.sealed.Read)
}

// receive passes on what read gets, which does not wait.
func (r *receiver) receive(read func([]byte) (int, error)) error {
	room := r.c.user.Room()
	to := r.buf[:r.size]
	if room != nil {
		to = room[:min(len(room), readSize)]
	}
	n, err := read(to)
	for errors.Is(err, unix.EINTR) {
		n, err = read(to)
	}
	if n = max(n, 0); n == 0 && err == nil {
		err = io.EOF
	}
	if r.c.state.Load()&closed != 0 {
		n = 0
	}
	var bad error
	if room != nil {
		bad, r.size = r.c.user.Filled(n), peekSize
	} else if n > 0 {
		bad, r.size = r.c.user.Receive(to[:n]), readSize
	}
	if bad != nil {
		r.c.lose(lifecycle.CodeInternal, "it sent what makes no sense", bad)
		return bad
	}
	return err
}

// dataEnded says that nothing more will arrive. The control connection says why, unless only data broke.
func (c *Conn) dataEnded(err error) {
	known := c.know(ended)&(closed|gone) != 0
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.closeWrite() // the peer reads nothing any more; end this direction, too
	case known || errors.Is(err, unix.ECONNRESET):
	default:
		c.lose(lifecycle.CodeUnreachable, "the connection broke", err)
	}
	if !known {
		_ = c.control.SetReadDeadline(time.Now().Add(c.grace))
	}
}

// readControl waits for what the peer has to say, and for its end.
func (c *Conn) readControl() {
	defer c.userDone()
	for {
		notice, err := readFrame(c.control)
		switch {
		case err == nil && notice != nil: // it gave up while it dialed
			c.end(&transport.NoticeError{Peer: c.peer, Notice: *notice})
			continue // until it closes
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
			_ = door.KeepWatch(c.data, c.grace) // its kernel sends the rest; without an end if the host goes, too
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

// stopData ends readData when no end of the peer's stream will arrive.
func (c *Conn) stopData() { _ = c.data.SetReadDeadline(time.Unix(1, 0)) }

// errFrame is a frame that no peer of this version sends.
var errFrame = errors.New("bad control frame")

// readFrame reads one frame: a notice, or a bye, for which the notice is nil.
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

// say writes a frame, whose first byte is its type, to a control connection: the kernel's buffer has room for it.
func say(control net.Conn, frame []byte) {
	binary.LittleEndian.PutUint16(frame[1:], uint16(len(frame)-3))
	_ = control.SetWriteDeadline(time.Now().Add(sayTime))
	_, _ = control.Write(frame)
}
