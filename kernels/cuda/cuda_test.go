package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/kernels/kernelstest"
)

// A reduction describes a tested reduction: all of its buffers begin offset elements after an aligned address.
type reduction struct {
	dt                   kernels.DataType
	op                   kernels.Reduction
	ranks, count, offset int
}

func (c reduction) String() string {
	return fmt.Sprintf("%v %v, %d ranks, %d elements at %d", c.op, c.dt, c.ranks, c.count, c.offset)
}

// TestReductions compares every reduction of every type with the reference: sizes with every remainder, buffers at any
// offset, results in place and separate.
func TestReductions(t *testing.T) {
	h := newHost(t)
	rng := rand.New(rand.NewPCG(1, 2))
	ranks := []int{2, 3, 2, 4, 2, 3, 5, 2, 3, 8, 4} // many threads are slow on few cores
	n := 0
	for _, dt := range kernelstest.DataTypes {
		for _, op := range kernelstest.Reductions {
			by := []Kernel{OneShot, TwoShot}
			if op == kernels.Sum || op == kernels.Avg || op == kernels.PreMulSum { // the formats share the others' code
				by = append(by, OneShotLL128, TwoShotLL128)
			}
			for _, k := range by {
				n++
				c := reduction{dt, op, ranks[n%len(ranks)], 1 + rng.IntN(200), rng.IntN(3)}
				allReduce(t, h, rng, k, c, inPlace(n), staged)
			}
			n++
			how := way(n % 4)
			if op == kernels.PreMulSum { // a rank doesn't know another rank's factor
				how = staged
			}
			c := reduction{dt, op, ranks[n%len(ranks)], 1 + rng.IntN(100), rng.IntN(3)}
			allReduce(t, h, rng, Reduce, c, inPlace(n/4), how)
		}
	}
}

// TestPairs tests two ranks that read all of each other's data at once, up to the amount that their threads can hold.
func TestPairs(t *testing.T) {
	h := newHost(t)
	rng := rand.New(rand.NewPCG(15, 16))
	const most = 2 * 3 * threads * 10 * 16 // for the grid, which has three blocks for each of two channels
	for i, dt := range kernelstest.DataTypes {
		for _, size := range []int{16, 592, most, most + 16} {
			allReduce(t, h, rng, Reduce, reduction{dt, kernels.Sum, 2, size / dt.Size(), 0}, inPlace(i+size/16), direct)
		}
	}
}

// positions returns where a rank's state has the positions of FIFOs.
const positions = MaxBlocks*16 + 64

// controlAt returns where a rank's window has its control words.
func controlAt(a Args) uint64 { return a.Window[0] + 2*mailboxes*a.Half }

// leaveAt returns where a rank's window has the round of a block in which another rank last left its buffers.
func leaveAt(a Args, block, rank int) uint64 {
	const leaves = flags + lanes*slots*4 + lanes*4
	return controlAt(a) + uint64(leaves+(block*MaxRanks+rank)*4)
}

// A way is the path of data that isn't sent in packets.
type way int

const (
	staged way = iota
	direct
	apart  // staged, since the others can't access rank 0's buffers
	pushed // in an all-reduce: only results go directly
)

// reach returns where the buffers of a rank that a call needs are accessed.
func (p *ExchangeArgs) reach(w way, needs ...Buffer) {
	p.Reach = Reach{}
	switch w {
	case staged:
		return
	case pushed:
		p.Reach.Pushes = 1
	case direct, apart:
	}
	for _, b := range needs {
		p.Reach.Need(b)
		for k := range p.Ranks {
			if w != apart || p.Rank != 0 {
				p.Reach.At[b][k] = []uint64{SendBuffer: p.Send, RecvBuffer: p.Recv}[b]
			}
		}
	}
}

// inPlace returns the ranks, as bits, that reduce in place: none, all or every other one.
func inPlace(n int) uint32 { return []uint32{0, ^uint32(0), 0x55}[n%3] }

