package tcp

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/runtime/door"
)

// burst is how many bytes are sealed at a time: a system call writes them while the peer opens the previous ones.
const burst = 64 << 10

// sealer is the part of a sender for protected connections. Sealed bytes count as sent, so they must go out, in this
// order: watch writes those for which the kernel has no room.
type sealer struct {
	conn *door.Sealed
	buf  []byte
	part [1][]byte             // buf, as sender.parts
	rest []byte                // unwritten part of buf: watch's while sender.blocked, else empty
	more func(fd uintptr) bool // writes rest; made once

	mu sync.Mutex // held while bytes are sealed and written, and to check whether watch has a rest
}

func newSealer(conn *door.Sealed) *sealer {
	s := &sealer{conn: conn, buf: make([]byte, 0, door.SealedSize(burst)+MaxParts*door.SealedSize(1))}
	s.more = s.writeRest
	return s
}

// writeRest writes until nothing is left, or returns false if there is no room.
func (s *sealer) writeRest(fd uintptr) bool {
	for len(s.rest) > 0 {
		n, err := unix.SendmsgN(int(fd), s.rest, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			return true // the peer is gone, and the control connection tells why
		}
		s.rest = s.rest[n:]
	}
	return true
}

// trySendSealed is TrySend on a protected connection.
func (c *Conn) trySendSealed(parts [][]byte) (taken int, err error) {
	s := c.seal
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state.Load()&(closed|gone) != 0 { // closeWrite may have been called by now
		return 0, c.refusal()
	}
	s.buf = s.buf[:0]
	for _, p := range parts {
		p = p[:min(len(p), burst-taken)]
		s.buf = s.conn.Seal(s.buf, p)
		taken += len(p)
	}
	s.part[0] = s.buf
	c.parts = s.part[:]
	err = c.raw.Control(c.write)
	c.parts, s.part[0] = nil, nil
	switch {
	case err != nil:
		return 0, c.refusal()
	case c.err == nil:
	case errors.Is(c.err, unix.EAGAIN):
		c.n = 0
	default:
		return 0, nil // as in TrySend
	}
	if s.rest = s.buf[c.n:]; len(s.rest) > 0 {
		c.blocked.Store(true)
		c.full <- struct{}{}
	}
	return taken, nil
}

// flush writes the rest as soon as there is room, and then does what closeWrite has left to it.
func (c *Conn) flush() {
	s := c.seal
	_ = c.raw.Write(s.more) // ends at Close's deadline
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = nil
	c.blocked.Store(false)
	if c.state.Load()&(closed|ended) != 0 {
		_ = c.data.CloseWrite()
	}
}

// closeWrite tells the peer that nothing follows what was taken from the caller. The state is already set accordingly.
func (c *Conn) closeWrite() {
	if c.seal != nil {
		c.seal.mu.Lock()
		defer c.seal.mu.Unlock()
		if c.blocked.Load() {
			return // flush will do it
		}
	}
	_ = c.data.CloseWrite()
}
