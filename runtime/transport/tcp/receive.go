package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// ringSize is how far a reader reads ahead, a power of two.
const ringSize = 256 << 10

// sayTime is the longest that a frame may take to get into the kernel.
const sayTime = 100 * time.Millisecond

// The frames on the control connection: type, length of the payload (2 bytes), payload.
const (
	frameNotice    = 1
	frameBye       = 2
	frameConnected = 3
)

// receiver is the receiving side of data: a ring that the goroutine readData fills. Positions never wrap.
type receiver struct {
	in     io.Reader // data, opened
	ring   []byte
	tail   atomic.Uint64 // written by readData
	_      [128]byte
	head   atomic.Uint64 // written by Release
	seen   uint64        // head, as Release keeps it
	_      [128]byte
	asleep atomic.Bool   // readData waits for room
	room   chan struct{} // holds one wake-up
}

// Peek implements transport.Conn.
func (c *Conn) Peek() ([]byte, error) {
	// The state first: all data was there before it says ended.
	s := c.state.Load()
	if s&closed != 0 {
		return nil, transport.ErrClosed
	}
	if n := c.tail.Load() - c.seen; n != 0 {
		at := c.seen & (ringSize - 1)
		end := min(at+n, ringSize)
		return c.ring[at:end:end], nil
	}
	if s&(gone|ended) == gone|ended {
		return nil, c.refusal()
	}
	return nil, nil
}

// InFlight says whether a peer that is gone may have sent more than Peek has shown: kernels hold it until there is room
// here. The Waiter rings when the last of it has arrived.
func (c *Conn) InFlight() bool { return c.state.Load()&(closed|gone|ended) == gone }

// Release implements transport.Conn.
func (c *Conn) Release(n int) {
	c.seen += uint64(n)
	c.head.Store(c.seen)
	if c.asleep.Load() && c.tail.Load()-c.seen <= ringSize/2 {
		c.wakeReader()
	}
}

func (r *receiver) wakeReader() {
	select {
	case r.room <- struct{}{}:
	default: // a wake-up is already there
	}
}

// free returns the room at tail that is contiguous.
func (r *receiver) free(tail uint64) []byte {
	n := ringSize - (tail - r.head.Load())
	at := tail & (ringSize - 1)
	return r.ring[at:min(at+n, ringSize)]
}

// readData moves what arrives into the ring until the peer's stream ends.
func (c *Conn) readData() {
	defer c.userDone()
	var tail uint64
	for c.state.Load()&closed == 0 {
		into := c.free(tail)
		if len(into) == 0 {
			// Say so, look again, then sleep: Release does it in the other order.
			c.asleep.Store(true)
			if len(c.free(tail)) == 0 {
				<-c.room
			}
			c.asleep.Store(false)
			continue
		}
		n, err := c.in.Read(into)
		if n > 0 {
			tail += uint64(n)
			c.tail.Store(tail)
			c.bell.Ring()
		}
		if err != nil {
			c.dataEnded(err)
			return
		}
	}
	_, _ = io.Copy(io.Discard, c.data) // closed: stay until the peer has read all, so that no reset takes it away
}

// dataEnded says that nothing more will arrive. Why is for the control connection to say, unless only data broke.
func (c *Conn) dataEnded(err error) {
	known := c.state.Or(ended)&(closed|gone) != 0
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.closeWrite() // the peer reads no more; let it know that we are through, too
	case known || errors.Is(err, unix.ECONNRESET):
	default:
		c.lose(lifecycle.CodeUnreachable, "the connection broke", err)
	}
	if !known {
		_ = c.control.SetReadDeadline(time.Now().Add(c.grace))
	}
	c.bell.Ring()
}

// readControl waits for what the peer has to say, and for its end.
func (c *Conn) readControl() {
	defer c.userDone()
	for {
		frame, notice, err := readFrame(c.control)
		switch {
		case err == nil && frame == frameConnected:
			c.state.Or(confirmed)
			c.bell.Ring()
			continue
		case err == nil && notice != nil:
			c.end(&transport.NoticeError{Peer: c.peer, Notice: *notice}, c.bell.PeerLost)
			continue // until it closes
		case err == nil:
			c.end(transport.PeerClosed(c.peer), func(int, error) { c.bell.Ring() }) // which is no loss
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

// stopData ends readData when the end of the peer's stream can't be hoped for.
func (c *Conn) stopData() { _ = c.data.SetReadDeadline(time.Unix(1, 0)) }

// errFrame is what a peer of this version does not send.
var errFrame = errors.New("bad control frame")

// readFrame reads one frame, of which only a notice has a payload.
func readFrame(r io.Reader) (frame byte, notice *transport.Notice, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	frame = head[0]
	size := int(binary.LittleEndian.Uint16(head[1:]))
	switch {
	case (frame == frameBye || frame == frameConnected) && size == 0:
		return frame, nil, nil
	case frame != frameNotice || size > transport.MaxNotice:
		return 0, nil, fmt.Errorf("%w: type %d, %d bytes", errFrame, frame, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	n, err := transport.DecodeNotice(body)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return frame, &n, nil
}

// say writes a frame, whose first byte is its type, to a control connection: the kernel's buffer has room for it.
func say(control net.Conn, frame []byte) {
	binary.LittleEndian.PutUint16(frame[1:], uint16(len(frame)-3))
	_ = control.SetWriteDeadline(time.Now().Add(sayTime))
	_, _ = control.Write(frame)
}
