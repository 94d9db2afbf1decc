package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Listener accepts the connections of all communicators of a process: it keeps their gates behind a door.
type Listener struct {
	door      *door.Door
	wire      door.Wire
	keepalive time.Duration
	wg        sync.WaitGroup // the goroutines of the connections

	mu sync.Mutex
	// failed has the gates of ranks that gave up, oldest first. They stay open, to tell peers that still dial them.
	failed []door.Room
}

// keepFailed is the number of failed gates that stay open. Their peers dial within seconds.
const keepFailed = 256

// Listen opens a port of the system's choice on addr. wire is the minimum protection of connections; keepalive is the
// time after which a silent host counts as unreachable.
func Listen(addr netip.Addr, wire door.Wire, keepalive time.Duration, log *slog.Logger) (*Listener, error) {
	d, err := door.Listen(context.Background(), netip.AddrPortFrom(addr, 0).String(), wire, log)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	return &Listener{door: d, wire: wire, keepalive: keepalive}, nil
}

// Door returns the Listener's Door, which others may use until Close.
func (s *Listener) Door() *door.Door { return s.door }

// Close stops listening and waits for all goroutines of the Listener and its connections; the connections must be
// closed before.
func (s *Listener) Close() {
	_ = s.door.Close() // no harm if it fails
	s.wg.Wait()
}

// kind distinguishes the two connections of a pair, and the question of a rank that waits for them. The two are dialed
// in this order: a dialer that gives up in between can say so on control.
type kind uint8

const (
	control kind = iota
	data
	kinds            // number of connections of a pair
	question = kinds // it only carries the end of the rank that is asked
)

// askAfter is how long a rank waits to be dialed before it asks the peer whether it is still going to dial.
const askAfter = 200 * time.Millisecond

// about encodes what a connection is for: from u32, to u32, kind u8.
func about(from, to int, k kind) (a door.About) {
	binary.LittleEndian.PutUint32(a[0:], uint32(from))
	binary.LittleEndian.PutUint32(a[4:], uint32(to))
	a[8] = byte(k)
	return a
}

// halfConn is a *net.TCPConn, or a *door.Sealed over one.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// Gate accepts the connections of the peers of one rank of one communicator.
type Gate struct {
	s      *Listener
	id     door.Room
	comm   lifecycle.CommID
	secret []byte

	mu     sync.Mutex
	closed bool
	gaveUp *transport.Notice // set if closed by GiveUp: the reason
	came   map[int]*arrival
	asking []halfConn
}

type arrival struct {
	conns    [kinds]halfConn
	to       int
	complete chan struct{} // closed when all connections have arrived
}

// Gate opens a gate for a rank of a communicator.
func (s *Listener) Gate(id lifecycle.CommID, secret []byte) *Gate {
	g := &Gate{s: s, comm: id, secret: secret, came: make(map[int]*arrival)}
	_, _ = rand.Read(g.id[:]) // never fails
	s.door.Add(g.id, secret, g.enter)
	return g
}

// ID returns what peers must know to connect to this gate.
func (g *Gate) ID() door.Room { return g.id }

// Close closes the gate of a connected rank, and the connections that the rank has not taken.
func (g *Gate) Close() {
	g.s.door.Remove(g.id)
	g.close(nil)
}

// GiveUp closes the gate of a rank that won't connect. Peers that have connected, or connect later, are told why.
func (g *Gate) GiveUp(n transport.Notice) {
	g.close(&n)
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	g.s.failed = append(g.s.failed, g.id)
	if len(g.s.failed) > keepFailed {
		g.s.door.Remove(g.s.failed[0])
		g.s.failed = g.s.failed[1:]
	}
}

func (g *Gate) close(why *transport.Notice) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.gaveUp = true, why
	for _, a := range g.came {
		for k, c := range a.conns {
			dismiss(kind(k), c, why)
		}
	}
	for _, c := range g.asking {
		dismiss(question, c, why)
	}
}

