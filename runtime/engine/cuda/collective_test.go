//go:build linux && cgo

package cuda_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// A collective is made on both kinds of memory. Lengths are in units of n elements.
type collective struct {
	name       string
	rooted     bool
	send, recv func(size int) int
	host       func(r *rank, send, recv []int32) error
	device     func(r *rank, send, recv cuda.Buffer[int32]) error
}

func one(int) int        { return 1 }
func size(ranks int) int { return ranks }

const root = 1

func collectives(tb testing.TB) []collective {
	ctx := tb.Context()
	return []collective{
		{
			"all-reduce", false, one, one,
			func(r *rank, send, recv []int32) error { return ccl.AllReduce(ctx, r.Comm, send, recv, ccl.Sum) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.AllReduceOn(ctx, r.Comm, r.stream, send, recv, ccl.Sum)
			},
		}, {
			"scaled all-reduce", false, one, one,
			func(r *rank, send, recv []int32) error {
				return ccl.AllReduce(ctx, r.Comm, send, recv, ccl.PreMulSum, ccl.Scale(float64(r.Rank()+2)))
			},
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.AllReduceOn(ctx, r.Comm, r.stream, send, recv, ccl.PreMulSum, ccl.Scale(float64(r.Rank()+2)))
			},
		}, {
			"reduce", true, one, one,
			func(r *rank, send, recv []int32) error { return ccl.Reduce(ctx, r.Comm, send, recv, ccl.Max, root) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.ReduceOn(ctx, r.Comm, r.stream, send, recv, ccl.Max, root)
			},
		}, {
			"reduce-scatter", false, size, one,
			func(r *rank, send, recv []int32) error { return ccl.ReduceScatter(ctx, r.Comm, send, recv, ccl.Sum) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.ReduceScatterOn(ctx, r.Comm, r.stream, send, recv, ccl.Sum)
			},
		}, {
			"all-gather", false, one, size,
			func(r *rank, send, recv []int32) error { return ccl.AllGather(ctx, r.Comm, send, recv) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.AllGatherOn(ctx, r.Comm, r.stream, send, recv)
			},
		}, {
			"all-to-all", false, size, size,
			func(r *rank, send, recv []int32) error { return ccl.AllToAll(ctx, r.Comm, send, recv) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.AllToAllOn(ctx, r.Comm, r.stream, send, recv)
			},
		}, {
			"broadcast", true, one, one,
			func(r *rank, send, recv []int32) error { return ccl.Broadcast(ctx, r.Comm, send, recv, root) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.BroadcastOn(ctx, r.Comm, r.stream, send, recv, root)
			},
		}, {
			"gather", true, one, size,
			func(r *rank, send, recv []int32) error { return ccl.Gather(ctx, r.Comm, send, recv, root) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.GatherOn(ctx, r.Comm, r.stream, send, recv, root)
			},
		}, {
			"scatter", true, size, one,
			func(r *rank, send, recv []int32) error { return ccl.Scatter(ctx, r.Comm, send, recv, root) },
			func(r *rank, send, recv cuda.Buffer[int32]) error {
				return ccl.ScatterOn(ctx, r.Comm, r.stream, send, recv, root)
			},
		},
	}
}

// elements are counts that take every path: few, in packets, in several parts, directly, pushed, none.
var elements = []int{1, 5, 300, 1800, 2500, 7001, 0}

// TestCollectives compares each collective with the same one on host memory.
func TestCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			compare(t, ranks(t, n), elements)
		})
	}
}

// TestLL128 tests messages of a whole quad, of more, and of several quads for each thread.
func TestLL128(t *testing.T) {
	const quad = 480 / 4 // elements
	large, most := 5001, 256<<10
	if os.Getenv(realDriver) != "" {
		large, most = 400001, 6<<20
	}
	o := options
	o.Mailbox = most
	for n, l := range map[int]gpu.Limits{
		2: {OneShotLL128: most, ReduceScatterLL128: most, CopyLL128: most},
		3: {TwoShotLL128: most},
	} {
		o.Tuning = gpu.Tuning{n: l}
		compare(t, ranksWith(t, n, o), []int{quad, quad + 1, large})
	}
}

// TestWithoutNVLink checks that LL128 is not used where its lines may not arrive whole.
func TestWithoutNVLink(t *testing.T) {
	o := options
	o.Tuning = gpu.Tuning{2: {OneShotLL128: 4000}}
	for _, c := range []struct {
		variables []string
		want      algo.Algorithm
	}{{nil, algo.OneShot}, {[]string{"FAKECUDA_NO_NVLINK", "1"}, algo.Direct}} {
		all, openers := opened(t, 2, o, c.variables...)
		op := engine.Op{Call: lifecycle.CallAllReduce, DataType: kernels.Int32, Count: 1000}
		if got := openers[0].Algorithm(&op); got != c.want {
			t.Errorf("with %v an all-reduce is made by %v, want %v", c.variables, got, c.want)
		}
		compare(t, all, []int{1000})
	}
}

