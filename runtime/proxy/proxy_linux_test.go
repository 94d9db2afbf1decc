package proxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The conformance suite of package fabric runs over streams, with PXN and without. These tests cover what is particular
// to them.

var secret = []byte("a secret of 16 bytes or more")

// cluster is a communicator whose ranks look to their proxies like separate processes.
type cluster struct {
	t         testing.TB
	wire      door.Wire
	routes    Routes
	proxies   []*Proxy
	endpoints []*Endpoint
	waiters   []*transport.Waiter
	listeners []*tcp.Listener
}

// newCluster makes a communicator whose ranks are on the given nodes. Its rails are not connected.
func newCluster(t testing.TB, nodes ...int) *cluster {
	t.Helper()
	runtime.GC() // closes the pipes of earlier clusters: a user has room for those of a few
	c := &cluster{t: t}
	var ranks [][]int
	var members []Member
	for rank, node := range nodes {
		for len(ranks) <= node {
			ranks = append(ranks, nil)
		}
		ranks[node] = append(ranks[node], rank)
		p := New(slog.New(slog.DiscardHandler), true)
		e := p.Prepare(lifecycle.CommID{9})
		c.proxies, c.endpoints = append(c.proxies, p), append(c.endpoints, e)
		c.waiters = append(c.waiters, transport.NewWaiter(len(nodes), transport.Patience{}))
		members = append(members, Member{Card: e.Card(), PID: os.Getpid()})
	}
	c.routes = NewRoutes(nodes, ranks, true)
	for rank, e := range c.endpoints {
		local := slices.Clone(members)
		local[rank].Local = true
		var remote []int
		for peer, node := range nodes {
			if node != nodes[rank] {
				remote = append(remote, peer)
			}
		}
		if err := e.Open(rank, c.routes, local, remote, c.waiters[rank]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.close)
	return c
}

// connect connects the rails.
func (c *cluster) connect() {
	c.t.Helper()
	gates := make([]*tcp.Gate, len(c.endpoints))
	for i := range gates {
		l, err := tcp.Listen(netip.MustParseAddr("127.0.0.1"), c.wire, 10*time.Second, slog.New(slog.DiscardHandler))
		if err != nil {
			c.t.Fatal(err)
		}
		c.listeners, gates[i] = append(c.listeners, l), l.Gate(lifecycle.CommID{9}, secret)
	}
	ctx, stop := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for rank, e := range c.endpoints {
		for _, peer := range e.Rails() {
			wg.Go(func() {
				conn, err := gates[rank].Connect(
					ctx, rank, peer, c.listeners[peer].Door().Addr(), gates[peer].ID(), e.Rail(peer))
				if err != nil {
					c.t.Error(err)
					return
				}
				e.Attach(peer, conn)
			})
		}
	}
	wg.Wait()
	for _, g := range gates {
		g.Close()
	}
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *cluster) close() {
	for _, e := range c.endpoints {
		for _, conn := range e.conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
		e.Close()
	}
	for _, p := range c.proxies {
		p.Close(20 * time.Second)
	}
	for _, l := range c.listeners {
		l.Close()
	}
}

// await waits on a rank's Waiter until done returns true.
func (c *cluster) await(rank int, done func() bool) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer stop()
	for !done() {
		if err := c.waiters[rank].Idle(ctx); err != nil {
			c.t.Fatalf("rank %d: %v", rank, err)
		}
	}
	c.waiters[rank].Active()
}

// take receives n bytes.
func (c *cluster) take(rank, from, n int) []byte {
	c.t.Helper()
	conn := c.endpoints[rank].Conn(from)
	var got []byte
	c.await(rank, func() bool {
		for len(got) < n {
			window, err := conn.Peek()
			if err != nil {
				c.t.Fatal(err)
			}
			if len(window) == 0 {
				return false
			}
			window = window[:min(len(window), n-len(got))]
			got = append(got, window...)
			conn.Release(len(window))
		}
		return true
	})
	return got
}

// There are more operations than the pools hold, while the network takes none: the sender reports that it waits for the
// pool, and nothing is lost. The same holds for the rank whose proxy it uses.
func TestPoolIsExhausted(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	const from, carrier, to = 0, 1, 3
	var sent [2][]byte
	for i, rank := range []int{carrier, from} { // the carrier exhausts its own pool first
		conn := c.endpoints[rank].Conn(to)
		for {
			p := []byte{byte(len(sent[i])), byte(rank), byte(len(sent[i]) >> 8), 4, 5, 6, 7, 8}
			n, err := conn.TrySend(p)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			sent[i] = append(sent[i], p...)
		}
		if w := conn.Waits(); w != tape.PhasePool {
			t.Errorf("rank %d waits for %d", rank, w)
		}
	}
	if n := len(sent[0]) / 8; n != ownOps+sharedSlots {
		t.Errorf("the carrier made %d operations of its own", n)
	}
	if len(sent[1]) != 0 {
		t.Errorf("another rank found room for %d bytes", len(sent[1]))
	}
	if s := c.proxies[carrier].Stats(); s.Own != ownOps || s.Shared != sharedSlots || s.Waits == 0 || s.Waiting != 1 {
		t.Errorf("the carrier counts %+v", s)
	}
	c.connect()
	if got := c.take(to, carrier, len(sent[0])); !bytes.Equal(got, sent[0]) {
		t.Error("what the pool held did not arrive as it was")
	}
	conn := c.endpoints[from].Conn(to)
	c.await(from, func() bool {
		n, err := conn.TrySend([]byte("at last!"))
		return n > 0 || err != nil
	})
	if got := c.take(to, from, 8); string(got) != "at last!" {
		t.Errorf("got %q", got)
	}
	for conn.Waits() != tape.PhaseNone { // soon
		runtime.Gosched()
	}
	if s := c.proxies[carrier].Stats(); s.Own != 0 || s.Shared != 0 || s.Waiting != 0 || s.Refused != 0 {
		t.Errorf("at the end the carrier counts %+v", s)
	}
}

