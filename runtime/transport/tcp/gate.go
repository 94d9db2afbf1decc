package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

const defaultKeepalive = 10 * time.Second

// Listener is where the connections of all communicators of a process come in: gates behind a door.
type Listener struct {
	door      *door.Door
	keepalive time.Duration
	wg        sync.WaitGroup // what the connections run
}

// Listen opens a port of the system's choice on addr. keepalive is after how long a silent host
// counts as unreachable; 0 means 10 s.
func Listen(addr netip.Addr, keepalive time.Duration, log *slog.Logger) (*Listener, error) {
	d, err := door.Listen(context.Background(), netip.AddrPortFrom(addr, 0).String(), log)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	return &Listener{door: d, keepalive: cmp.Or(keepalive, defaultKeepalive)}, nil
}

// Door is the Listener's, for others to use until Close.
func (s *Listener) Door() *door.Door { return s.door }

// Close stops listening and waits for all that the Listener and its connections run; those must be closed before.
func (s *Listener) Close() {
	_ = s.door.Close() // nothing is lost if it fails
	s.wg.Wait()
}

// kind tells the two connections of a pair apart.
type kind uint8

const (
	data kind = iota
	control
	kinds // how many there are
)

// about says what a connection is for: from u32, to u32, kind u8.
func about(from, to int, k kind) (a door.About) {
	binary.LittleEndian.PutUint32(a[0:], uint32(from))
	binary.LittleEndian.PutUint32(a[4:], uint32(to))
	a[8] = byte(k)
	return a
}

// Gate is where the peers of one rank of one communicator arrive.
type Gate struct {
	s      *Listener
	id     door.Room
	comm   lifecycle.CommID
	secret []byte

	mu     sync.Mutex
	closed bool
	came   map[int]*arrival
}

type arrival struct {
	conns    [kinds]*net.TCPConn
	to       int
	complete chan struct{} // closed when all have come
}

// Gate opens a gate for a rank of a communicator.
func (s *Listener) Gate(id lifecycle.CommID, secret []byte) *Gate {
	g := &Gate{s: s, comm: id, secret: secret, came: make(map[int]*arrival)}
	_, _ = rand.Read(g.id[:]) // never fails
	s.door.Add(g.id, secret, g.enter)
	return g
}

// ID is what peers must know to come to this gate.
func (g *Gate) ID() door.Room { return g.id }

// Close closes the gate and the connections that nobody took.
func (g *Gate) Close() {
	g.s.door.Remove(g.id)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, a := range g.came {
		for k, c := range a.conns {
			dismiss(kind(k), c)
		}
	}
}

// dismiss closes a connection, if there is one, with a goodbye: else the peer would take this process for dead.
func dismiss(k kind, c *net.TCPConn) {
	if c == nil {
		return
	}
	if k == control {
		say(c, []byte{frameBye, 0, 0})
	}
	_ = c.Close()
}

// from returns the arrival of a peer. g.mu is held.
func (g *Gate) from(peer int) *arrival {
	a := g.came[peer]
	if a == nil {
		a = &arrival{complete: make(chan struct{})}
		g.came[peer] = a
	}
	return a
}

// enter takes a connection of a peer, in place of one that the peer has given up.
func (g *Gate) enter(about door.About, c net.Conn) {
	conn := c.(*net.TCPConn)
	from, to := int(binary.LittleEndian.Uint32(about[0:])), int(binary.LittleEndian.Uint32(about[4:]))
	k := kind(about[8])
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.from(from)
	select {
	case <-a.complete: // the rank has them, or will
		_ = conn.Close()
		return
	default:
	}
	if g.closed || k >= kinds {
		dismiss(k, conn)
		return
	}
	if old := a.conns[k]; old != nil {
		_ = old.Close()
	}
	a.conns[k], a.to = conn, to
	if a.conns[data] != nil && a.conns[control] != nil {
		close(a.complete)
	}
}

// wait returns the connections of a peer when all have come.
func (g *Gate) wait(ctx context.Context, self, peer int) (conns [kinds]*net.TCPConn, err error) {
	g.mu.Lock()
	a := g.from(peer)
	g.mu.Unlock()
	select {
	case <-a.complete:
	case <-ctx.Done():
		return conns, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.to != self {
		return conns, fmt.Errorf("it came for rank %d", a.to)
	}
	conns, a.conns = a.conns, conns
	return conns, nil
}

// Connect connects rank self, whose gate this is, with rank peer, whose gate and address are given. Of two ranks, the
// lower dials and the higher waits. It blocks until the connection stands or ctx ends. Losses are told to bell.
func (g *Gate) Connect(
	ctx context.Context, self, peer int, addr string, gate door.Room, bell *transport.Waiter,
) (*Conn, error) {
	var conns [kinds]*net.TCPConn
	var err error
	if self < peer {
		conns, err = g.dial(ctx, self, peer, addr, gate)
	} else {
		conns, err = g.wait(ctx, self, peer)
	}
	if err != nil {
		code := lifecycle.CodeNotJoined
		switch {
		case errors.Is(err, door.ErrSecret):
			code = lifecycle.CodeAuth
		case errors.Is(err, door.ErrVersion):
			code = lifecycle.CodeMismatch
		}
		return nil, &lifecycle.PeerError{
			Code: code, Rank: peer, Self: self, Comm: g.comm,
			Detail: fmt.Sprintf("no TCP connection with it, at %s: %v", addr, err), Err: err,
		}
	}
	return newConn(g.s, conns, self, peer, bell)
}

func (g *Gate) dial(
	ctx context.Context, self, peer int, addr string, gate door.Room,
) (conns [kinds]*net.TCPConn, err error) {
	for k := range conns {
		h := door.Hello{Room: gate, About: about(self, peer, kind(k)), Secret: g.secret}
		var last error
		c, err := door.Dial(ctx, addr, h, func(met error) error {
			last = met
			return nil
		})
		if err != nil {
			for _, c := range conns[:k] {
				_ = c.Close()
			}
			if ctx.Err() != nil {
				err = fmt.Errorf("%w; the last attempt: %w", ctx.Err(), last)
			}
			return conns, err
		}
		conns[k] = c.(*net.TCPConn)
	}
	return conns, nil
}