// TestWithoutPeerAccess checks that GPUs that can't, or must not, access each other's memory use host memory.
func TestWithoutPeerAccess(t *testing.T) {
	o := options
	o.DisableP2P = true
	compare(t, ranksWith(t, 2, o), []int{5, 7001})
	compare(t, ranks(t, 2, "FAKECUDA_NO_PEERS", "1"), []int{5, 7001})
}

func compare(t *testing.T, all []rank, counts []int) {
	t.Helper()
	for _, c := range collectives(t) {
		if len(all) <= root && c.rooted {
			continue
		}
		for _, n := range counts {
			each(t, all, func(r *rank) error {
				if err := c.compare(r, n); err != nil {
					return fmt.Errorf("%s of %d elements: rank %d: %w", c.name, n, r.Rank(), err)
				}
				return nil
			})
		}
	}
	each(t, all, func(r *rank) error { return r.Destroy(t.Context()) })
}

func (c *collective) compare(r *rank, n int) error {
	rng := rand.New(rand.NewPCG(uint64(r.Rank()), uint64(n)))
	send, recv := make([]int32, n*c.send(r.Size())), make([]int32, n*c.recv(r.Size()))
	for i := range send {
		send[i] = int32(rng.Uint32())
	}
	onSend, err := buffer(r, send)
	if err != nil {
		return err
	}
	onRecv, err := buffer(r, recv)
	if err != nil {
		return err
	}
	if err := c.device(r, onSend, onRecv); err != nil {
		return err
	}
	if err := c.host(r, send, recv); err != nil {
		return err
	}
	got, err := read(r, onRecv)
	if err != nil {
		return err
	}
	for i := range got {
		if got[i] != recv[i] {
			return fmt.Errorf("element %d is %d, and %d on host memory", i, got[i], recv[i])
		}
	}
	if same, err := read(r, onSend); err != nil || !bytes.Equal(kernels.Bytes(same), kernels.Bytes(send)) {
		return fmt.Errorf("what is sent was changed: %w", err)
	}
	return nil
}

// TestMessages tests a group of sends and receives between all ranks, of several sizes, on two streams of each rank,
// more of them than one launch takes, and a send together with a receive.
func TestMessages(t *testing.T) {
	const n = 3
	sizes := []int{1, 700, 9000, 0, 3, 64, 1, 2, 3, 4, 5, 6} // twice 12 for each of 3 ranks
	all := ranks(t, n)
	each(t, all, func(r *rank) error {
		second, err := r.context.Stream(0)
		if err != nil {
			return err
		}
		defer second.Destroy() //nolint:errcheck // it is empty
		streams := []*cuda.Stream{r.stream, second}
		got, want := []cuda.Buffer[int32]{}, [][]int32{}
		message := func(from, to, i int) []int32 {
			data := make([]int32, sizes[i])
			for j := range data {
				data[j] = int32(from<<20 | to<<16 | i<<12 | j)
			}
			return data
		}
		g := r.runtime.GroupStart(t.Context())
		for i := range sizes {
			for peer := range n {
				send, err := buffer(r, message(r.Rank(), peer, i))
				if err != nil {
					return err
				}
				recv, err := buffer(r, make([]int32, sizes[i]))
				if err != nil {
					return err
				}
				got, want = append(got, recv), append(want, message(peer, r.Rank(), i))
				if err := ccl.SendOn(g, r.Comm, streams[i%2], send, peer); err != nil {
					return err
				}
				if err := ccl.RecvOn(g, r.Comm, streams[(i+1)%2], recv, peer); err != nil {
					return err
				}
			}
		}
		if err := r.runtime.GroupEnd(g); err != nil {
			return err
		}
		next, before := (r.Rank()+1)%n, (r.Rank()+n-1)%n
		send, err := buffer(r, message(r.Rank(), next, 1))
		if err != nil {
			return err
		}
		recv, err := buffer(r, make([]int32, sizes[1]))
		if err != nil {
			return err
		}
		if err := ccl.SendRecvOn(t.Context(), r.Comm, r.stream, send, next, recv, before); err != nil {
			return err
		}
		got, want = append(got, recv), append(want, message(before, r.Rank(), 1))
		for i := range got {
			data, err := read(r, got[i])
			if err == nil && !slices.Equal(data, want[i]) {
				err = fmt.Errorf("message %d is %v, want %v", i, data, want[i])
			}
			if err != nil {
				return err
			}
		}
		return r.Destroy(t.Context())
	})
}
