package tcp

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// crowd is many ranks in this process, each with a connection of its own.
type crowd []*Client

func newCrowd(tb testing.TB, s house, size int) crowd {
	id := s.id(tb)
	c := make(crowd, size)
	for rank := range c {
		c[rank] = Dial(id, Config{Log: quiet, host: fmt.Sprintf("host-%d", rank/8)})
	}
	return c
}

// meet exchanges cards of the given size and returns the first error.
func (c crowd) meet(tb testing.TB, key string, card int) {
	errs := make(chan error, len(c))
	payload := make([]byte, card)
	ctx := within(tb)
	for rank, one := range c {
		go func() {
			payloads, err := one.Exchange(ctx, key, rank, len(c), payload)
			if err == nil && (len(payloads) != len(c) || len(payloads[len(c)-1]) != card) {
				err = fmt.Errorf("rank %d got %d payloads", rank, len(payloads))
			}
			errs <- err
		}()
	}
	for range c {
		if err := <-errs; err != nil {
			tb.Fatal(err)
		}
	}
}

func (c crowd) leave() {
	var all sync.WaitGroup
	for _, one := range c {
		all.Go(func() { _ = one.Close() }) // its error is not what is tested
	}
	all.Wait()
}

// TestCrowd lets 400 ranks meet twice at once, then lets one die, and checks that the waiting ranks learn that, and
// which other rank never came.
func TestCrowd(t *testing.T) {
	const size = 400
	s := listen(t, quiet)
	c := newCrowd(t, s, size)
	defer c.leave()
	c.meet(t, "cards", 256)
	c.meet(t, "ready", 0)

	id := c[0].id
	var waits []<-chan result
	for rank := range size - 2 {
		waits = append(waits, start(within(t), c[rank], "missing", rank, size))
	}
	await(t, "all but two wait", func() bool { return s.waiting(id, "missing") == size-2 })
	_ = c[size-1].session.conn.Close() // dies
	began := time.Now()
	var told []error
	for _, w := range waits {
		told = append(told, (<-w).err)
	}
	took := time.Since(began)
	for _, err := range told {
		wantMissing(t, err)
		wantText(t, err, fmt.Sprintf("rank %d has not arrived; left: rank %d", size-2, size-1), "its process ended")
	}
	if took > 10*time.Second {
		t.Errorf("the ranks were told of a death in %v", took)
	}
}

// BenchmarkExchange is one exchange of cards of 256 bytes, all ranks on this host: first over new connections, as a
// communicator's first exchange is, then over existing connections.
func BenchmarkExchange(b *testing.B) {
	for _, size := range []int{2, 8, 64, 1000} {
		b.Run(fmt.Sprintf("connect/ranks=%d", size), func(b *testing.B) {
			s := listen(b, quiet)
			for b.Loop() {
				c := newCrowd(b, s, size)
				c.meet(b, "cards", 256)
				b.StopTimer()
				c.leave()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(size), "µs/rank")
		})
		b.Run(fmt.Sprintf("connected/ranks=%d", size), func(b *testing.B) {
			s := listen(b, quiet)
			c := newCrowd(b, s, size)
			c.meet(b, "first", 256)
			n := 0
			for b.Loop() {
				n++
				c.meet(b, fmt.Sprintf("cards %d", n), 256)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(size), "µs/rank")
			c.leave()
		})
	}
}