// allReduce runs an all-reduce twice, since halves of mailboxes alternate, and compares the second result.
func allReduce(t *testing.T, h *host, rng *rand.Rand, k Kernel, c reduction, inPlace uint32, w way) {
	h.reset()
	size := c.count * c.dt.Size()
	all := h.communicator(c.ranks, HalfFor(k, c.ranks, size))
	in, factor := make([][]byte, c.ranks), make([]float64, c.ranks)
	out := make([]uint64, c.ranks)
	for r := range all {
		a := &all[r]
		in[r], factor[r] = kernelstest.Random(rng, c.dt, c.count), rng.Float64()*4-2
		at := uint64(c.offset * c.dt.Size())
		a.Send, a.Recv = h.alloc(size+64)+at, h.alloc(size+64)+at
		if inPlace>>r&1 != 0 {
			a.Recv = a.Send
		}
		a.Bytes, a.Reduction, a.Factor, out[r] = uint64(size), uint16(c.op), factor[r], a.Recv
		a.reach(w, SendBuffer, RecvBuffer)
	}
	g := grid(k, &all[0].Args, size)
	for range 2 {
		for r := range all {
			h.put(all[r].Send, in[r])
		}
		h.launch(Function(k, c.dt, c.ranks), g, all...)
		h.join()
	}
	want := kernelstest.Reduce(c.dt, c.op, in, factor)
	for r := range all {
		got := h.get(out[r], size)
		if !bytes.Equal(got, want) {
			e := 0
			for got[e*c.dt.Size()] == want[e*c.dt.Size()] && e < c.count-1 {
				e++
			}
			var from []string
			for q := range in {
				from = append(from, fmt.Sprintf("%x", in[q][e*c.dt.Size():(e+1)*c.dt.Size()]))
			}
			t.Fatalf("%s of %v: element %d of rank %d is %x, want %x, of %v", Function(k, c.dt, c.ranks), c, e, r,
				got[e*c.dt.Size():(e+1)*c.dt.Size()], want[e*c.dt.Size():(e+1)*c.dt.Size()], from)
		}
		moved := bytes.ContainsFunc(h.get(all[r].State+positions, 8*lanes), func(b rune) bool { return b != 0 })
		if want := k == Reduce && w != direct; moved != want {
			t.Fatalf("%v, way %d: FIFOs have moved: %t", c, w, moved)
		}
		for q := range all {
			left := binary.NativeEndian.Uint32(h.get(leaveAt(all[r].Args, g.Blocks-1, q), 4))
			if met := k == Reduce && w != staged && q != r; (left == 2) != met || (left == 0) == met {
				t.Fatalf("%v, way %d: rank %d has left rank %d in round %d", c, w, q, r, left)
			}
		}
		if done, _ := h.words(all[r].Args); done.Number != 2 || done.Phase != Done || int(done.Blocks) != g.Blocks {
			t.Fatalf("%v: rank %d's word is %+v after 2 operations", c, r, done)
		}
	}
}

// TestPartialReductions tests reductions whose complete result not all ranks get: reduce and reduce-scatter.
func TestPartialReductions(t *testing.T) {
	const ranks, root = 3, 1
	h := newHost(t)
	rng := rand.New(rand.NewPCG(11, 12))
	for _, by := range []struct {
		Kernel
		way
	}{{OneShot, staged}, {OneShotLL128, staged}, {Reduce, staged}, {Reduce, direct}, {Reduce, apart}} {
		for _, count := range []int{1, 5, 77} {
			for _, scatter := range []bool{false, true} {
				k, w := by.Kernel, by.way
				if w != staged && !scatter {
					continue
				}
				h.reset()
				size, parts := 4*count, 1
				all := h.communicator(ranks, HalfFor(k, ranks, size))
				if scatter {
					parts = ranks
				}
				in := make([][]byte, ranks)
				for r := range all {
					a := &all[r]
					in[r] = kernelstest.Random(rng, kernels.Int32, parts*count)
					a.Send, a.Recv, a.Bytes = h.alloc(parts*size), h.alloc(size), uint64(size)
					h.put(a.Send, in[r])
					if scatter {
						a.SendStride = uint64(size)
						a.reach(w, SendBuffer)
						continue
					}
					a.SendTo, a.RecvFrom = 1<<root, 0
					if r == root {
						a.RecvFrom = 1<<ranks - 1
					}
				}
				h.launch(Function(k, kernels.Int32, ranks), grid(k, &all[0].Args, size), all...)
				h.join()
				sum := kernelstest.Reduce(kernels.Int32, kernels.Sum, in, nil)
				for r := range all {
					want := make([]byte, size)
					if scatter {
						want = sum[r*size:][:size]
					} else if r == root {
						want = sum
					}
					if got := h.get(all[r].Recv, size); !bytes.Equal(got, want) {
						t.Fatalf("kernel %d, way %d, %d elements, scatter %v: rank %d has %x, want %x",
							k, w, count, scatter, r, got, want)
					}
				}
			}
		}
	}
}

