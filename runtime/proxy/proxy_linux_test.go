package proxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
)

// The conformance suite of package fabric runs over streams, with PXN and without. Here is what is particular to them.

var secret = []byte("a secret of 16 bytes or more")

// cluster is a communicator whose ranks are processes of their own as far as their proxies can tell.
type cluster struct {
	t         *testing.T
	routes    Routes
	proxies   []*Proxy
	endpoints []*Endpoint
	waiters   []*transport.Waiter
	listeners []*tcp.Listener
}

// newCluster makes a communicator whose ranks are on these nodes. Its rails are not connected.
func newCluster(t *testing.T, nodes ...int) *cluster {
	t.Helper()
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
		l, err := tcp.Listen(netip.MustParseAddr("127.0.0.1"), door.Plain, 0, slog.New(slog.DiscardHandler))
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

// await waits on a rank's Waiter until done.
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

// More operations than the pools hold, while the network takes none: the sender is told that it waits for the pool, and
// nothing is lost. The rank whose proxy it uses, too.
func TestPoolIsExhausted(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	const from, carrier, to = 0, 1, 3
	var sent [2][]byte
	for i, rank := range []int{carrier, from} { // the carrier takes its own pool first
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
		if w := conn.Waits(); w != transport.WaitPool {
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
	for conn.Waits() != transport.WaitNone { // soon
		runtime.Gosched()
	}
	if s := c.proxies[carrier].Stats(); s.Own != 0 || s.Shared != 0 || s.Waiting != 0 || s.Refused != 0 {
		t.Errorf("at the end the carrier counts %+v", s)
	}
}

// A rank whose operations another one's proxy has not sent, waits for the network.
func TestWaitsForTheNetwork(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	for _, from := range []int{0, 1} {
		if w := c.endpoints[from].Conn(3).Waits(); w != transport.WaitNone {
			t.Errorf("rank %d, which has sent nothing, waits for %d", from, w)
		}
	}
	for _, from := range []int{0, 1} {
		conn := c.endpoints[from].Conn(3)
		if n, err := conn.TrySend([]byte("12345678")); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		if w := conn.Waits(); w != transport.WaitNetwork {
			t.Errorf("rank %d waits for %d", from, w)
		}
	}
	c.connect()
	for _, from := range []int{0, 1} {
		c.take(3, from, 8)
		for c.endpoints[from].Conn(3).Waits() != transport.WaitNone { // soon
			runtime.Gosched()
		}
	}
}

// A receiver that takes nothing holds up its sender alone, once the window is full.
func TestWindow(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.connect()
	const from, to = 0, 3 // rank 1 carries
	conn := c.endpoints[from].Conn(to)
	data := make([]byte, 4*mostWindow)
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
			if sent += n; n == 0 {
				return conn.Waits() == transport.WaitCredit
			}
		}
	})
	if sent != mostWindow {
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

// Thousands of times, ranks hand over operations, some of them forged, and processes die with slots in their hands.
// Whatever the order, a carrier takes what its own ranks' tokens say and nothing else, and no slot is lost.
func TestTokensHold(t *testing.T) {
	random := rand.New(rand.NewPCG(1586, 2112))
	c := newCluster(t, 0, 0, 0, 0, 1, 1, 1, 1)
	const carrier, to = 1, 5
	e, p := c.endpoints[carrier], c.proxies[carrier]
	p.mu.Lock() // the test takes the place of the loop
	p.opened = 0
	p.ring()
	p.mu.Unlock()
	p.work.Wait()
	r, s := e.rails[to], p.segment
	self, stranger := os.Getpid(), 1<<22+1
	var refused, told uint64
	e.OnRefused(func(err error) {
		if !errors.Is(err, ErrToken) {
			t.Errorf("an operation is refused: %v", err)
		}
		told++
	})
	var want []Token
	for range 20000 {
		from := []int{0, 2, 3}[random.IntN(3)]
		token := e.of(from)
		forged, dies := random.IntN(3) == 0, random.IntN(20) == 0
		pid := self
		if dies {
			pid = stranger
		}
		i := s.claim(ownerOf(pid, 3))
		if i < 0 {
			t.Fatal("no slot is free")
		}
		if dies { // before it has submitted
			p.taking.Lock()
			p.take()
			p.reclaim(stranger)
			p.taking.Unlock()
			continue
		}
		made := slot{
			to: e.token.Generation, generation: token.Generation, comm: token.Comm, from: int32(from), dest: to,
			kind: uint32(kindData), size: 8,
		}
		if forged {
			switch random.IntN(7) {
			case 0:
				made.generation++
			case 1:
				made.from = int32([]int{4, 5, -1, 8, 1 << 30}[random.IntN(5)])
			case 2:
				made.comm[3]++
			case 3:
				made.dest = int32([]int{0, 4, 6, -1, 99}[random.IntN(5)])
			case 4:
				made.kind = []uint32{0, uint32(kindLost), uint32(kinds), 1 << 20}[random.IntN(4)]
			case 5:
				made.generation = e.of((from + 1) % 4).Generation
			case 6:
				s.claims[i].Store(uint64(ownerOf(stranger, 3))) // another process has it
			}
			refused++
		} else {
			want = append(want, token)
		}
		s.slots[i] = made
		s.submit(i)
		if random.IntN(4) > 0 {
			continue
		}
		p.Attend()
		r.mu.Lock()
		for o := r.queue.pop(); o != nil; o = r.queue.pop() {
			if len(want) == 0 || o.token != want[0] || o.to != to || o.kind != kindData {
				t.Fatalf("it took an operation of %+v for rank %d, want %+v", o.token, o.to, want)
			}
			want = want[1:]
			p.complete(o, len(o.data))
		}
		r.mu.Unlock()
		if len(want) > 0 {
			t.Fatalf("it did not take %d operations that were in order", len(want))
		}
	}
	p.Attend()
	if got := p.Stats().Refused; got != refused {
		t.Errorf("%d operations were refused, want %d", got, refused)
	}
	if told == 0 || told > refused { // it is not told of those for a generation that no endpoint has
		t.Errorf("the endpoint told of %d refused operations, of %d", told, refused)
	}
	r.mu.Lock()
	for o := r.queue.pop(); o != nil; o = r.queue.pop() {
		p.complete(o, len(o.data))
	}
	r.mu.Unlock()
	if n := p.Stats().Shared; n != 0 {
		t.Errorf("%d slots are lost", n)
	}
	p.mu.Lock()
	p.opened, p.running = 1, true
	p.mu.Unlock()
	p.work.Go(p.run)
}

// FuzzReceive has a connection bring anything: no rank gets what is of another one, or more than its window.
func FuzzReceive(f *testing.F) {
	good := header{kind: kindData, size: 3, from: 2, to: 0}
	f.Add(append(good.append(nil), 1, 2, 3), uint64(0))
	f.Add([]byte("GET / HTTP/1.1"), uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, credit uint64) {
		p := New(slog.New(slog.DiscardHandler), false)
		e := p.Prepare(lifecycle.CommID{9})
		nodes := []int{0, 0, 1, 1}
		members := make([]Member, len(nodes))
		for i := range members {
			members[i] = Member{Card: Card{Generation: uint64(i)}, PID: 7, Local: i == 0}
		}
		members[0].Card = e.Card()
		routes := NewRoutes(nodes, [][]int{{0, 1}, {2, 3}}, true)
		if err := e.Open(0, routes, members, []int{2}, transport.NewWaiter(4, transport.Patience{})); err != nil {
			t.Fatal(err)
		}
		defer e.abandon()
		r := e.rails[2]
		own := header{kind: kindData, size: 2, from: 2, to: 0, generation: 2, pid: 7, credit: credit}
		for _, part := range [][]byte{own.append(nil), {1, 2}, b} {
			if err := r.Receive(part); err != nil {
				return
			}
		}
		if got, err := e.Conn(2).Peek(); err == nil && !bytes.HasPrefix(got, []byte{1, 2}) {
			t.Errorf("the stream begins with %v", got[:min(len(got), 8)])
		}
	})
}

// TestNeverConnected: ranks that give up before they are connected leave no operation in use.
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

// TestSubmittedTwice: a process that submits a slot once more, while that is being sent, is refused.
func TestSubmittedTwice(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	p, carrier := c.proxies[1], c.endpoints[1]
	i := p.segment.claim(ownerOf(p.pid, 3))
	p.segment.slots[i] = slot{
		to: carrier.token.Generation, generation: c.endpoints[0].token.Generation, comm: carrier.token.Comm,
		from: 0, dest: 3, kind: uint32(kindData), size: 8,
	}
	for range 2 {
		p.segment.submit(i)
		p.Attend()
	}
	if refused := p.Stats().Refused; refused != 1 {
		t.Errorf("%d operations were refused, want 1", refused)
	}
	c.connect() // and what was queued goes out once
	if b := c.take(3, 0, 8); len(b) != 8 {
		t.Errorf("rank 3 got %d bytes", len(b))
	}
}

// Every pair of ranks reaches each other over connections that exist, and with PXN a rank has one for each other node.
func TestRoutes(t *testing.T) {
	for name, ranks := range map[string][][]int{
		"2x2":     {{0, 1}, {2, 3}},
		"turns":   {{0, 2, 4}, {1, 3, 5}},
		"3x3":     {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}},
		"unequal": {{0, 1, 2, 3}, {4}, {5, 6}},
		"odd":     {{0, 1, 2}, {3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			n, equal := 0, true
			for _, local := range ranks {
				n += len(local)
				equal = equal && len(local) == len(ranks[0])
			}
			node := make([]int, n)
			for i, local := range ranks {
				for _, r := range local {
					node[r] = i
				}
			}
			pxn, direct := NewRoutes(node, ranks, true), NewRoutes(node, ranks, false)
			for a := range n {
				conns := 0
				for b := range n {
					if node[a] == node[b] {
						continue
					}
					carrier := pxn.Carrier(a, b)
					if node[carrier] != node[a] || !pxn.Connected(carrier, b) || !pxn.Connected(b, carrier) {
						t.Errorf("rank %d reaches %d through %d, which does not", a, b, carrier)
					}
					if direct.Carrier(a, b) != a || !direct.Connected(a, b) {
						t.Errorf("without PXN, rank %d does not reach %d itself", a, b)
					}
					if pxn.Connected(a, b) {
						conns++
					}
				}
				if equal && conns != len(ranks)-1 {
					t.Errorf("rank %d has %d connections", a, conns)
				}
			}
		})
	}
}
