package host_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

func collectives() []lifecycle.Call {
	var calls []lifecycle.Call
	for c := lifecycle.CallAllReduce; c <= lifecycle.CallBarrier; c++ {
		if algo.For(c) != nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// shape is a collective of int32 to be run and checked by all ranks.
type shape struct {
	call       lifecycle.Call
	algorithm  algo.Algorithm
	size, root int
	count      int
	inPlace    bool
	salt       int32
	memory     [][2][]int32 // by rank, for the buffers
}

func (s shape) String() string {
	return fmt.Sprintf("%v by %v, %d ranks, root %d, %d elements, in place %v", s.call, s.algorithm, s.size, s.root,
		s.count, s.inPlace)
}

// value returns element i of a rank's send buffer.
func (s shape) value(rank, i int) int32 { return s.salt + int32(rank+1)*1_000_003 + int32(i)*7 }

// layout returns the lengths of rank's buffers, and, for in-place calls, where the shorter one is in the longer one.
func (s shape) layout(rank int) (send, recv, at int) {
	n, isRoot := s.count, rank == s.root
	switch s.call { //nolint:exhaustive // a shape is a collective; a barrier has no buffers
	case lifecycle.CallAllReduce:
		return n, n, 0
	case lifecycle.CallBroadcast:
		if isRoot {
			return n, n, 0
		}
		return 0, n, 0
	case lifecycle.CallReduce:
		if isRoot {
			return n, n, 0
		}
		return n, 0, 0
	case lifecycle.CallAllGather:
		return n, n * s.size, rank * n
	case lifecycle.CallReduceScatter:
		return n * s.size, n, rank * n
	case lifecycle.CallAllToAll:
		return n * s.size, n * s.size, 0
	case lifecycle.CallGather:
		if isRoot {
			return n, n * s.size, rank * n
		}
		return n, 0, 0
	case lifecycle.CallScatter:
		if isRoot {
			return n * s.size, n, rank * n
		}
		return 0, n, 0
	}
	return 0, 0, 0
}

// want returns element i of rank's receive buffer at the end.
func (s shape) want(rank, i int) int32 {
	switch s.call { //nolint:exhaustive // a shape is a collective; a barrier has no buffers
	case lifecycle.CallBroadcast:
		return s.value(s.root, i)
	case lifecycle.CallAllGather, lifecycle.CallGather:
		return s.value(i/s.count, i%s.count)
	case lifecycle.CallAllToAll:
		return s.value(i/s.count, rank*s.count+i%s.count)
	case lifecycle.CallScatter:
		return s.value(s.root, rank*s.count+i)
	case lifecycle.CallReduceScatter:
		i += rank * s.count
	}
	var sum int32
	for r := range s.size {
		sum += s.value(r, i)
	}
	return sum
}

// buffers returns rank's buffers. They start in the middle of a word, as a user's may, and contain what the previous
// operation left there: with new memory, the race detector would take longer than the test.
func (s shape) buffers(rank int) (send, recv []int32) {
	n, m, at := s.layout(rank)
	mine := &s.memory[rank]
	for i, size := range []int{n + 1, m + 1} {
		mine[i] = slices.Grow(mine[i][:0], size)[:size]
	}
	send, recv = mine[0][1:], mine[1][1:]
	if s.inPlace && n > 0 && m > 0 && s.call != lifecycle.CallAllToAll {
		if n <= m {
			send = recv[at : at+n]
		} else {
			recv = send[at : at+m]
		}
	}
	for i := range send {
		send[i] = s.value(rank, i)
	}
	return send, recv
}

// run carries the shape out on one rank and checks its result.
func (s shape) run(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
	send, recv := s.buffers(rank)
	op := engine.Op{
		Call: s.call, Count: s.count, DataType: kernels.Int32, Reduction: kernels.Sum, Peer: s.root,
		Send: kernels.Bytes(send), Recv: kernels.Bytes(recv), Algorithm: s.algorithm,
	}
	if err := run(ctx, e, seq, op); err != nil {
		return err
	}
	for i, v := range recv {
		if want := s.want(rank, i); v != want {
			return fmt.Errorf("element %d is %d, want %d", i, v, want)
		}
	}
	return nil
}

func (c *cluster) check(s shape) {
	c.tb.Helper()
	s.size = len(c.engines)
	s.salt = int32(c.seq) * 17
	s.memory = c.memory
	for r, err := range c.each(s.run) {
		if err != nil {
			c.tb.Fatalf("%v: rank %d: %v", s, r, err)
		}
	}
}

func TestCollectives(t *testing.T) {
	for name, how := range transports() {
		for _, size := range []int{1, 2, 3, 4, 7, 16, 17} {
			if name == "tcp" && size > 4 {
				continue // the rest differs only in the plans, which don't depend on the transport
			}
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				c := newCluster(t, size, how)
				for _, call := range collectives() {
					for _, a := range append(algo.For(call), algo.Auto) {
						for _, count := range []int{0, 1, 5, 300, 20_001} {
							if size > 7 && count > 300 {
								continue // pieces are independent of the size
							}
							for _, inPlace := range []bool{false, true} {
								c.check(shape{call: call, algorithm: a, root: size / 2, count: count, inPlace: inPlace})
							}
						}
					}
				}
			})
		}
	}
}

// Messages of many pieces, larger than any buffer on the path.
func TestLargeCollectives(t *testing.T) {
	for name, how := range transports() {
		for _, size := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				c := newCluster(t, size, how)
				counts, n := []int{240_000, 600_003}, size // the first is posted if there is a Board
				for _, call := range collectives() {
					for _, a := range algo.For(call) {
						n++
						c.check(shape{
							call: call, algorithm: a, root: size - 1, count: counts[n%2], inPlace: a == algo.Ring,
						})
					}
				}
			})
		}
	}
}

