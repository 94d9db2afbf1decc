package host_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// placing is the links of a rank that records which memory its connections are given.
type placing struct {
	*fabric.Links
	given   int    // number of pieces of memory
	last    []byte // the last piece
	onGiven func()
}

func (p *placing) Conn(peer int) transport.Conn {
	if c := p.Links.Conn(peer); c != nil {
		return &placingConn{c, c.(transport.Placer), p}
	}
	return nil
}

type placingConn struct {
	transport.Conn
	transport.Placer
	of *placing
}

func (c *placingConn) Place(p []byte) {
	c.Placer.Place(p)
	if c.of.last = p; p != nil {
		c.of.given++
		c.of.onGiven()
	}
}

// broadcast and group send count bytes from rank 0 to rank 1.

func broadcast(rank, count int) []engine.Op {
	data := text(0, 1, 0, count)
	if rank == 1 {
		clear(data)
	}
	return []engine.Op{{
		Call: lifecycle.CallBroadcast, Count: count, DataType: kernels.Uint8, Peer: 0, Send: data, Recv: data,
	}}
}

func group(rank, count int) []engine.Op {
	if rank == 1 {
		return []engine.Op{recv(0, make([]byte, count)), recv(0, make([]byte, 8))}
	}
	return []engine.Op{send(1, text(0, 1, 0, count)), send(1, text(0, 1, 0, 8))}
}

// placers makes two ranks: p records memory for the second one; the first one uses m.
func placers(t *testing.T, m *mortal, p *placing) *cluster {
	t.Helper()
	return newClusterOf(t, 2, transports()["tcp"], func(rank int, l *fabric.Links) engine.Links {
		if rank == 0 {
			m.Links = l
			return m
		}
		p.Links = l
		return p
	})
}

var placedOps = map[string]func(rank, count int) []engine.Op{"broadcast": broadcast, "group": group}

// The connections get the memory of data that is received unchanged, and the received data is what was sent, whatever
// its size.
func TestPlace(t *testing.T) {
	for name, ops := range placedOps {
		p := &placing{onGiven: func() {}}
		c := placers(t, &mortal{}, p)
		for _, count := range []int{100, 100_003, 8<<20 + 5} {
			var got []byte
			for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				o := ops(rank, count)
				if rank == 1 {
					got = o[0].Recv
				}
				return run(ctx, e, seq, o...)
			}) {
				if err != nil {
					t.Fatalf("%s: rank %d: %v", name, r, err)
				}
			}
			if !bytes.Equal(got, text(0, 1, 0, count)) {
				t.Errorf("%s: %d bytes are not those that were sent", name, count)
			}
		}
		if p.given == 0 {
			t.Errorf("%s: no memory was given", name)
		}
	}
}

// A failed operation takes its memory back.
func TestPlacedIsTakenBack(t *testing.T) {
	for name, ops := range placedOps {
		p := &placing{}
		c := placers(t, &mortal{dead: true, spare: 1 << 20}, p) // it sends a part
		errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if rank == 1 {
				p.onGiven = cancel
			}
			return run(ctx, e, seq, ops(rank, 8<<20)...)
		})
		if !errors.Is(errs[1], context.Canceled) || p.given == 0 {
			t.Errorf("%s: memory was given %d times, and the receiver has %v", name, p.given, errs[1])
		}
		if p.last != nil {
			t.Errorf("%s: %d bytes may still be written", name, len(p.last))
		}
	}
}
