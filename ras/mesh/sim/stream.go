package sim

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// linger is how long delivery goes on after Close.
const linger = 3 * time.Second

// stream is one end of a connection. Like a kernel, it buffers what is written and delivers it in the background: a
// write never waits for the other end. Shutdown closes it.
type stream struct {
	net.Conn // of a pipe, where a write waits for its reader
	from     *port
	to       *Process
	stop     func() bool

	mu     sync.Mutex
	queue  []byte // written and not delivered
	busy   bool   // deliver is running
	closed bool   // by Close, or by the other end
}

func (t *port) stream(c net.Conn, to *Process) *stream {
	return &stream{Conn: c, from: t, to: to, stop: context.AfterFunc(t.ctx, func() { _ = c.Close() })}
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.busy {
		_ = s.Conn.SetReadDeadline(time.Now())
		return s.Conn.SetWriteDeadline(time.Now().Add(linger))
	}
	s.stop()
	return s.Conn.Close()
}

func (s *stream) Write(b []byte) (int, error) {
	s.from.process.Gate()
	delay, arrives := s.from.network.way(s.from.process, s.to, len(b), false)
	if !arrives || s.from.process.Ended() || s.to.Ended() {
		_ = s.Close()
		return 0, errReset
	}
	s.from.wait(delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errReset
	}
	s.queue = append(s.queue, b...)
	if !s.busy {
		s.busy = true
		go s.deliver()
	}
	return len(b), nil
}

var errReset = &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}

// deliver delivers what was written until the queue is empty.
func (s *stream) deliver() {
	for {
		s.mu.Lock()
		b := s.queue
		s.queue = nil
		if len(b) == 0 {
			s.busy = false
			if s.closed {
				s.stop()
				_ = s.Conn.Close()
			}
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if _, err := s.Conn.Write(b); err != nil {
			s.mu.Lock()
			s.closed, s.queue = true, nil
			s.mu.Unlock()
		}
	}
}

func (s *stream) SetDeadline(at time.Time) error     { return s.SetReadDeadline(at) }
func (s *stream) SetReadDeadline(at time.Time) error { return s.Conn.SetReadDeadline(s.due(at)) }
func (s *stream) SetWriteDeadline(time.Time) error   { return nil }

// due is when a deadline is noticed.
func (s *stream) due(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return time.Now().Add(s.from.late(at))
}

func (s *stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.from.addr) }
