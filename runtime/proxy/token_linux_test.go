package proxy

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// pause ends the proxy's loop, whose work the test does instead, and returns a function that restarts it.
func (p *Proxy) pause() (resume func()) {
	p.mu.Lock()
	opened := p.opened
	p.opened = 0
	p.ring()
	p.mu.Unlock()
	p.work.Wait()
	return func() {
		p.mu.Lock()
		p.opened, p.running = opened, true
		p.mu.Unlock()
		p.work.Go(p.run)
	}
}

// taken records operations taken from another rank.
type taken struct {
	kind  kind
	token Token
	to    int
}

// taken ends the operations queued on rails, and returns them.
func (r *rail) taken() (ops []taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := r.queue.pop(); o != nil; o = r.queue.pop() {
		ops = append(ops, taken{o.kind, o.token, o.to})
		r.e.profileEnd(&o.events, lifecycle.CodeOK)
		r.e.p.complete(o, len(o.data))
	}
	return ops
}

// recorder is a plug-in with a context for the carrier's rank only. It records the owners of the operations that it is
// told of, and which of these have a parent.
type recorder struct {
	t      *testing.T
	owners []profiler.Owner
	known  map[profiler.Handle]bool
}

func (*recorder) Name() string                                    { return "recorder" }
func (*recorder) Mask() profiler.Mask                             { return profiler.ProxyOp }
func (r *recorder) Init(profiler.Info) (profiler.Recorder, error) { return r, nil }
func (r *recorder) State(h profiler.Handle, _ *profiler.Change)   { r.check(h) }
func (r *recorder) Stop(h profiler.Handle, _ *profiler.End)       { r.check(h); delete(r.known, h) }
func (*recorder) Finalize()                                       {}

func (r *recorder) check(h profiler.Handle) {
	if !r.known[h] {
		r.t.Errorf("the plug-in got %v back, which it has not made", h)
	}
}

func (r *recorder) Start(e *profiler.Event) profiler.Handle {
	if e.Type == profiler.ProxyOp {
		owner := e.Proxy.Owner
		if own := owner.Rank == e.Rank; own != (e.Parent != nil) {
			r.t.Errorf("rank %d's plug-in got %v as the parent of rank %d's operation", e.Rank, e.Parent, owner.Rank)
		}
		r.owners = append(r.owners, owner)
	}
	h := new(int)
	r.known[h] = true
	return h
}

