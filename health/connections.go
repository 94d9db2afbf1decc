package health

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Bounds of what is open at a time. Streams leave room for all others.
const (
	maxConnections = 1536
	maxStreams     = maxConnections - 256
)

// connections bounds how many are open, without ever turning a new one away: where there are too many, the one goes
// that has waited longest to ask something, or else the one that has taken longest to be answered. So a probe is let in
// however many others hold on to theirs.
type connections struct {
	max, maxStreams int
	cut             func() // counts a connection that had to go

	mu      sync.Mutex
	open    map[net.Conn]*connection
	waiting list.List // of *connection: those without a request, or whose request hasn't arrived in full; the oldest first
	serving list.List // of *connection: those that are being answered; the oldest first
	streams int
}

// connection is one that is open. It is in one list, or streams, or was cut.
type connection struct {
	of     *connections
	conn   net.Conn
	in     *list.List // nil: streams, or was cut
	at     *list.Element
	stream bool
}

type connectionKey struct{}

func (cs *connections) context(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{of: cs, conn: conn}
	cs.mu.Lock()
	if cs.open == nil {
		cs.open = map[net.Conn]*connection{}
	}
	var victim *connection
	if len(cs.open) >= cs.max {
		victim = cs.oldest()
	}
	cs.open[conn] = c
	c.move(&cs.waiting)
	cs.mu.Unlock()
	if victim != nil {
		cs.cut()
		hangUp(victim.conn)
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// oldest takes out the connection that has to go; nil if all stream. cs.mu is held.
func (cs *connections) oldest() *connection {
	for _, l := range []*list.List{&cs.waiting, &cs.serving} {
		if front := l.Front(); front != nil {
			c := front.Value.(*connection)
			c.move(nil)
			delete(cs.open, c.conn)
			return c
		}
	}
	return nil
}

func (cs *connections) state(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.open[conn]; c != nil {
		delete(cs.open, conn)
		c.move(nil)
	}
}

func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// move puts the connection into a list, at its end. The lock is held.
func (c *connection) move(to *list.List) {
	if c.in != nil {
		c.in.Remove(c.at)
	}
	c.in, c.at = to, nil
	if to != nil {
		c.at = to.PushBack(c)
	}
}

// begin says that a request has arrived on it, and end that it was answered.
func (c *connection) begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.in != nil {
		c.move(&c.of.serving)
	}
}

func (c *connection) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.stream {
		c.stream = false
		c.of.streams--
		if c.of.open[c.conn] == c {
			c.move(&c.of.waiting)
		}
	} else if c.in != nil {
		c.move(&c.of.waiting)
	}
}

// startStream says that it will be answered for as long as it lasts, until end; false if too many do.
func (c *connection) startStream() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.streams >= c.of.maxStreams || c.in == nil {
		return false
	}
	c.of.streams++
	c.stream = true
	c.move(nil)
	return true
}

// hangUp closes a connection without a farewell, for which TLS could wait.
func hangUp(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close() // it is gone either way
}
