package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// The conformance suite runs over this transport in package fabric's tests. These tests cover what is particular to it:
// strangers, secrets, and network conditions.

var comm = lifecycle.CommID{7}

var secret = []byte("a secret of 16 bytes or more")

func listen(t *testing.T) *Listener {
	t.Helper()
	return listenOn(t, door.Plain)
}

// listenOn is listen with protected connections.
func listenOn(t *testing.T, wire door.Wire) *Listener {
	t.Helper()
	s, err := Listen(netip.MustParseAddr("127.0.0.1"), wire, 10*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// The Listener waits for its connections. Tests close these in functions that were registered later and so run
	// earlier.
	t.Cleanup(func() {
		s.Close()
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return s
}

// within returns a context for something that must end soon.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

// recorder is a User that records its calls.
type recorder struct {
	stopped chan struct{} // Receive waits until it is closed, unless it is nil
	rung    chan struct{} // holds one
	lost    chan error    // holds one

	mu  sync.Mutex
	got []byte

	rooms [][]byte // used in turn
	room  []byte
}

func newRecorder() *recorder {
	return &recorder{rung: make(chan struct{}, 1), lost: make(chan error, 1)}
}

func (r *recorder) Room() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rooms) == 0 {
		return nil
	}
	r.room = r.rooms[0]
	r.rooms = append(r.rooms[1:], r.room)
	return r.room
}

func (r *recorder) Filled(n int) error { return r.Receive(r.room[:n]) }

func (r *recorder) Receive(p []byte) error {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got = append(r.got, p...); bytes.HasPrefix(r.got, []byte(nonsense)) {
		return errors.New("nonsense")
	}
	r.Ring()
	return nil
}

const nonsense = "nonsense"

func (r *recorder) Ring() {
	select {
	case r.rung <- struct{}{}:
	default:
	}
}

func (r *recorder) Lost(err error) { r.lost <- err }

func (r *recorder) received() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.got)
}

// connect connects ranks 0 and 1 through a Listener.
func connect(t *testing.T, s *Listener) (conns [2]*Conn, users [2]*recorder) {
	t.Helper()
	return connectVia(t, s, s.Door().Addr())
}

// connectVia is connect with another address for rank 0 to dial.
func connectVia(t *testing.T, s *Listener, via string) (conns [2]*Conn, users [2]*recorder) {
	t.Helper()
	gates := [2]*Gate{s.Gate(comm, secret), s.Gate(comm, secret)}
	var wg sync.WaitGroup
	for rank, g := range gates {
		users[rank] = newRecorder()
		wg.Go(func() {
			c, err := g.Connect(within(t, 30*time.Second), rank, 1-rank, via, gates[1-rank].ID(), users[rank])
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
	return conns, users
}

// exchange checks that a connection works.
func exchange(t *testing.T, conns [2]*Conn, users [2]*recorder) {
	t.Helper()
	want := []byte("carillon")
	if n, err := conns[0].TrySend([][]byte{want}, false); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	ctx := within(t, 10*time.Second)
	for !bytes.Equal(users[1].received(), want) {
		select {
		case <-users[1].rung:
		case <-ctx.Done():
			t.Fatalf("received %q", users[1].received())
		}
	}
}

// Data arrives in order, in the User's room, which may be larger or smaller than the data, or elsewhere.
func TestRoom(t *testing.T) {
	for _, wire := range []door.Wire{door.Plain, door.Encrypt} {
		t.Run(wire.String(), func(t *testing.T) {
			conns, users := connect(t, listenOn(t, wire))
			users[1].mu.Lock()
			users[1].rooms = [][]byte{nil, make([]byte, 7), make([]byte, 300_000), nil, nil, make([]byte, 5000)}
			users[1].mu.Unlock()
			want := make([]byte, 3_000_000)
			for i := range want {
				want[i] = byte(i * 131 >> 7)
			}
			ctx := within(t, 20*time.Second)
			for sent := 0; !bytes.Equal(users[1].received(), want); {
				n, err := conns[0].TrySend([][]byte{want[sent:]}, false)
				if err != nil {
					t.Fatal(err)
				}
				if sent += n; n > 0 {
					continue
				}
				select {
				case <-users[0].rung:
				case <-users[1].rung:
				case <-ctx.Done():
					t.Fatalf("of %d bytes %d were sent, and %d arrived or were wrong", len(want), sent,
						len(users[1].received()))
				}
			}
		})
	}
}

// Poll receives instead of the Conn's goroutine, and what both receive is in order.
func TestPoll(t *testing.T) {
	conns, users := connect(t, listen(t))
	ctx := within(t, 20*time.Second)
	var want []byte
	polled := 0
	for i := 0; polled < 10; i++ {
		p := bytes.Repeat([]byte{byte(i)}, 1+i%5000)
		if n, err := conns[0].TrySend([][]byte{p}, false); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		for want = append(want, p...); len(users[1].received()) < len(want); {
			if conns[1].Poll() {
				polled++
			}
			if ctx.Err() != nil {
				t.Fatalf("%d bytes of %d have come, and %d polls found some",
					len(users[1].received()), len(want), polled)
			}
		}
	}
	if !bytes.Equal(users[1].received(), want) {
		t.Error("not what was sent")
	}
}

// However a peer ends, the User is told, even if Poll saw it first.
func TestPolledEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*Conn)
		want lifecycle.Code
	}{
		"in order": {func(c *Conn) { _ = c.Close() }, lifecycle.CodeOK},
		"nonsense": {
			func(c *Conn) { _, _ = c.TrySend([][]byte{[]byte(nonsense)}, false) },
			lifecycle.CodeInternal,
		},
		"the end of data": {func(c *Conn) { _ = c.data.CloseWrite() }, lifecycle.CodeUnreachable},
		"a reset of data": {
			func(c *Conn) { _, _ = c.data.SetLinger(0), c.data.Close() },
			lifecycle.CodeUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t)
			s.keepalive = time.Second
			conns, users := connect(t, s)
			stop := make(chan struct{})
			var polling sync.WaitGroup
			polling.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						conns[1].Poll()
					}
				}
			})
			test.end(conns[0])
			if err := awaitLoss(t, users[1]); lifecycle.CodeOf(err) != test.want {
				t.Errorf("got %v, want code %v", err, test.want)
			}
			close(stop)
			polling.Wait()
		})
	}
}

