package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

const (
	// handshakeTime is how long a stranger may take to say who it is.
	handshakeTime = 5 * time.Second
	// maxStrangers is how many connections may be in the handshake. One more pushes out the oldest.
	maxStrangers = 256
)

// DefaultKeepalive is after how long a silent host counts as unreachable.
const DefaultKeepalive = 10 * time.Second

// Listener accepts the connections of all communicators of a process.
type Listener struct {
	l         *net.TCPListener
	keepalive time.Duration
	wg        sync.WaitGroup // accept, handshakes, and what the connections run

	mu        sync.Mutex
	gates     map[GateID]*Gate
	strangers []net.Conn // in the order of their arrival
	closed    bool
}

// Listen opens a port of the system's choice on addr. keepalive 0 means DefaultKeepalive.
func Listen(addr netip.Addr, keepalive time.Duration) (*Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	if keepalive == 0 {
		keepalive = DefaultKeepalive
	}
	s := &Listener{l: l, keepalive: keepalive, gates: make(map[GateID]*Gate)}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is where the Listener listens, as address:port.
func (s *Listener) Addr() string { return s.l.Addr().String() }

// Close stops listening and waits for all that the Listener and its connections run; those must be closed before.
func (s *Listener) Close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.strangers {
		_ = c.Close()
	}
	s.mu.Unlock()
	_ = s.l.Close()
	s.wg.Wait()
}

func (s *Listener) accept() {
	for {
		c, err := s.l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of file descriptors, or the client is gone already. The first passes when handshakes end.
			s.relieve()
		case s.admit(c):
			s.wg.Go(func() { s.receive(c) })
		}
	}
}

// admit counts c among the strangers.
func (s *Listener) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	if len(s.strangers) == maxStrangers {
		_ = s.strangers[0].Close() // its handshake fails and dismisses it
		s.strangers = slices.Delete(s.strangers, 0, 1)
	}
	s.strangers = append(s.strangers, c)
	return true
}

// relieve makes room for another file descriptor and gives others time to do so.
func (s *Listener) relieve() {
	s.mu.Lock()
	if len(s.strangers) > 0 {
		_ = s.strangers[0].Close()
	}
	s.mu.Unlock()
	timer := time.NewTimer(10 * time.Millisecond)
	<-timer.C
}

func (s *Listener) dismiss(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.strangers, c); i >= 0 {
		s.strangers = slices.Delete(s.strangers, i, i+1)
	}
}

// receive finds out who c is and hands it to the gate that it comes for.
func (s *Listener) receive(c *net.TCPConn) {
	defer s.dismiss(c)
	_ = c.SetDeadline(time.Now().Add(handshakeTime))
	var gate *Gate
	h, err := receive(c, func(h *hello) ([]byte, error) {
		s.mu.Lock()
		gate = s.gates[h.gate]
		s.mu.Unlock()
		if gate == nil || gate.comm != h.comm {
			return nil, errors.New("nobody is expected at this gate")
		}
		return gate.secret, nil
	})
	// Whoever fails is not answered: it may be a port scan.
	if err != nil || !gate.admit(h, c) {
		_ = c.Close()
		return
	}
	if _, err := c.Write([]byte{accepted}); err != nil {
		return // the dialer comes again, and takes the place of this connection
	}
	_ = c.SetDeadline(time.Time{})
	gate.opened(h)
}

// Gate is where the peers of one rank of one communicator arrive.
type Gate struct {
	s      *Listener
	id     GateID
	comm   lifecycle.CommID
	secret []byte

	mu     sync.Mutex
	closed bool
	came   map[uint32]*arrival
}

// arrival is what has come from one peer.
type arrival struct {
	conns    [kinds]*net.TCPConn
	open     [kinds]bool // the peer has been told that it is accepted
	to       uint32
	complete chan struct{} // closed when all are open
}

// Gate opens a gate for a rank of a communicator.
func (s *Listener) Gate(id lifecycle.CommID, secret []byte) *Gate {
	g := &Gate{s: s, comm: id, secret: secret, came: make(map[uint32]*arrival)}
	_, _ = rand.Read(g.id[:]) // never fails
	s.mu.Lock()
	s.gates[g.id] = g
	s.mu.Unlock()
	return g
}

// ID is what peers must know to come to this gate.
func (g *Gate) ID() GateID { return g.id }

// Close closes the gate and the connections that nobody took; their peers are told goodbye, so that they do not take this process for dead.
func (g *Gate) Close() {
	g.s.mu.Lock()
	delete(g.s.gates, g.id)
	g.s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, a := range g.came {
		// Also to one that may not have been told yet that it was accepted: then it makes nothing of this, and comes again.
		if c := a.conns[control]; c != nil {
			say(c, []byte{frameBye, 0, 0})
		}
		for _, c := range a.conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}
}

// from returns the arrival of a peer. g.mu is held.
func (g *Gate) from(peer uint32) *arrival {
	a := g.came[peer]
	if a == nil {
		a = &arrival{complete: make(chan struct{})}
		g.came[peer] = a
	}
	return a
}

// admit takes a connection that has proved itself. One that came before, from a peer that did not get the answer, goes.
func (g *Gate) admit(h *hello, c *net.TCPConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	a := g.from(h.from)
	if a.open[h.kind] {
		return false
	}
	if old := a.conns[h.kind]; old != nil {
		_ = old.Close()
	}
	a.conns[h.kind], a.to = c, h.to
	return true
}

// opened says that the peer knows that it was admitted.
func (g *Gate) opened(h *hello) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.from(h.from)
	a.open[h.kind] = true
	if a.open[data] && a.open[control] {
		close(a.complete)
	}
}

// wait returns the connections of a peer when all have come.
func (g *Gate) wait(ctx context.Context, self, peer int) (conns [kinds]*net.TCPConn, err error) {
	g.mu.Lock()
	a := g.from(uint32(peer))
	g.mu.Unlock()
	select {
	case <-a.complete:
	case <-ctx.Done():
		return conns, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.to != uint32(self) {
		return conns, fmt.Errorf("it came for rank %d", a.to)
	}
	conns, a.conns = a.conns, conns
	return conns, nil
}