// Any sequence of operations leaves the streams at the position that the next operation expects.
func TestSequences(t *testing.T) {
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, how)
			rapid.Check(t, func(t *rapid.T) {
				call := rapid.SampledFrom(collectives()).Draw(t, "call")
				c.check(shape{
					call: call, algorithm: rapid.SampledFrom(append(algo.For(call), algo.Auto)).Draw(t, "algorithm"),
					root: rapid.IntRange(0, 2).Draw(t, "root"), count: rapid.IntRange(0, 5000).Draw(t, "count"),
					inPlace: rapid.Bool().Draw(t, "in place"),
				})
			})
		})
	}
}

// Every data type has its own alignment on the stream, and every reduction its own local steps.
func TestTypesAndReductions(t *testing.T) {
	const size, count = 3, 1037
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, size, how)
			for dt := kernels.Int8; dt.Valid(); dt++ {
				for red := kernels.Sum; red.Valid(); red++ {
					for _, a := range []algo.Algorithm{algo.Ring, algo.Direct, algo.RecursiveDoubling} {
						outs := reduceBytes(c, dt, red, a, count)
						for r := 1; r < size; r++ {
							if !bytes.Equal(outs[r], outs[0]) {
								t.Errorf("%v of %v by %v: rank %d has other bits than rank 0", red, dt, a, r)
							}
						}
						if a != algo.RecursiveDoubling {
							continue
						}
						// Three ranks are summed in rank order by recursive doubling.
						if want := reference(dt, red, count); !bytes.Equal(outs[0], want) {
							t.Errorf("%v of %v by %v is not what the kernels give one after the other", red, dt, a)
						}
					}
				}
			}
		})
	}
}

const factor = 0.5

// data returns a rank's input: small numbers, so that no type overflows.
func data(dt kernels.DataType, rank, count int) []byte {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(dt)))
	small := make([]byte, count*dt.Size())
	for i := range count {
		v := byte(1 + rng.IntN(3))
		switch dt {
		case kernels.Float32:
			copy(small[4*i:], kernels.Bytes([]float32{float32(rng.NormFloat64())}))
		case kernels.Float64:
			copy(small[8*i:], kernels.Bytes([]float64{rng.NormFloat64()}))
		case kernels.Float16:
			copy(small[2*i:], []byte{v * 31, 0x38 + v})
		case kernels.BFloat16:
			copy(small[2*i:], []byte{v * 31, 0x3f})
		case kernels.Float8E4M3, kernels.Float8E5M2:
			small[i] = 0x38 + v
		default:
			small[i*dt.Size()] = v
		}
	}
	return small
}

func reduceBytes(c *cluster, dt kernels.DataType, red kernels.Reduction, a algo.Algorithm, count int) [][]byte {
	outs := make([][]byte, len(c.engines))
	c.run(func(rank int) engine.Op {
		outs[rank] = make([]byte, count*dt.Size())
		return engine.Op{
			Call: lifecycle.CallAllReduce, Count: count, DataType: dt, Reduction: red, Scale: factor, Peer: -1,
			Send: data(dt, rank, count), Recv: outs[rank], Algorithm: a,
		}
	})
	return outs
}

// reference reduces (0 op 1) op 2 with the kernels alone.
func reference(dt kernels.DataType, red kernels.Reduction, count int) []byte {
	var in [3][]byte
	for r := range in {
		in[r] = data(dt, r, count)
		if red == kernels.PreMulSum {
			kernels.Scale(in[r], in[r], dt, factor)
		}
	}
	kernels.ReducerOf(dt, red)(in[0], in[0], in[1])
	kernels.ReducerOf(dt, red)(in[0], in[0], in[2])
	if red == kernels.Avg {
		kernels.Divide(in[0], dt, 3)
	}
	return in[0]
}

func TestOneRank(t *testing.T) {
	c := newCluster(t, 1, fabric.Config{})
	send, recv := []float32{1, 2, 4}, make([]float32, 3)
	c.run(func(int) engine.Op {
		return engine.Op{
			Call: lifecycle.CallAllReduce, Count: 3, DataType: kernels.Float32, Reduction: kernels.PreMulSum,
			Scale: 0.25, Peer: -1,
			Send: kernels.Bytes(send), Recv: kernels.Bytes(recv),
		}
	})
	if want := []float32{0.25, 0.5, 1}; !slices.Equal(recv, want) {
		t.Errorf("a pre-multiplied sum of one rank is %v, want %v", recv, want)
	}
	c.run(func(int) engine.Op { return engine.Op{Call: lifecycle.CallBarrier, Peer: -1} })
}

// No rank leaves a barrier before the last one has entered.
func TestBarrier(t *testing.T) {
	for _, size := range []int{2, 5, 17} {
		c := newCluster(t, size, fabric.Config{})
		late, left := make(chan struct{}), make(chan int, size)
		done := make(chan []error)
		go func() {
			done <- c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				if rank == size-1 {
					<-late
				}
				err := run(ctx, e, seq, engine.Op{Call: lifecycle.CallBarrier, Peer: -1})
				left <- rank
				return err
			})
		}()
		// The others are in the barrier: wait until one of them is known to wait for the last rank.
		c.awaitWait(0, -1)
		select {
		case r := <-left:
			t.Errorf("%d ranks: rank %d left the barrier before rank %d came", size, r, size-1)
		default:
		}
		close(late)
		for r, err := range <-done {
			if err != nil {
				t.Errorf("%d ranks: rank %d: %v", size, r, err)
			}
		}
	}
}