// awaitLoss returns why the user's peer is gone.
func awaitLoss(t *testing.T, u *recorder) error {
	t.Helper()
	select {
	case err := <-u.lost:
		return err
	case <-within(t, 20*time.Second).Done():
		t.Fatal("the peer was not lost")
		return nil
	}
}

// A dialer that was not told in time that it was admitted dials again, and its new connection replaces the old one. One
// that dials for another rank, or after all connections have arrived, is rejected.
func TestArrivals(t *testing.T) {
	s := listen(t)
	g := s.Gate(comm, secret)
	defer g.Close()
	come := func(from, to int, k kind) net.Conn {
		c, err := door.Dial(within(t, 20*time.Second), s.Door().Addr(),
			door.Hello{Room: g.ID(), About: about(from, to, k), Secret: secret}, once)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ended := func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		b, err := io.ReadAll(c)
		if len(b) > 0 {
			t.Errorf("it was told %v", b)
		}
		return err
	}
	givenUp := come(0, 1, data)
	for entered := false; !entered; runtime.Gosched() { // Dial returns before the gate has it
		g.mu.Lock()
		entered = g.from(0).conns[data] != nil
		g.mu.Unlock()
	}
	come(0, 1, data)
	for name, c := range map[string]net.Conn{"given up": givenUp, "of no kind": come(0, 1, question+1)} {
		if err := ended(c); err != nil {
			t.Errorf("a connection %s: %v", name, err)
		}
	}
	come(0, 1, control)
	if _, err := g.wait(within(t, 20*time.Second), 2, 0, "", door.Room{}); err == nil {
		t.Error("rank 2 took what came for rank 1")
	}
	conns, err := g.wait(within(t, 20*time.Second), 1, 0, "", door.Room{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		defer c.Close()
	}
	if err := ended(come(0, 1, data)); err != nil {
		t.Errorf("a connection too many: %v", err)
	}
	g.Close()
	if _, err := door.Dial(within(t, 20*time.Second), s.Door().Addr(), door.Hello{Room: g.ID(), Secret: secret},
		once); !errors.Is(err, door.ErrUnknown) {
		t.Errorf("a gate that was closed: %v", err)
	}
}

// A gate that closes sends a goodbye on connections that were not taken.
func TestClosedGateSaysGoodbye(t *testing.T) {
	s := listen(t)
	g := s.Gate(comm, secret)
	c, err := door.Dial(within(t, 20*time.Second), s.Door().Addr(),
		door.Hello{Room: g.ID(), About: about(0, 1, control), Secret: secret}, once)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g.Close() // Close may run before the connection has entered, and the goodbye must be sent all the same
	if n, err := readFrame(c); n != nil || err != nil {
		t.Errorf("it was told %v, %v, want a goodbye", n, err)
	}
}

func TestConnectWithoutTheSecret(t *testing.T) {
	s := listen(t)
	a, b := s.Gate(comm, secret), s.Gate(comm, []byte("another secret"))
	defer a.Close()
	defer b.Close()
	_, err := a.Connect(within(t, 20*time.Second), 0, 1, s.Door().Addr(), b.ID(),
		newRecorder())
	var failed *lifecycle.PeerError
	if !errors.As(err, &failed) || failed.Code != lifecycle.CodeAuth || failed.Rank != 1 {
		t.Errorf("got %v", err)
	}
}

// The peer has ended, so nothing listens at its address. One rank waits for it, one dials it.
func TestConnectWithNobody(t *testing.T) {
	s := listen(t)
	g := s.Gate(comm, secret)
	defer g.Close()
	w := newRecorder()
	for _, rank := range []int{1, 3} {
		_, err := g.Connect(within(t, 20*time.Second), rank, 2, "127.0.0.1:1", door.Room{}, w)
		var failed *lifecycle.PeerError
		if !errors.As(err, &failed) || failed.Code != lifecycle.CodeRankDead || failed.Rank != 2 {
			t.Errorf("rank %d got %v", rank, err)
		}
	}
}

// A rank whose peer is there but does not dial waits as long as its context allows.
func TestConnectNamesWhoIsMissing(t *testing.T) {
	s := listen(t)
	g, its := s.Gate(comm, secret), s.Gate(comm, secret)
	defer g.Close()
	defer its.Close()
	ctx := within(t, askAfter+100*time.Millisecond)
	_, err := g.Connect(ctx, 1, 0, s.Door().Addr(), its.ID(), newRecorder())
	var failed *lifecycle.PeerError
	if !errors.As(err, &failed) || failed.Code != lifecycle.CodeNotJoined || failed.Rank != 0 ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A gate remembers why its rank gave up, until many other gates have failed.
func TestGatesAreForgotten(t *testing.T) {
	s := listen(t)
	first := s.Gate(comm, secret)
	ask := func() error {
		g := s.Gate(comm, secret)
		defer g.Close()
		return g.ask(within(t, 20*time.Second), 1, 0, s.Door().Addr(), first.ID())
	}
	first.GiveUp(transport.Notice{Code: lifecycle.CodeInternal, Culprit: 5})
	for _, want := range []int{5, 0} {
		var told *transport.NoticeError
		if err := ask(); !errors.As(err, &told) || told.Culprit() != want {
			t.Errorf("got %v, want that rank %d is at fault", err, want)
		}
		for range keepFailed {
			s.Gate(comm, secret).GiveUp(transport.Notice{Culprit: -1})
		}
	}
}

// The kernel closes the sockets of a process that ends, without a goodbye.
func TestEndWithoutGoodbye(t *testing.T) {
	conns, users := connect(t, listen(t))
	exchange(t, conns, users)
	conns[0].shut()
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, users[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeRankDead ||
		lost.Rank != 0 {
		t.Errorf("got %v", err)
	}
}

func TestNonsenseOnControl(t *testing.T) {
	conns, users := connect(t, listen(t))
	if _, err := conns[0].control.Write([]byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, users[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeInternal {
		t.Errorf("got %v", err)
	}
}

// When only the data connection ends, the control connection has some time to tell why; then the peer counts as
// unreachable.
func TestDataEndsAlone(t *testing.T) {
	s := listen(t)
	s.keepalive = time.Second
	conns, users := connect(t, s)
	_ = conns[0].data.CloseWrite()
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, users[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeUnreachable {
		t.Errorf("got %v", err)
	}
}

// A User that finds the data invalid ends the connection.
func TestNonsenseOnData(t *testing.T) {
	conns, users := connect(t, listen(t))
	if _, err := conns[0].TrySend([][]byte{[]byte(nonsense)}, false); err != nil {
		t.Fatal(err)
	}
	var lost *lifecycle.PeerError
	if err := awaitLoss(t, users[1]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeInternal {
		t.Errorf("got %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	bye := []byte{frameBye, 0, 0}
	notice := transport.AppendNotice([]byte{frameNotice, 0, 0}, transport.Notice{
		Code: lifecycle.CodeMismatch, Detail: "count",
	})
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
		if err == nil && n == nil && !bytes.HasPrefix(b, []byte{frameBye, 0, 0}) {
			t.Errorf("%x passed for a frame without a payload", b)
		}
	})
}

// once makes door.Dial make only one attempt.
func once(err error) error { return err }