// A rank waits for the network if another rank's proxy has not sent its operations.
func TestWaitsForTheNetwork(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	for _, from := range []int{0, 1} {
		if w := c.endpoints[from].Conn(3).Waits(); w != tape.PhaseNone {
			t.Errorf("rank %d, which has sent nothing, waits for %d", from, w)
		}
	}
	for _, from := range []int{0, 1} {
		conn := c.endpoints[from].Conn(3)
		if n, err := conn.TrySend([]byte("12345678")); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		if w := conn.Waits(); w != tape.PhaseNetwork {
			t.Errorf("rank %d waits for %d", from, w)
		}
	}
	c.connect()
	for _, from := range []int{0, 1} {
		c.take(3, from, 8)
		for c.endpoints[from].Conn(3).Waits() != tape.PhaseNone { // soon
			runtime.Gosched()
		}
	}
}

// A receiver that takes nothing only blocks its sender, once the window is full.
func TestWindow(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.connect()
	const from, to = 0, 3 // rank 1 carries
	conn := c.endpoints[from].Conn(to)
	data := make([]byte, 4*maxWindow)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	sent := 0
	c.await(from, func() bool {
		for {
			n, err := conn.TrySend(data[sent:])
			if err != nil {
				t.Fatal(err)
			}
			if sent += n; n == 0 { // lent memory comes back as the data arrives
				return conn.Waits() == tape.PhaseCredit && conn.lent == 0
			}
		}
	})
	if sent != maxWindow {
		t.Errorf("%d bytes were taken ahead of the receiver", sent)
	}
	if n, err := c.endpoints[1].Conn(to).TrySend([]byte("the other")); n != 9 || err != nil {
		t.Fatal(n, err)
	}
	if got := c.take(to, 1, 9); string(got) != "the other" {
		t.Errorf("got %q", got)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if got := c.take(to, from, len(data)); !bytes.Equal(got, data) {
			t.Error("not what was sent")
		}
	})
	c.await(from, func() bool {
		for {
			n, err := conn.TrySend(data[sent:])
			if sent += n; n == 0 || err != nil {
				return sent == len(data) || err != nil
			}
		}
	})
	all.Wait()
}

// A rank in an operation rings a carrier once for the data that it submits before it waits, in however many pieces, and
// additionally after each ringBytes.
func TestRingsOnce(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1, 2, 2)
	w, e := c.waiters[0], c.endpoints[0] // rank 1 carries data for ranks 3 and 5
	w.Attend(new(atomic.Uint32), e.Attend)
	w.Enter()
	defer w.Leave()
	const piece = ringBytes / 4
	unrung := 0
	for i := range 7 {
		if n, err := e.Conn(3 + i%2*2).TrySend(make([]byte, piece)); n != piece || err != nil {
			t.Fatal(n, err)
		}
		if unrung += piece; unrung == ringBytes {
			unrung = 0
		}
		if len(e.unrung) != 1 || e.unrung[0].bytes != unrung || e.unrung[0].large != (unrung > 0) {
			t.Fatalf("piece %d: the carrier is to be rung for %+v, not %d bytes", i, e.unrung, unrung)
		}
	}
	if e.Attend(); len(e.unrung) != 0 {
		t.Error("the carrier was not rung")
	}
	for i := range 4 { // pieces count as small, however many they are
		if n, err := e.Conn(3 + i%2*2).TrySend(make([]byte, packBytes)); n != packBytes || err != nil {
			t.Fatal(n, err)
		}
	}
	if u := e.unrung[0]; u.bytes != 4*packBytes || u.large {
		t.Errorf("four pieces that are sent together with others: %+v", u)
	}
}

// TestNeverConnected checks that ranks that give up before they are connected leave no operation in use.
func TestNeverConnected(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	for _, e := range c.endpoints {
		for _, conn := range e.conns {
			if conn != nil {
				conn.Notify(transport.Notice{})
			}
		}
	}
	c.close()
	for i, p := range c.proxies {
		if s := p.Stats(); s.Own+s.Shared > 0 {
			t.Errorf("process %d: %+v", i, s)
		}
	}
}

// TestCarrierIsGone checks that the error of a rank that can't open its carrier's memory names the carrier, and says
// how to do without it.
func TestCarrierIsGone(t *testing.T) {
	const self, carrier = 0, 1
	p, gone := New(slog.New(slog.DiscardHandler), true), New(slog.New(slog.DiscardHandler), true)
	e, of := p.Prepare(lifecycle.CommID{9}), gone.Prepare(lifecycle.CommID{9})
	defer p.Close(time.Second)
	defer e.Close()
	members := make([]Member, 4)
	members[self] = Member{Card: e.Card(), PID: os.Getpid(), Local: true}
	members[carrier] = Member{Card: of.Card(), PID: os.Getpid()}
	of.Close()
	gone.Close(time.Second)
	routes := NewRoutes([]int{0, 0, 1, 1}, [][]int{{0, 1}, {2, 3}}, true)
	err := e.Open(self, routes, members, []int{2, 3}, transport.NewWaiter(4, transport.Patience{}))
	lost, ok := errors.AsType[*lifecycle.PeerError](err)
	if !ok || lost.Rank != carrier || lost.Code != lifecycle.CodeUnreachable ||
		!strings.Contains(lost.Detail, "it carries what is for rank 3 (NCCL_PXN_DISABLE=1 does without)") {
		t.Errorf("got %v", err)
	}
}