// Thousands of times, ranks submit operations, some of them forged, and processes die while they hold slots, which are
// then reused. Whatever the order, a carrier accepts only operations with its own ranks' tokens, its plug-in is told of
// exactly these, and no slot is lost.
func TestTokensHold(t *testing.T) {
	random := rand.New(rand.NewPCG(1586, 2112))
	c := newCluster(t, 0, 0, 0, 0, 1, 1, 1, 1)
	const carrier, to = 1, 5
	e, p := c.endpoints[carrier], c.proxies[carrier]
	defer p.pause()()
	r, s := e.rails[to], p.segment
	self, stranger := os.Getpid(), 1<<22+1
	seen := &recorder{t: t, known: map[profiler.Handle]bool{}}
	profiles := profiler.New(profiler.Config{Plugins: []profiler.Plugin{seen}, Patience: time.Minute})
	profile := profiles.Comm(t.Context(), profiler.Info{ID: e.token.Comm, Rank: carrier, Size: 8, Nodes: 2})
	e.Profile(profile)
	running := profile.StartOperation(0, &profiler.Operation{Call: lifecycle.CallAllToAll})
	var refused, told uint64
	e.OnRefused(func(err error) {
		if !errors.Is(err, ErrToken) {
			t.Errorf("an operation is refused: %v", err)
		}
		told++
	})
	var want []Token
	var owners []profiler.Owner
	for range 20000 {
		from := random.IntN(4)
		token := e.of(from)
		forged, dies := random.IntN(3) == 0, random.IntN(20) == 0
		pid := self
		if dies {
			pid = stranger
		}
		i := s.claim(ownerOf(pid, 3), 0)
		if i < 0 {
			t.Fatal("no slot is free")
		}
		if dies { // dies before it has submitted
			p.taking.Lock()
			p.take(nil)
			p.reclaim(stranger)
			p.taking.Unlock()
			continue
		}
		made := slot{
			to: e.token.Generation, generation: token.Generation, comm: token.Comm, from: int32(from), dest: to,
			kind: uint32(kindData), size: 8,
		}
		if forged {
			if !forge(random, &made, e, from) {
				s.claims[i].Store(uint64(ownerOf(stranger, 3))) // another process has the slot
			}
			refused++
		} else {
			want = append(want, token)
			owners = append(owners, profiler.Owner(token))
		}
		s.slots[i] = made
		s.submit(i)
		if random.IntN(4) > 0 {
			continue
		}
		p.attend(nil)
		for _, o := range r.taken() {
			if len(want) == 0 || o.token != want[0] || o.to != to || o.kind != kindData {
				t.Fatalf("it took an operation of %+v for rank %d, want %+v", o.token, o.to, want)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Fatalf("it did not take %d operations that were in order", len(want))
		}
	}
	p.attend(nil)
	r.taken()
	if got := p.Stats(); got.Refused != refused || told != refused {
		t.Errorf("%d operations were refused, of which the rank was told %d, want %d", got.Refused, told, refused)
	}
	if n := p.Stats().Shared; n != 0 {
		t.Errorf("%d slots are lost", n)
	}
	profile.Stop(running, lifecycle.CodeOK)
	profiles.Close(t.Context())
	if off := profiles.Status()[0].Off; off != "" {
		t.Fatalf("the plug-in is off: %s", off)
	}
	if !slices.Equal(seen.owners, owners) {
		t.Errorf("the plug-in was told of %d operations, want the %d that were in order", len(seen.owners), len(owners))
	}
}

// forge replaces a rank's slot by one with a wrong value. It may leave that to the caller.
func forge(random *rand.Rand, s *slot, e *Endpoint, from int) bool {
	switch random.IntN(9) {
	default:
		return false
	case 0:
		s.generation++
	case 1:
		s.from = int32([]int{4, 5, -1, 8, 1 << 30}[random.IntN(5)])
	case 2:
		s.comm[3]++
	case 3:
		s.dest = int32([]int{0, 4, 6, -1, 99}[random.IntN(5)])
	case 4:
		s.kind = []uint32{0, uint32(kinds), 1 << 20, uint32(kindLost)}[random.IntN(4)]
		if s.kind == uint32(kindLost) && from == e.self { // a carrier may send this
			s.kind = 0
		}
	case 5:
		s.generation = e.of((from + 1) % 4).Generation
	case 6:
		s.kind, s.size = uint32(kindNotice), transport.MaxNotice+1
	case 7:
		s.piped = 1 // but the slot has no pipe
	}
	return true
}

// FuzzSubmit makes another process of the node write anything to the memory that it shares with the carrier. The
// carrier only takes operations of ranks for which it carries, whatever the list of slots looks like, and no slot is
// lost.
func FuzzSubmit(f *testing.F) {
	c := newCluster(f, 0, 0, 1, 1)
	e, p := c.endpoints[1], c.proxies[1]
	f.Cleanup(p.pause())
	s := p.segment
	field := func(o *slot) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(o)), slotSize) }
	good := slot{to: e.token.Generation, comm: e.token.Comm, generation: e.of(0).Generation, dest: 3, kind: 1, size: 8}
	f.Add(bytes.Clone(field(&good)), uint64(ownerOf(p.pid, 3)), uint16(0), uint32(0))
	f.Add([]byte("GET / HTTP/1.1"), uint64(0), uint16(7), uint32(8))
	f.Fuzz(func(t *testing.T, b []byte, claim uint64, at uint16, next uint32) {
		i := int(at) % sharedSlots
		made := good
		copy(field(&made), b)
		s.slots[i] = made
		s.claims[i].Store(claim)
		s.submit(i)
		s.next[i].Store(next)
		p.attend(nil)
		for _, o := range e.rails[3].taken() {
			if rank := o.token.Rank; rank > 1 || o.token != e.of(rank) || o.to != 3 || o.kind == kindLost && rank != 1 {
				t.Errorf("it took %+v", o)
			}
		}
		for i := range s.claims {
			s.claims[i].Store(0)
			if p.shared[i].busy.Load() {
				t.Errorf("slot %d is lost", i)
			}
		}
	})
}

// FuzzReceive makes a connection deliver anything: no rank gets another rank's data, or more than its window.
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

// TestSubmittedTwice checks that a slot that is submitted again while it is being sent is refused.
func TestSubmittedTwice(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	p, carrier := c.proxies[1], c.endpoints[1]
	i := p.segment.claim(ownerOf(p.pid, 3), 0)
	p.segment.slots[i] = slot{
		to: carrier.token.Generation, generation: c.endpoints[0].token.Generation, comm: carrier.token.Comm,
		from: 0, dest: 3, kind: uint32(kindData), size: 8,
	}
	for range 2 {
		p.segment.submit(i)
		p.attend(nil)
	}
	if refused := p.Stats().Refused; refused != 1 {
		t.Errorf("%d operations were refused, want 1", refused)
	}
	c.connect() // the queued operation is sent once
	if b := c.take(3, 0, 8); len(b) != 8 {
		t.Errorf("rank 3 got %d bytes", len(b))
	}
}

// TestOverrun checks that only a stream that delivers more than its window is lost; the others of the rail continue.
func TestOverrun(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	e := c.endpoints[0]
	r := e.rails[2]
	step := func(from int) []byte {
		token := e.of(from)
		h := header{kind: kindData, size: 8, from: from, to: 0, generation: token.Generation, pid: token.PID}
		return append(h.append(nil), "12345678"...)
	}
	for sent := 0; sent <= maxWindow; sent += 8 {
		if err := r.Receive(step(2)); err != nil {
			t.Fatal(err)
		}
	}
	lost, ok := errors.AsType[*lifecycle.PeerError](c.waiters[0].Lost(2))
	if !ok || lost.Rank != 2 || lost.Code != lifecycle.CodeInternal {
		t.Errorf("rank 2 is lost: %v", lost)
	}
	if err := r.Receive(step(3)); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Conn(3).Peek(); err != nil || string(got) != "12345678" {
		t.Errorf("rank 3's stream has %q, %v", got, err)
	}
}
