package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Limits of open connections. Streams leave room for other requests.
const (
	maxConnections = 1536
	maxStreams     = maxConnections - 256
)

// connections bounds the number of open connections, and never refuses a new one: it closes the connection that has
// been idle longest, or else the one that has been served longest. So a probe gets in however many connections other
// clients hold.
type connections struct {
	max, maxStreams int
	cut             func() // counts a connection that is closed for a new one

	mu      sync.Mutex
	open    map[net.Conn]*connection
	streams int
	changes uint64 // of activities
}

// connection is a connection that is open, or that was closed while it was being served.
type connection struct {
	of    *connections
	conn  net.Conn
	ours  func() error // checks that its client is this process's user or root
	doing activity
	since uint64 // connections.changes when the activity began
}

// activity is what a connection is doing. Connections with the lowest activity are closed first.
type activity uint8

const (
	waiting   activity = iota // waiting for a request, or the rest of one
	serving                   // serving a request
	streaming                 // sending an answer without an end; never closed for a new connection
)

type connectionKey struct{}

// connectionOf returns a request's connection; nil if the endpoint is mounted in another server.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// mounted stands for the connection of a request to another server. Close ends the request's context.
type mounted struct {
	net.Conn
	cancel context.CancelFunc
}

func (m *mounted) Close() error {
	m.cancel()
	return nil
}

// mount counts a request to another server as a connection, until ended is called.
func (cs *connections) mount(r *http.Request) (c *connection, with *http.Request, ended func()) {
	ctx, cancel := context.WithCancel(r.Context())
	conn := &mounted{cancel: cancel}
	with = r.WithContext(cs.context(ctx, conn))
	return connectionOf(with), with, func() {
		cs.state(conn, http.StateClosed)
		cancel()
	}
}

func (cs *connections) context(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{of: cs, conn: conn, ours: sync.OnceValue(func() error { return ours(conn) })}
	cs.mu.Lock()
	if cs.open == nil {
		cs.open = map[net.Conn]*connection{}
	}
	var victim *connection
	if len(cs.open) >= cs.max {
		if victim = cs.oldest(); victim != nil {
			delete(cs.open, victim.conn)
		}
	}
	cs.open[conn] = c
	c.begin(waiting)
	cs.mu.Unlock()
	if victim != nil {
		cs.cut()
		hangUp(victim.conn)
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// oldest is the connection to close for a new one; nil if all are streams. cs.mu is held.
func (cs *connections) oldest() (victim *connection) {
	for _, c := range cs.open {
		if c.doing != streaming && (victim == nil ||
			cmp.Or(cmp.Compare(c.doing, victim.doing), cmp.Compare(c.since, victim.since)) < 0) {
			victim = c
		}
	}
	return victim
}

func (cs *connections) state(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.open, conn)
	}
}

func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// begin changes the connection's activity. The lock is held.
func (c *connection) begin(doing activity) {
	if c.doing == streaming {
		c.of.streams--
	}
	if doing == streaming {
		c.of.streams++
	}
	c.of.changes++
	c.doing, c.since = doing, c.of.changes
}

// serve notes that a request has arrived; the caller calls answered when it is done.
func (c *connection) serve() (answered func()) {
	begin := func(doing activity) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.begin(doing)
	}
	begin(serving)
	return func() { begin(waiting) }
}

// stream makes the connection a stream; false if there are too many.
func (c *connection) stream() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.streams >= c.of.maxStreams {
		return false
	}
	c.begin(streaming)
	return true
}

// endStreams closes all streams, and lets no more begin.
func (cs *connections) endStreams() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.maxStreams = 0
	for conn, c := range cs.open {
		if c.doing == streaming {
			hangUp(conn)
		}
	}
}

// hangUp closes a connection without TLS's close_notify, which might block.
func hangUp(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close() // it is gone either way
}
