package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// result is what one Exchange returned.
type result struct {
	payloads [][]byte
	err      error
}

// start runs an Exchange of an empty card.
func start(ctx context.Context, c *Client, key string, rank, size int) <-chan result {
	done := make(chan result, 1)
	go func() {
		payloads, err := c.Exchange(ctx, key, rank, size, nil)
		done <- result{payloads, err}
	}()
	return done
}

// serve runs a server on a listener of any kind.
func serve(l net.Listener, config Config) *Server {
	s := Serve(door.Open(l, config.Log), config)
	s.owned = true
	return s
}

// client dials and closes with the test.
func client(t testing.TB, id lifecycle.UniqueID, config Config) *Client {
	t.Helper()
	if config.Log == nil {
		config.Log = quiet
	}
	c := Dial(id, config)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close a client: %v", err)
		}
	})
	return c
}

// within is a context that only a test that hangs will see the end of.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await returns when the condition holds, which nothing announces.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for tick := time.Tick(time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-limit:
			t.Fatalf("waited 30 seconds in vain until %s", what)
		}
	}
}

// wantText checks what an error says.
func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// wantPeer checks whom an error blames.
func wantPeer(t testing.TB, err error, code lifecycle.Code, rank int) {
	t.Helper()
	var peer *lifecycle.PeerError
	switch {
	case !errors.As(err, &peer):
		t.Errorf("nobody is blamed: %v", err)
	case peer.Code != code || peer.Rank != rank:
		t.Errorf("%s of rank %d, not %s of rank %d: %v", peer.Code, peer.Rank, code, rank, err)
	}
}

func wantMissing(t testing.TB, err error) {
	t.Helper()
	var missing *rendezvous.MissingError
	if !errors.As(err, &missing) || !errors.Is(err, lifecycle.ErrNotJoined) {
		t.Errorf("not a MissingError: %v", err)
	}
}

// forge returns an id of the same communicator and address with another secret.
func forge(id lifecycle.UniqueID) lifecycle.UniqueID {
	at := strings.Index(string(id[:]), string(id.Secret()))
	id[at] ^= 1
	binary.LittleEndian.PutUint32(id[4:], crc32.Checksum(id[8:], crc32.MakeTable(crc32.Castagnoli)))
	return id
}

// logbook collects log lines with the time that has passed since it was made.
type logbook struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newLogbook() *logbook { return &logbook{start: time.Now()} }

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write takes one line, without the time of the clock.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, line, _ := strings.Cut(strings.TrimSpace(string(p)), " ")
	l.lines = append(l.lines, fmt.Sprintf("%s %s", time.Since(l.start).Round(time.Second), line))
	return len(p), nil
}

func (l *logbook) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// pipes is a network of net.Pipe for tests in virtual time: a listener, and a dialer that reaches it.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4000} }
