package tcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// The conformance suite runs over this transport in package fabric's tests. Here is what is particular to it: strangers,
// secrets, and what the network can do.

var comm = lifecycle.CommID{7}

var secret = []byte("a secret of 16 bytes or more")

func listen(t *testing.T) *Listener {
	t.Helper()
	s, err := Listen(netip.MustParseAddr("127.0.0.1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	// The Listener waits for its connections, which tests close by functions that were registered later and so run earlier.
	t.Cleanup(func() {
		s.Close()
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return s
}

// within is a context for what must end soon.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

// connect connects ranks 0 and 1 through a Listener.
func connect(t *testing.T, s *Listener) (conns [2]*Conn, waiters [2]*transport.Waiter) {
	t.Helper()
	gates := [2]*Gate{s.Gate(comm, secret), s.Gate(comm, secret)}
	var wg sync.WaitGroup
	for rank, g := range gates {
		waiters[rank] = transport.NewWaiter(2, transport.Patience{})
		wg.Go(func() {
			c, err := g.Connect(within(t, 30*time.Second), rank, 1-rank, s.Addr(), gates[1-rank].ID(), waiters[rank])
			if err != nil {
				t.Error(err)
				return
			}
			conns[rank] = c
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for rank, c := range conns {
		gates[rank].Close()
		t.Cleanup(func() { _ = c.Close() })
	}
	return conns, waiters
}

// exchange checks that a connection works.
func exchange(t *testing.T, conns [2]*Conn, waiters [2]*transport.Waiter) {
	t.Helper()
	want := []byte("carillon")
	if n, err := conns[0].TrySend(want); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	for {
		w, err := conns[1].Peek()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(w, want) {
			conns[1].Release(len(w))
			return
		}
		if err := waiters[1].Idle(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitLoss returns why the waiter's rank lost its peer.
func awaitLoss(t *testing.T, w *transport.Waiter) error {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for {
		if _, err := w.FirstLost(); err != nil {
			return err
		}
		if err := w.Idle(ctx); err != nil {
			t.Fatal("the loss was not noticed")
		}
	}
}

// Strangers that talk nonsense, say nothing or come in crowds do not keep ranks from connecting.
func TestStrangersDoNotDisturb(t *testing.T) {
	s := listen(t)
	var silent []net.Conn
	for i := range maxStrangers + 100 {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
		switch i { // the others say nothing
		case 0:
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: carillon\r\n\r\n"+string(make([]byte, 4096)))
		case 1:
			_, _ = c.Write([]byte(helloMagic)) // and no more
		case 2:
			_, _ = c.Write((&hello{comm: comm, kind: control}).encode()) // for a gate that is not there
		}
	}
	conns, waiters := connect(t, s)
	exchange(t, conns, waiters)
	s.mu.Lock()
	n := len(s.strangers)
	s.mu.Unlock()
	if n > maxStrangers || n < maxStrangers/2 {
		t.Errorf("%d strangers wait, where many came and %d may", n, maxStrangers)
	}
	for _, c := range silent {
		_ = c.Close()
	}
}

// Whoever is turned away is told nothing, but that the connection ends.
func TestStrangersAreTurnedAway(t *testing.T) {
	s := listen(t)
	g := s.Gate(comm, secret)
	defer g.Close()
	good := hello{gate: g.ID(), comm: comm, from: 0, to: 1}
	for name, change := range map[string]func(*hello, []byte) []byte{
		"garbage":       func(_ *hello, b []byte) []byte { clear(b); return b },
		"another gate":  func(h *hello, _ []byte) []byte { h.gate[0]++; return h.encode() },
		"another comm":  func(h *hello, _ []byte) []byte { h.comm[0]++; return h.encode() },
		"unknown kind":  func(h *hello, _ []byte) []byte { h.kind = kinds; return h.encode() },
		"other version": func(_ *hello, b []byte) []byte { b[len(helloMagic)-1]++; return b },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			h := good
			if _, err := c.Write(change(&h, h.encode())); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(handshakeTime / 2))
			if b, err := io.ReadAll(c); len(b) != 0 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
}

// accept runs the acceptor's part against what a dialer says, and returns what comes of it.
func accept(t *testing.T, dialer func(net.Conn)) error {
	t.Helper()
	here, there := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer there.Close()
		dialer(there)
	})
	_, err := receive(here, func(*hello) ([]byte, error) { return secret, nil })
	if err == nil {
		_, _ = here.Write([]byte{accepted})
	}
	here.Close()
	wg.Wait()
	return err
}

// Without the secret nobody gets in, though it knows everything else; and what was said once is of no use a second time.
func TestProofs(t *testing.T) {
	h := hello{gate: GateID{1}, comm: comm, from: 0, to: 1}
	var said bytes.Buffer
	if err := accept(t, func(c net.Conn) {
		if err := greet(recorder{c, &said}, h, secret); err != nil {
			t.Errorf("a dialer with the secret got %v", err)
		}
	}); err != nil {
		t.Errorf("a dialer with the secret was refused: %v", err)
	}
	if err := accept(t, func(c net.Conn) {
		_, _ = c.Write(said.Next(helloSize))
		_, _ = io.ReadFull(c, make([]byte, nonceSize+sha256.Size))
		_, _ = c.Write(said.Bytes())
	}); !errors.Is(err, errProof) {
		t.Errorf("a replay: %v", err)
	}
	if err := accept(t, func(c net.Conn) {
		first := h.encode()
		_, _ = c.Write(first)
		answer := make([]byte, nonceSize+sha256.Size)
		_, _ = io.ReadFull(c, answer)
		_, _ = c.Write(proof([]byte("another secret"), "dialer", first, answer[:nonceSize]))
	}); !errors.Is(err, errProof) {
		t.Errorf("a dialer that does not have the secret: %v", err)
	}
	if err := accept(t, func(c net.Conn) {
		_, _ = c.Write(h.encode())
		answer := make([]byte, nonceSize+sha256.Size)
		_, _ = io.ReadFull(c, answer)
		_, _ = c.Write(answer[nonceSize:])
	}); !errors.Is(err, errProof) {
		t.Errorf("a dialer that says the acceptor's proof: %v", err)
	}
	_ = accept(t, func(c net.Conn) {
		if err := greet(c, h, []byte("another secret")); !errors.Is(err, errProof) {
			t.Errorf("a dialer whose acceptor has another secret got %v", err)
		}
	})
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	said *bytes.Buffer
}

func (r recorder) Write(p []byte) (int, error) {
	r.said.Write(p)
	return r.Conn.Write(p)
}

func TestConnectWithoutTheSecret(t *testing.T) {
	s := listen(t)
	a, b := s.Gate(comm, secret), s.Gate(comm, []byte("another secret"))
	defer a.Close()
	defer b.Close()
	_, err := a.Connect(within(t, 20*time.Second), 0, 1, s.Addr(), b.ID(), transport.NewWaiter(2, transport.Patience{}))
	var failed *lifecycle.PeerError
	if !errors.As(err, &failed) || failed.Code != lifecycle.CodeAuth || failed.Rank != 1 {
		t.Errorf("got %v", err)
	}
}

func TestConnectNamesWhoIsMissing(t *testing.T) {
	s := listen(t)
	g := s.Gate(comm, secret)
	defer g.Close()
	w := transport.NewWaiter(4, transport.Patience{})
	for _, rank := range []int{1, 3} { // one waits for rank 2, one dials it
		_, err := g.Connect(within(t, 50*time.Millisecond), rank, 2, "127.0.0.1:1", GateID{}, w)
		var failed *lifecycle.PeerError
		if !errors.As(err, &failed) || failed.Code != lifecycle.CodeNotJoined || failed.Rank != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d got %v", rank, err)
		}
	}
}

// The kernel closes the sockets of a process that ends, and nothing says goodbye.
func TestEndWithoutGoodbye(t *testing.T) {
	conns, waiters := connect(t, listen(t))
	exchange(t, conns, waiters)
	conns[0].shut()
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, waiters[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeRankDead || lost.Rank != 0 {
		t.Errorf("got %v", err)
	}
}

func TestNonsenseOnControl(t *testing.T) {
	conns, waiters := connect(t, listen(t))
	if _, err := conns[0].control.Write([]byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, waiters[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeInternal {
		t.Errorf("got %v", err)
	}
}

// When only the data connection ends, the control connection has a while to say why; then the peer counts as unreachable.
func TestDataEndsAlone(t *testing.T) {
	s := listen(t)
	s.keepalive = 2 * time.Second
	conns, waiters := connect(t, s)
	_ = conns[0].data.CloseWrite()
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, waiters[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeUnreachable {
		t.Errorf("got %v", err)
	}
}

// A notice overtakes data that nobody reads.
func TestNoticeOvertakesData(t *testing.T) {
	conns, waiters := connect(t, listen(t))
	for {
		n, err := conns[0].TrySend(make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	conns[0].Notify(transport.Notice{Code: lifecycle.CodeAbandoned, Culprit: -1})
	var notice *transport.NoticeError
	if err := awaitLoss(t, waiters[1]); !errors.As(err, &notice) || notice.Notice.Code != lifecycle.CodeAbandoned {
		t.Errorf("got %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{gate: GateID{1}, comm: comm, from: 1, to: 2, kind: control, nonce: [nonceSize]byte{3}}).encode())
	f.Add([]byte(helloMagic))
	f.Add(make([]byte, helloSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x became %x", b, h.encode())
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	bye := []byte{frameBye, 0, 0}
	notice := transport.AppendNotice([]byte{frameNotice, 0, 0}, transport.Notice{Code: lifecycle.CodeMismatch, Detail: "count"})
	binary.LittleEndian.PutUint16(notice[1:], uint16(len(notice)-3))
	f.Add(bye)
	f.Add(notice)
	f.Add([]byte{frameNotice, 255, 255})
	f.Add([]byte("GET / HTTP/1.1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		n, err := readFrame(r)
		if read := len(b) - r.Len(); read > 3+transport.MaxNotice {
			t.Errorf("read %d bytes", read)
		}
		if err == nil && n == nil && !bytes.HasPrefix(b, bye) {
			t.Errorf("%x passed for a goodbye", b)
		}
	})
}
