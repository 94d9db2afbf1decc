package host_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// repeat makes every rank run op the given number of times, one after the other. The operations are prepared before, so
// that only the engine is measured.
func (c *cluster) repeat(times int, op func(rank int) engine.Op) {
	first := c.seq + 1
	c.seq += uint64(times)
	ops := make([]engine.Op, len(c.engines))
	for r := range ops {
		ops[r] = op(r)
	}
	var wg sync.WaitGroup
	for r, e := range c.engines {
		wg.Go(func() {
			for i := range times {
				if err := run(context.Background(), e, first+uint64(i), ops[r:r+1]...); err != nil {
					c.tb.Errorf("rank %d: %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// allReduce prepares an all-reduce of float32 of the given size, with separate memory for each rank.
func allReduce(bytes int, a algo.Algorithm, inPlace bool) func(rank int) engine.Op {
	return func(int) engine.Op {
		send, recv := make([]byte, bytes), make([]byte, bytes)
		if inPlace {
			recv = send
		}
		return engine.Op{
			Call: lifecycle.CallAllReduce, Count: bytes / 4, DataType: kernels.Float32, Reduction: kernels.Sum,
			Peer: -1, Send: send, Recv: recv, Algorithm: a,
		}
	}
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%dMiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%dKiB", bytes>>10)
	}
	return fmt.Sprintf("%dB", bytes)
}

func benchAllReduce(b *testing.B, a algo.Algorithm) {
	for _, name := range []string{"inproc", "shm"} {
		for _, ranks := range []int{2, 4} {
			c := newCluster(b, ranks, transports()[name])
			for bytes := 8; bytes <= 64<<20; bytes *= 8 {
				b.Run(fmt.Sprintf("%s/%d/%s", name, ranks, size(bytes)), func(b *testing.B) {
					c.tb = b
					ops := make([]engine.Op, ranks)
					for r := range ops {
						ops[r] = allReduce(bytes, a, false)(r)
					}
					op := func(rank int) engine.Op { return ops[rank] }
					c.repeat(3, op)
					b.ReportAllocs()
					b.ResetTimer()
					c.repeat(b.N, op)
					bus := float64(bytes) * 2 * float64(ranks-1) / float64(ranks) * float64(b.N)
					b.ReportMetric(bus/1e9/b.Elapsed().Seconds(), "bus-GB/s")
				})
			}
		}
	}
}

func BenchmarkAllReduce(b *testing.B) { benchAllReduce(b, algo.Auto) }

// BenchmarkAllReduceBy compares the algorithms, for the rules of package algo.
func BenchmarkAllReduceBy(b *testing.B) {
	for _, a := range algo.For(lifecycle.CallAllReduce) {
		b.Run(a.String(), func(b *testing.B) { benchAllReduce(b, a) })
	}
}

func TestNoAllocations(t *testing.T) {
	for name, how := range transports() {
		if name == "tcp" {
			continue // its goroutines belong to the transport
		}
		for _, ranks := range []int{2, 4, 17} {
			c := newCluster(t, ranks, how)
			for _, bytes := range []int{8, 100_000} {
				if ranks > 4 && bytes > 8 {
					continue // only the agreement differs from few ranks
				}
				for _, a := range algo.For(lifecycle.CallAllReduce) {
					ops := make([]engine.Op, ranks)
					for r := range ops {
						ops[r] = allReduce(bytes, a, r%2 == 0)(r)
					}
					op := func(rank int) engine.Op { return ops[rank] }
					c.repeat(5, op)
					const times = 200
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					c.repeat(times, op)
					runtime.ReadMemStats(&after)
					// Starting the goroutines and the test's own bookkeeping takes some, whatever the number of
					// operations.
					if n := after.Mallocs - before.Mallocs; n >= times {
						t.Errorf("%s, %d ranks, %d bytes by %v: %d operations allocate %d times, want none",
							name, ranks, bytes, a, times, n)
					}
				}
			}
		}
	}
}
