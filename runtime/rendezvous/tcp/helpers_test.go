package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

// Helpers of the suite that this package's own tests also need.
var (
	within      = rendezvoustest.Within
	await       = rendezvoustest.Await
	wantPeer    = rendezvoustest.WantPeer
	wantMissing = rendezvoustest.WantMissing
)

// result is what one Exchange returned.
type result struct {
	payloads [][]byte
	err      error
}

// rankEnv makes this program a rank that waits for others until it is killed: rank 2 of 4, for the unique id in the
// variable.
const rankEnv = "CARILLONTEST_RANK_OF"

func TestMain(m *testing.M) {
	text := os.Getenv(rankEnv)
	if text == "" {
		goleak.VerifyTestMain(m)
		return
	}
	id, err := lifecycle.ParseUniqueID(text)
	if err == nil {
		_, err = Dial(id, Config{host: "doomed", pid: os.Getpid()}).Exchange(context.Background(), "cards", 2, 4, nil)
	}
	fmt.Fprintln(os.Stderr, "this process was to be killed, and got:", err)
	os.Exit(1)
}

var quiet = slog.New(slog.DiscardHandler)

// house is a server with its own door.
type house struct {
	*Server
	door *door.Door
}

// open opens a house at a listener of any kind.
func open(l net.Listener, log *slog.Logger) house {
	return house{NewServer(), door.Open(l, door.Plain, log)}
}

// listen opens a house on loopback that lives as long as the test.
func listen(t testing.TB, log *slog.Logger) house { return listenOn(t, door.Plain, log) }

// listenOn is listen with connections that are protected.
func listenOn(t testing.TB, wire door.Wire, log *slog.Logger) house {
	t.Helper()
	d, err := door.Listen(t.Context(), "127.0.0.1:0", wire, log)
	if err != nil {
		t.Fatal(err)
	}
	h := house{NewServer(), d}
	t.Cleanup(h.Close)
	return h
}

func (h house) Close() {
	_ = h.door.Close() // nothing is lost if it fails
	h.Server.Close()
}

func (h house) serve(id lifecycle.UniqueID) error { return h.Serve(h.door, id) }

// id makes a unique id that the house serves.
func (h house) id(t testing.TB) lifecycle.UniqueID {
	t.Helper()
	id, err := lifecycle.NewUniqueID(h.door.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.serve(id); err != nil {
		t.Fatal(err)
	}
	return id
}

// meeting returns the meeting of a unique id; nil if the id is no longer known.
func (h house) meeting(id lifecycle.UniqueID) *mem.Meeting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served[lifecycle.RootCommID(id)].Meeting
}

// waiting returns how many ranks wait in an exchange.
func (h house) waiting(id lifecycle.UniqueID, key string) int { return waiting(h.meeting(id), key) }

// start runs an Exchange of an empty card.
func start(ctx context.Context, c *Client, key string, rank, size int) <-chan result {
	done := make(chan result, 1)
	go func() {
		payloads, err := c.Exchange(ctx, key, rank, size, nil)
		done <- result{payloads, err}
	}()
	return done
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