// A move is a collective without a reduction. Strides are 1 if each rank has its own block.
type move struct {
	name                   string
	sends, receives        int // blocks in a rank's buffer
	sendStride, recvStride int
	sendTo, recvFrom       func(rank int) uint32
}

const (
	movers = 3
	root   = 1
)

func everybody(int) uint32 { return 1<<movers - 1 }

func theRoot(int) uint32 { return 1 << root }

func everybodyAtRoot(rank int) uint32 {
	if rank == root {
		return everybody(rank)
	}
	return 0
}

// TestMoves runs moves in each format, through FIFOs and directly.
func TestMoves(t *testing.T) {
	h := newHost(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, m := range []move{
		{"all-gather", 1, movers, 0, 1, everybody, everybody},
		{"all-to-all", movers, movers, 1, 1, everybody, everybody},
		{"broadcast", 1, 1, 0, 0, everybodyAtRoot, theRoot},
		{"gather", 1, movers, 0, 1, theRoot, everybodyAtRoot},
		{"scatter", movers, 1, 1, 0, everybodyAtRoot, theRoot},
	} {
		for _, size := range []int{0, 1, 8, 61, 160, 4096} {
			m.try(t, h, rng, Copy, staged, size)
			m.try(t, h, rng, CopyLL128, staged, size)
			m.try(t, h, rng, Exchange, staged, size)
			if m.name == "all-gather" || m.name == "all-to-all" {
				m.try(t, h, rng, Exchange, direct, size)
				m.try(t, h, rng, Exchange, apart, size)
			}
		}
	}
}

func (m move) try(t *testing.T, h *host, rng *rand.Rand, k Kernel, w way, size int) {
	h.reset()
	all := h.communicator(movers, HalfFor(k, movers, size))
	in := make([][]byte, movers)
	for r := range all {
		a := &all[r]
		in[r] = kernelstest.Random(rng, kernels.Uint8, m.sends*size)
		a.Send, a.Recv = h.alloc(m.sends*size+8)+uint64(size%8), h.alloc(m.receives*size+8)
		a.Bytes, a.SendTo, a.RecvFrom = uint64(size), m.sendTo(r), m.recvFrom(r)
		a.SendStride, a.RecvStride = uint64(m.sendStride*size), uint64(m.recvStride*size)
		all[r].copyByMessages()
		all[r].reach(w, SendBuffer)
		h.put(a.Send, in[r])
	}
	h.launch(Function(k, 0, movers), grid(k, &all[0].Args, size), all...)
	h.join()
	for r := range all {
		want := make([]byte, m.receives*size)
		for q := range all {
			if m.recvFrom(r)>>q&1 != 0 {
				copy(want[q*m.recvStride*size:], in[q][r*m.sendStride*size:][:size])
			}
		}
		if got := h.get(all[r].Recv, len(want)); !bytes.Equal(got, want) {
			t.Fatalf("%s of %d bytes by kernel %d, way %d: rank %d has %x, want %x", m.name, size, k, w, r, got, want)
		}
	}
}

// copyByMessages makes messages with the effect of Copy.
func (p *ExchangeArgs) copyByMessages() {
	lists := func(ranks uint32, at, stride uint64) [][]Message {
		all := make([][]Message, p.Ranks)
		for q := range all {
			if ranks>>q&1 != 0 {
				all[q] = []Message{NewMessage(at+uint64(q)*stride, int(p.Bytes), uint8(p.Signature))}
			}
		}
		return all
	}
	p.SetMessages(lists(p.SendTo, p.Send, p.SendStride), lists(p.RecvFrom, p.Recv, p.RecvStride))
}

// TestMessages tests messages of any size between any ranks, several between two.
func TestMessages(t *testing.T) {
	const ranks, rounds, most = 4, 12, 5 * slots * slot * channels
	h := newHost(t)
	rng := rand.New(rand.NewPCG(13, 14))
	all := h.communicator(ranks, 0)
	for round := range rounds {
		var sends, receives [ranks][ranks][]Message
		var want [][]byte
		var got []uint64
		biggest := [ranks]int{}
		for range 1 + rng.IntN(3*ranks) {
			from, to := rng.IntN(ranks), rng.IntN(ranks)
			data := kernelstest.Random(rng, kernels.Uint8, 1+rng.IntN(most))
			offset := uint64(rng.IntN(20))
			source, target := h.alloc(len(data)+20)+offset, h.alloc(len(data)+20)+offset*uint64(rng.IntN(2))
			h.put(source, data)
			signature := uint8(1 + len(data)%255)
			sends[from][to] = append(sends[from][to], NewMessage(source, len(data), signature))
			receives[to][from] = append(receives[to][from], NewMessage(target, len(data), signature))
			want, got = append(want, data), append(got, target)
			biggest[from], biggest[to] = max(biggest[from], len(data)), max(biggest[to], len(data))
		}
		for r := range all {
			all[r].Signature = 0
			all[r].SetMessages(lists(sends[r]), lists(receives[r]))
			h.launch(Function(Exchange, 0, ranks), grid(Exchange, &all[r].Args, biggest[r]), all[r])
		}
		h.join()
		for i := range want {
			if b := h.get(got[i], len(want[i])); !bytes.Equal(b, want[i]) {
				t.Fatalf("round %d: message %d of %d bytes is %x, want %x", round, i, len(want[i]), b, want[i])
			}
		}
		for _, p := range all {
			if done, _ := h.words(p.Args); int(done.Number) != round+1 {
				t.Fatalf("round %d: rank %d's word is %+v", round, p.Rank, done)
			}
		}
	}
}

func lists(of [4][]Message) [][]Message { return of[:] }

// TestMessagesAreIndependent checks that a late rank only delays ranks that it sends to or receives from.
func TestMessagesAreIndependent(t *testing.T) {
	const ranks, size = 3, 20 * slots * slot * channels
	h := newHost(t)
	all := h.communicator(ranks, 0)
	message := func() Message { return NewMessage(h.alloc(size), size, 7) }
	all[0].SetMessages([][]Message{nil, {message()}, {message()}}, make([][]Message, ranks))
	all[1].SetMessages(make([][]Message, ranks), [][]Message{{message()}, nil, nil})
	all[2].SetMessages(make([][]Message, ranks), [][]Message{{message()}, nil, nil})
	function := Function(Exchange, 0, ranks)
	g := grid(Exchange, &all[0].Args, size)
	h.launch(function, g, all[0], all[2])
	h.await(func() bool { done, _ := h.words(all[2].Args); return done.Number == 1 })
	if done, waits := h.words(all[0].Args); done.Number != 0 {
		t.Fatalf("rank 0 is done, without rank 1: %+v, %+v", done, waits)
	}
	if w := h.waitsFor(all[0].Args, Room); w.Peer != 1 {
		t.Fatalf("rank 0 waits so: %+v", w)
	}
	h.launch(function, g, all[1])
	h.join()
}

// TestStreams runs operations of all kinds on each rank with nothing in between: a rank that is ahead must not
// overwrite data that another one still reads, and a result must be there when its operation ends.
func TestStreams(t *testing.T) {
	const ranks, count, operations = 3, 50, 60
	h := newHost(t)
	rng := rand.New(rand.NewPCG(7, 8))
	half := 0
	for _, k := range []Kernel{OneShot, OneShotLL128, TwoShot, TwoShotLL128, Copy, CopyLL128} {
		half = max(half, HalfFor(k, ranks, 4*count))
	}
	all := h.communicator(ranks, half)
	in := make([][]byte, ranks)
	for r := range all {
		in[r] = kernelstest.Random(rng, kernels.Int32, count)
		all[r].Send = h.alloc(4 * count)
		all[r].Recv = all[r].Send
		h.put(all[r].Send, in[r])
	}
	var launches []launch
	var gathered []uint64 // where rank 1 finds what it gathered, after each operation
	for i := range operations {
		k := []Kernel{OneShot, OneShotLL128, TwoShot, TwoShotLL128, Reduce}[rng.IntN(5)]
		by := []Kernel{Copy, CopyLL128, Exchange}[rng.IntN(3)]
		reduces, gathers := way(rng.IntN(3)), way(rng.IntN(3))
		reduction, gather := slices.Clone(all), slices.Clone(all)
		for r := range all {
			a := &reduction[r]
			a.Bytes, a.Signature = 4*count, uint32(i+1)
			a.reach(reduces, SendBuffer, RecvBuffer)
			p := &gather[r]
			p.Bytes, p.RecvStride, p.Recv, p.Signature = 4*count, 4*count, h.alloc(ranks*4*count), 255
			p.copyByMessages()
			p.reach(gathers, SendBuffer)
			if r == 1 {
				gathered = append(gathered, p.Recv)
			}
		}
		gridOf := func(k Kernel, a *Args) Grid {
			if k == Reduce || k == Exchange {
				return grid(k, a, 4*count)
			}
			return Grid{1 + rng.IntN(2), 1 + rng.IntN(4)}
		}
		launches = append(launches,
			launch{Function(k, kernels.Int32, ranks), gridOf(k, &reduction[0].Args), reduction},
			launch{Function(by, 0, ranks), gridOf(by, &gather[0].Args), gather})
	}
	h.start(launches...)
	h.join()
	for i, at := range gathered {
		sum := kernelstest.Reduce(kernels.Int32, kernels.Sum, in, nil)
		for r := range in {
			in[r] = sum
			if got := h.get(at+uint64(4*count*r), 4*count); !bytes.Equal(got, sum) {
				t.Fatalf("after operation %d, %s, rank %d has %x, want %x", i, launches[2*i].function, r, got, sum)
			}
		}
	}
}

// TestManyEpochs runs large operations after small ones while the flags' part of the epoch wraps around: no unit may be
// mistaken for one of long ago, in either format.
func TestManyEpochs(t *testing.T) {
	const ranks, count = 2, 400
	h := newHost(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for _, k := range []Kernel{OneShot, OneShotLL128} {
		h.reset()
		all := h.communicator(ranks, HalfFor(k, ranks, 4*count))
		for r := range all {
			all[r].Send, all[r].Recv = h.alloc(4*count), h.alloc(4*count)
		}
		for i := range 24 {
			n := count
			if i >= 8 && i < 20 { // until the flags are those of operations 6 and 7
				n = 1 + rng.IntN(2)
			}
			if i == 8 {
				for _, a := range all {
					counts := [4]uint32{uint32(i), uint32(i), 1<<24 - 6}
					h.put(a.State, bytes.Repeat(encode(counts), MaxBlocks))
				}
			}
			in := make([][]byte, ranks)
			for r := range all {
				in[r] = kernelstest.Random(rng, kernels.Int32, n)
				h.put(all[r].Send, in[r])
				all[r].Bytes = uint64(4 * n)
			}
			h.launch(Function(k, kernels.Int32, ranks), Grid{1 + i%3, 4}, all...)
			h.join()
			want := kernelstest.Reduce(kernels.Int32, kernels.Sum, in, nil)
			for r := range all {
				if got := h.get(all[r].Recv, 4*n); !bytes.Equal(got, want) {
					t.Fatalf("kernel %d, operation %d: rank %d has %x, want %x", k, i, r, got, want)
				}
			}
		}
	}
}

// TestNumbers checks that a launch has the caller's number, except in graphs, whose launches and collectives the
// kernels count.
func TestNumbers(t *testing.T) {
	const ranks = 2
	h := newHost(t)
	all := h.communicator(ranks, HalfFor(OneShot, ranks, 8))
	for r := range all {
		all[r].Send, all[r].Recv, all[r].Bytes = h.alloc(8), h.alloc(8), 8
	}
	for i, c := range []struct {
		kernel                        Kernel
		number, operation, collective uint32 // of Args
		wantNumber, wantReplayed      uint32
	}{
		{OneShot, 8, 0, 1, 8, 0},
		{OneShot, 0, 5, 1, 1, 1},
		{Exchange, 0, 6, 0, 2, 1},
		{OneShot, 0, 5, 1, 3, 2},
		{Copy, 0, 5, 1, 4, 3},
		{Exchange, 9, 0, 0, 9, 3},
		{Reduce, 10, 0, 1, 10, 3},
	} {
		for r := range all {
			a := &all[r]
			a.Number, a.Operation, a.Signature = c.number, c.operation, c.collective
			a.First = [2*MaxRanks + 1]uint32{} // no messages
		}
		h.launch(Function(c.kernel, kernels.Int64, ranks), grid(c.kernel, &all[0].Args, 8), all...)
		h.join()
		for r := range all {
			w, _ := h.words(all[r].Args)
			if w.Number != c.wantNumber || w.Operation != c.operation || w.Replayed != c.wantReplayed {
				t.Errorf("launch %d: rank %d's word is %+v, want number %d and %d collectives", i, r, w, c.wantNumber,
					c.wantReplayed)
			}
		}
	}
}
