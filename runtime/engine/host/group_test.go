package host_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

func send(peer int, b []byte) engine.Op {
	return engine.Op{Call: lifecycle.CallSend, Count: len(b), DataType: kernels.Uint8, Peer: peer, Send: b}
}

func recv(peer int, b []byte) engine.Op {
	return engine.Op{Call: lifecycle.CallRecv, Count: len(b), DataType: kernels.Uint8, Peer: peer, Recv: b}
}

// text returns a unique message of n bytes.
func text(from, to, number, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(from*31 + to*17 + number*7 + i + i>>8)
	}
	return b
}

func TestSendAndReceive(t *testing.T) {
	for name, how := range transports() {
		for _, n := range []int{0, 1, 7, 8, 900, 1000, 1024, 4096, 70_001, 3_000_003} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				c := newCluster(t, 2, how)
				got := make([]byte, n)
				for i := range 3 { // one after the other: there and back
					c.run(func(rank int) engine.Op {
						if rank == i%2 {
							return send(1-rank, text(rank, 1-rank, i, n))
						}
						return recv(1-rank, got)
					})
					if !bytes.Equal(got, text(i%2, 1-i%2, i, n)) {
						t.Errorf("message %d is not what was sent", i)
					}
				}
			})
		}
	}
}

// message is a message of a random exchange.
type message struct{ from, to, number, size int }

// Any exchange in one group arrives, in order, whatever the order of calls between different ranks.
func TestGroups(t *testing.T) {
	const ranks = 4
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ranks, how)
			rapid.Check(t, func(t *rapid.T) {
				messages := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) message {
					return message{
						from: rapid.IntRange(0, ranks-1).Draw(t, "from"), to: rapid.IntRange(0, ranks-1).Draw(t, "to"),
						size: rapid.SampledFrom([]int{0, 1, 8, 40, 999, 1020, 5000, 200_001}).Draw(t, "size"),
					}
				}), 1, 24).Draw(t, "messages")
				ops, got := make([][]engine.Op, ranks), make([][]byte, len(messages))
				for i := range messages {
					m := &messages[i]
					m.number = i
					got[i] = make([]byte, m.size)
					ops[m.from] = append(ops[m.from], send(m.to, text(m.from, m.to, i, m.size)))
					ops[m.to] = append(ops[m.to], recv(m.from, got[i]))
				}
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if len(ops[rank]) == 0 {
						return nil
					}
					return run(ctx, e, seq, ops[rank]...)
				}) {
					if err != nil {
						t.Fatalf("rank %d: %v", r, err)
					}
				}
				for i, m := range messages {
					if !bytes.Equal(got[i], text(m.from, m.to, i, m.size)) {
						t.Fatalf("message %d (%+v) is not what was sent", i, m)
					}
				}
				c.check(shape{call: lifecycle.CallAllReduce, count: 9})
			})
		})
	}
}

// One rank calls both directions together, the other one after the other.
func TestGroupMeetsSingles(t *testing.T) {
	for _, sendFirst := range []bool{true, false} {
		for _, n := range []int{10, 500_000} {
			c := newCluster(t, 2, transports()["inproc"])
			got := [2][]byte{make([]byte, n), make([]byte, n)}
			for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				ops := []engine.Op{send(1-rank, text(rank, 1-rank, 0, n)), recv(1-rank, got[rank])}
				if rank == 0 {
					return run(ctx, e, seq, ops...)
				}
				if !sendFirst {
					slices.Reverse(ops)
				}
				for i := range ops {
					if err := run(ctx, e, seq, ops[i]); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				if !bytes.Equal(got[r], text(1-r, r, 0, n)) {
					t.Errorf("rank %d got something else than was sent", r)
				}
			}
		}
	}
}

func TestMessageMismatch(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  [2]engine.Op
		want string
	}{
		{"count", [2]engine.Op{send(1, make([]byte, 8)), recv(0, make([]byte, 9))}, "count: "},
		{"large count", [2]engine.Op{send(1, make([]byte, 80_000)), recv(0, make([]byte, 9))}, "count: "},
		{"data type", [2]engine.Op{
			send(1, make([]byte, 8)),
			{Call: lifecycle.CallRecv, Count: 8, DataType: kernels.Int8, Peer: 0, Recv: make([]byte, 8)},
		}, "data type: "},
		{"two sends", [2]engine.Op{send(1, make([]byte, 8)), send(0, make([]byte, 8))}, "each waits for the other"},
		{"two receives", [2]engine.Op{recv(1, make([]byte, 8)), recv(0, make([]byte, 8))}, "each waits for the other"},
	} {
		for name, how := range transports() {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				cl := newCluster(t, 3, how)
				errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == 2 { // not involved, but told
						return run(ctx, e, seq, engine.Op{Call: lifecycle.CallBarrier, Peer: -1})
					}
					return run(ctx, e, seq, c.ops[rank])
				})
				mustMismatch(t, errs, -1, c.want)
				for _, b := range c.ops[1].Recv {
					if b != 0 {
						t.Fatal("the receive buffer was written")
					}
				}
			})
		}
	}
}

func TestToSelf(t *testing.T) {
	c := newCluster(t, 1, transports()["inproc"])
	e := c.engines[0]
	a, b := make([]byte, 3), make([]byte, 2)
	ops := []engine.Op{send(0, []byte{1, 2, 3}), recv(0, a), recv(0, b), send(0, []byte{4, 5})}
	if err := run(t.Context(), e, 1, ops...); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, []byte{1, 2, 3}) || !slices.Equal(b, []byte{4, 5}) {
		t.Errorf("got %v and %v", a, b)
	}
}