// dismiss closes a connection, if there is one. It first sends the reason or a goodbye: otherwise the peer would
// believe that this process is dead.
func dismiss(k kind, c halfConn, why *transport.Notice) {
	switch {
	case c == nil:
		return
	case k == data:
	case why != nil:
		say(c, transport.AppendNotice([]byte{frameNotice, 0, 0}, *why))
	default:
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

// enter takes a connection of a peer. It replaces one that the peer has given up.
func (g *Gate) enter(about door.About, c net.Conn) {
	conn := c.(halfConn)
	from, to := int(binary.LittleEndian.Uint32(about[0:])), int(binary.LittleEndian.Uint32(about[4:]))
	k := kind(about[8])
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case k > question:
		_ = conn.Close()
		return
	case g.closed:
		dismiss(k, conn, g.gaveUp)
		return
	case k == question:
		g.asking = append(g.asking, conn)
		return
	}
	a := g.from(from)
	select {
	case <-a.complete: // the rank has taken the connections, or will
		_ = conn.Close()
		return
	default:
	}
	if old := a.conns[k]; old != nil {
		_ = old.Close()
	}
	a.conns[k], a.to = conn, to
	if a.conns[data] != nil && a.conns[control] != nil {
		close(a.complete)
	}
}

// wait returns the connections of a peer when all have arrived. After askAfter, it asks the peer, at the peer's own
// gate, and keeps that connection, which ends with the peer.
func (g *Gate) wait(
	ctx context.Context, self, peer int, addr string, gate door.Room,
) (conns [kinds]halfConn, err error) {
	g.mu.Lock()
	a := g.from(peer)
	g.mu.Unlock()
	patience := time.NewTimer(askAfter)
	defer patience.Stop()
	select {
	case <-a.complete:
	case <-patience.C:
		ctx, cancel := context.WithCancelCause(ctx)
		var asking sync.WaitGroup
		asking.Go(func() { cancel(g.ask(ctx, self, peer, addr, gate)) })
		defer asking.Wait()
		defer cancel(nil)
		select {
		case <-a.complete:
		case <-ctx.Done():
			return conns, context.Cause(ctx)
		}
	case <-ctx.Done():
		return conns, context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.to != self {
		return conns, fmt.Errorf("it came for rank %d", a.to)
	}
	conns, a.conns = a.conns, conns
	return conns, nil
}

// ask blocks until the peer gives up or ends, and returns that as an error, or until ctx ends.
func (g *Gate) ask(ctx context.Context, self, peer int, addr string, gate door.Room) error {
	c, err := g.dial(ctx, self, peer, question, addr, gate)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is lost
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	_ = door.KeepWatch(c, g.s.keepalive) // otherwise the loss of the host is only noticed later
	switch notice, err := readFrame(c); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && notice != nil:
		return &transport.NoticeError{Peer: peer, Notice: *notice}
	case err == nil:
		return transport.PeerClosed(peer)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errEnded
	default:
		return fmt.Errorf("%w: %w", errSilent, err)
	}
}

var (
	errEnded  = errors.New("its process has ended, or its runtime was closed")
	errSilent = errors.New("its host does not answer; look at the network and at the host")
)

// Connect connects rank self, which owns this gate, to rank peer, whose gate and address are given. As these are known,
// that gate was opened, and only a rank that is gone has closed it. The lower rank dials and the higher one waits.
// Connect blocks until the connection is established, the peer gives up or ends, or ctx ends. The connection serves
// user. The errors are *transport.NoticeError, *lifecycle.PeerError and *lifecycle.SystemError.
func (g *Gate) Connect(
	ctx context.Context, self, peer int, addr string, gate door.Room, user User,
) (*Conn, error) {
	var conns [kinds]halfConn
	var err error
	if self > peer {
		conns, err = g.wait(ctx, self, peer, addr, gate)
	}
	for k := range conns {
		if self < peer && err == nil {
			conns[k], err = g.dial(ctx, self, peer, kind(k), addr, gate)
		}
	}
	if err != nil {
		err = g.failure(self, peer, addr, err)
		why := transport.NoticeOf(err, self)
		for k, c := range conns {
			dismiss(kind(k), c, &why)
		}
		return nil, err
	}
	return newConn(g.s, conns, self, peer, user)
}

// failure returns the error of Connect.
func (g *Gate) failure(self, peer int, addr string, err error) error {
	code := lifecycle.CodeNotJoined
	_, told := errors.AsType[*transport.NoticeError](err)
	_, known := errors.AsType[*lifecycle.PeerError](err) // the fault of another rank, which ended ctx
	switch {
	case told, known:
		return err
	case door.LocalFault(err):
		return &lifecycle.SystemError{
			Code: lifecycle.CodeSystem, Op: fmt.Sprintf("connect with rank %d at %s", peer, addr), Err: err,
		}
	case errors.Is(err, door.ErrSecret):
		code = lifecycle.CodeAuth
	case errors.Is(err, door.ErrVersion):
		code = lifecycle.CodeMismatch
	case errors.Is(err, errEnded):
		code = lifecycle.CodeRankDead
	case errors.Is(err, errSilent):
		code = lifecycle.CodeUnreachable
	}
	return &lifecycle.PeerError{
		Code: code, Rank: peer, Self: self, Comm: g.comm,
		Detail: fmt.Sprintf("no TCP connection with it, at %s: %v", addr, err), Err: err,
	}
}

// dial opens a connection to the gate of a peer. A gate that was announced is open, unless its rank is gone.
func (g *Gate) dial(
	ctx context.Context, self, peer int, k kind, addr string, gate door.Room,
) (halfConn, error) {
	h := door.Hello{Room: gate, About: about(self, peer, k), Secret: g.secret, Wire: g.s.wire}
	var last error
	answered := time.Now() // when the peer's host last answered
	c, err := door.Dial(ctx, addr, h, func(met error) error {
		last = met
		switch {
		case errors.Is(met, door.ErrUnknown): // the peer ended long ago
			return transport.PeerClosed(peer)
		case door.Gone(met):
			return fmt.Errorf("%w: %w", errEnded, met)
		case !door.Silent(met):
			answered = time.Now()
		case time.Since(answered) > g.s.keepalive:
			return fmt.Errorf("%w: %w", errSilent, met)
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; the last attempt: %w", context.Cause(ctx), cmp.Or(last, errors.New("it did not end")))
	}
	if err != nil {
		return nil, err
	}
	return c.(halfConn), nil
}
