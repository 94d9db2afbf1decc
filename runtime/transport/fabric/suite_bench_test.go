package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// Peer is the other side of the benchmarks, rank 1 of 2: it returns all data, in messages of the given size, until rank
// 0 closes.
func Peer(ctx context.Context, l *fabric.Links, size int) error { return pong(ctx, l, 0, size) }

// Sink is the other side of Stream: it receives everything, and answers each message of the given size with 8 bytes.
func Sink(ctx context.Context, l *fabric.Links, size int) error {
	c := l.Conn(0)
	ack := make([]byte, 8)
	for {
		for got := 0; got < size; {
			w, err := c.Peek()
			if err != nil {
				return orderly(err)
			}
			n := min(len(w), size-got)
			sum(w[:n])
			c.Release(n)
			got += n
			if err := went(ctx, l, n); err != nil {
				return err
			}
		}
		if err := send(ctx, l, c, ack); err != nil {
			return orderly(err)
		}
	}
}

// PingPong measures the round trip of a message of the given size to rank 1. It reports one way, on average as ns/way,
// and for the best batch of 64 as best-ns/way, which shows what the transport can do when a loaded machine spoils the
// average.
func PingPong(b *testing.B, l *fabric.Links, size int) {
	const batch = 64
	out, in := make([]byte, size), make([]byte, size)
	ctx := b.Context()
	best := time.Hour
	b.ReportAllocs()
	for n, begun := 1, time.Now(); b.Loop(); n++ {
		if err := ping(ctx, l, 1, out, in); err != nil {
			b.Fatal(err)
		}
		if n%batch == 0 {
			now := time.Now()
			best, begun = min(best, now.Sub(begun)), now
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/way")
	b.ReportMetric(float64(best.Nanoseconds())/batch/2, "best-ns/way")
}

// Forward is what ranks 1 to n-1 do in Around: they forward messages of 8 bytes until the previous rank closes.
func Forward(ctx context.Context, l *fabric.Links) error {
	token := make([]byte, 8)
	next, prev := l.Conn((l.Rank()+1)%l.Size()), l.Conn(l.Rank()-1)
	for {
		if err := receive(ctx, l, prev, token); err != nil {
			return orderly(err)
		}
		if err := send(ctx, l, next, token); err != nil {
			return orderly(err)
		}
	}
}

// Around measures how long 8 bytes take around all ranks, with only one rank at a time having work. It reports one hop
// as ns/hop.
func Around(b *testing.B, l *fabric.Links) {
	token := make([]byte, 8)
	ctx := b.Context()
	next, prev := l.Conn(1), l.Conn(l.Size()-1)
	b.ReportAllocs()
	for b.Loop() {
		if err := send(ctx, l, next, token); err != nil {
			b.Fatal(err)
		}
		if err := receive(ctx, l, prev, token); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(l.Size()), "ns/hop")
}

// Stream measures the bandwidth of messages of the given size to a Sink that reads every byte once, and that of the
// fastest message as best-MB/s.
func Stream(b *testing.B, l *fabric.Links, size int) {
	out, ack := make([]byte, size), make([]byte, 8)
	ctx := b.Context()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	best := time.Hour
	for begun := time.Now(); b.Loop(); {
		if err := send(ctx, l, l.Conn(1), out); err != nil {
			b.Fatal(err)
		}
		if err := receive(ctx, l, l.Conn(1), ack); err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		best, begun = min(best, now.Sub(begun)), now
	}
	b.ReportMetric(float64(size)/best.Seconds()/1e6, "best-MB/s")
}

// ping sends out to peer and waits for an answer of the same size.
func ping(ctx context.Context, l *fabric.Links, peer int, out, in []byte) error {
	c := l.Conn(peer)
	if err := send(ctx, l, c, out); err != nil {
		return err
	}
	return receive(ctx, l, c, in)
}

// pong answers until peer closes.
func pong(ctx context.Context, l *fabric.Links, peer, size int) error {
	c := l.Conn(peer)
	buf := make([]byte, size)
	for {
		if err := receive(ctx, l, c, buf); err != nil {
			return orderly(err)
		}
		if err := send(ctx, l, c, buf); err != nil {
			return orderly(err)
		}
	}
}

// orderly treats the peer's close as no error.
func orderly(err error) error {
	var notice *transport.NoticeError
	if errors.As(err, &notice) {
		return nil
	}
	return err
}

func send(ctx context.Context, l *fabric.Links, c transport.Conn, p []byte) error {
	for {
		n, err := c.TrySend(p)
		if err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			l.Waiter().Active()
			return nil
		}
		if err := went(ctx, l, n); err != nil {
			return err
		}
	}
}

func receive(ctx context.Context, l *fabric.Links, c transport.Conn, p []byte) error {
	for {
		w, err := c.Peek()
		if err != nil {
			return err
		}
		n := copy(p, w)
		if n > 0 {
			c.Release(n)
			if p = p[n:]; len(p) == 0 {
				l.Waiter().Active()
				return nil
			}
		}
		if err := went(ctx, l, n); err != nil {
			return err
		}
	}
}

// went tells the waiter whether a step moved anything.
func went(ctx context.Context, l *fabric.Links, n int) error {
	if n > 0 {
		l.Waiter().Active()
		return nil
	}
	if _, err := l.FirstLost(); err != nil {
		return err
	}
	if err := l.Waiter().Idle(ctx); err != nil {
		return fmt.Errorf("rank %d stands still: %w", l.Rank(), err)
	}
	return nil
}

// sum reads every cache line of p once, as a reduction would.
//
//go:noinline
func sum(p []byte) (s byte) {
	for i := 0; i < len(p); i += 64 {
		s += p[i]
	}
	return s
}
