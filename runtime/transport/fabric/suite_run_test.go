package fabric_test

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// caseTime is the longest that a case may take. It is generous, as it only needs to catch a rank that waits forever.
const caseTime = 60 * time.Second

// Run runs all cases that do not need processes of their own.
func Run(t *testing.T, mesh Mesh) {
	for _, c := range Cases() {
		if !c.Dies {
			t.Run(c.Name, func(t *testing.T) { runCase(t, mesh, c) })
		}
	}
	t.Run("close while the peer reads", func(t *testing.T) { closeWhileReading(t, mesh) })
	t.Run("close from outside", func(t *testing.T) { closeFromOutside(t, mesh) })
	t.Run("no allocation", func(t *testing.T) { noAllocation(t, mesh) })
}

func runCase(t *testing.T, mesh Mesh, c Case) {
	ctx, stop := context.WithTimeout(t.Context(), caseTime)
	defer stop()
	var wg sync.WaitGroup
	for _, l := range mesh(t, c.Size) {
		wg.Go(func() {
			if err := c.Run(ctx, l); err != nil {
				t.Errorf("rank %d: %v", l.Rank(), err)
				stop()
			}
		})
	}
	wg.Wait()
}

// closeWhileReading makes rank 1 close, and overwrite its memory, while rank 0 reads a window.
func closeWhileReading(t *testing.T, mesh Mesh) {
	for round := range 20 {
		ranks := mesh(t, 2)
		buf := make([]byte, 1<<20)
		fill(buf, 1, 0, round)
		var released atomic.Bool
		looking := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			c := ranks[1].Conn(0)
			for sent := 0; sent < len(buf); {
				n, err := c.TrySend(buf[sent:])
				if err != nil {
					t.Error(err)
					break
				}
				sent += n
				select {
				case <-looking:
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					if c.Name() == "inproc" && !released.Load() {
						t.Error("Close returned while the peer was reading from this rank's memory")
					}
					clear(buf)
					return
				default:
					runtime.Gosched()
				}
			}
		})
		wg.Go(func() {
			c := ranks[0].Conn(1)
			for {
				w, err := c.Peek()
				if err != nil {
					t.Error(err)
					return
				}
				if len(w) == 0 {
					runtime.Gosched()
					continue
				}
				close(looking)
				for range 100 { // time for Close to happen
					runtime.Gosched()
				}
				if err := check(w[:min(len(w), 64<<10)], 1, 0, round); err != nil {
					t.Error(err)
				}
				released.Store(true)
				c.Release(len(w))
				return
			}
		})
		wg.Wait()
	}
}

// closeFromOutside closes ranks from other goroutines while they are busy.
func closeFromOutside(t *testing.T, mesh Mesh) {
	ctx, stop := context.WithTimeout(t.Context(), caseTime)
	defer stop()
	for range 10 {
		ranks := mesh(t, 3)
		var wg sync.WaitGroup
		under := make(chan struct{}, len(ranks))
		for _, l := range ranks {
			wg.Go(func() {
				for first := true; ; first = false {
					var transfers []*Transfer
					for peer := range ranks {
						if peer != l.Rank() {
							transfers = append(transfers,
								&Transfer{Peer: peer, Send: true, Buf: make([]byte, 50<<10)}, &Transfer{
									Peer: peer, Buf: make([]byte, 50<<10),
								})
						}
					}
					if err := Move(ctx, l, transfers...); err != nil {
						if first {
							t.Errorf("rank %d: %v", l.Rank(), err)
							under <- struct{}{}
						}
						return
					}
					if first {
						under <- struct{}{}
					}
				}
			})
		}
		for range ranks {
			<-under
		}
		for _, l := range ranks {
			wg.Go(l.Close)
		}
		wg.Wait()
		if ctx.Err() != nil {
			t.Fatal("ranks did not notice that they were closed")
		}
	}
}

// noAllocation checks that the steady state allocates nothing, for small and for large messages.
func noAllocation(t *testing.T, mesh Mesh) {
	ctx, stop := context.WithTimeout(t.Context(), caseTime)
	defer stop()
	for _, size := range []int{8, 1 << 20} {
		const rounds = 100
		ranks := mesh(t, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := pong(ctx, ranks[1], 0, size); err != nil {
				t.Error(err)
			}
		})
		out, in := make([]byte, size), make([]byte, size)
		rally := func(n int) {
			for range n {
				if err := ping(ctx, ranks[0], 1, out, in); err != nil {
					t.Fatal(err)
				}
			}
		}
		rally(rounds / 4)
		// The count includes the whole process: lingering connections of earlier cases, and the runtime's timers and
		// poller, add some allocations now and then. The smallest of several counts excludes them.
		least := uint64(math.MaxUint64)
		for attempt := 0; attempt < 5 && least > rounds/20; attempt++ {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rally(rounds)
			runtime.ReadMemStats(&after)
			least = min(least, after.Mallocs-before.Mallocs)
		}
		ranks[0].Close()
		wg.Wait()
		if least > rounds/20 {
			t.Errorf("%d messages of %d bytes there and back made %d allocations", rounds, size, least)
		}
	}
}
