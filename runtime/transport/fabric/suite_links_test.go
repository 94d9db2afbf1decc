package fabric_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// Mesh connects size ranks of this process with each other and has them closed when the test ends.
type Mesh func(tb testing.TB, size int) []*fabric.Links

// Transfer is one message on its way to or from a peer.
type Transfer struct {
	Peer int
	Send bool
	Buf  []byte
	// Most, if set, returns the most bytes to move in the next step.
	Most func() int

	done int
}

// step moves as much as possible now.
func (t *Transfer) step(l *fabric.Links) (int, error) {
	if t.done == len(t.Buf) {
		return 0, nil
	}
	c := l.Conn(t.Peer)
	rest := t.Buf[t.done:]
	if t.Send {
		// A message that was begun is offered whole: the transport may keep a reference to it.
		n, err := c.TrySend(rest)
		t.done += n
		return n, err
	}
	w, err := c.Peek()
	if err != nil || len(w) == 0 {
		return 0, err
	}
	if t.Most != nil {
		w = w[:min(len(w), t.Most())]
	}
	n := copy(rest, w)
	c.Release(n)
	t.done += n
	return n, nil
}

// Move makes all transfers concurrently. It is a small engine: it returns the first error of a connection, or of a lost
// peer when nothing moves any more.
func Move(ctx context.Context, l *fabric.Links, transfers ...*Transfer) error {
	for looked := false; ; {
		moved, open := 0, false
		for _, t := range transfers {
			n, err := t.step(l)
			if err != nil {
				return err
			}
			moved += n
			open = open || t.done < len(t.Buf)
		}
		switch {
		case !open:
			l.Waiter().Active()
			return nil
		case moved > 0:
			looked = false
			l.Waiter().Active()
			continue
		}
		// One more pass gets what arrived before the loss was known.
		if _, err := l.FirstLost(); err != nil {
			if looked {
				return err
			}
			looked = true
			continue
		}
		if err := l.Waiter().Idle(ctx); err != nil {
			return fmt.Errorf("rank %d stands still: %w", l.Rank(), err)
		}
	}
}

// Send sends p to peer.
func Send(ctx context.Context, l *fabric.Links, peer int, p []byte) error {
	return Move(ctx, l, &Transfer{Peer: peer, Send: true, Buf: p})
}

// Recv fills p with data from peer.
func Recv(ctx context.Context, l *fabric.Links, peer int, p []byte) error {
	return Move(ctx, l, &Transfer{Peer: peer, Buf: p})
}

// Barrier returns when all ranks have called it.
func Barrier(ctx context.Context, l *fabric.Links) error {
	var transfers []*Transfer
	for peer := range l.Size() {
		if peer != l.Rank() {
			transfers = append(transfers, &Transfer{Peer: peer, Send: true, Buf: make([]byte, 8)},
				&Transfer{Peer: peer, Buf: make([]byte, 8)})
		}
	}
	return Move(ctx, l, transfers...)
}

// fill makes the bytes that rank from sends to rank to in a round; check finds the first wrong byte.
func fill(p []byte, from, to, round int) {
	g := newPattern(from, to, round)
	for i := range p {
		p[i] = g.next()
	}
}

func check(p []byte, from, to, round int) error {
	g := newPattern(from, to, round)
	for i := range p {
		if want := g.next(); p[i] != want {
			return fmt.Errorf("byte %d of %d from rank %d to rank %d in round %d is %#x, want %#x",
				i, len(p), from, to, round, p[i], want)
		}
	}
	return nil
}

// pattern is a cheap generator of bytes in which no two places look alike.
type pattern uint64

func newPattern(from, to, round int) pattern {
	return pattern(rand.New(rand.NewPCG(uint64(from)<<32|uint64(to), uint64(round))).Uint64())
}

// next makes a step of splitmix64.
func (g *pattern) next() byte {
	*g += 0x9e3779b97f4a7c15
	z := uint64(*g)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	return byte(z >> 56)
}
