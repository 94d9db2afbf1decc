package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// mustMismatch checks that every rank has a mismatch error with the culprit and the text, and an unchanged buffer.
func mustMismatch(t *testing.T, errs []error, culprit int, want string) {
	t.Helper()
	for r, err := range errs {
		p := peerError(t, r, err)
		if p.Code != lifecycle.CodeMismatch || !errors.Is(err, lifecycle.ErrMismatch) {
			t.Errorf("rank %d has code %v, want %v: %v", r, p.Code, lifecycle.CodeMismatch, err)
		}
		if culprit >= 0 && p.Rank != culprit {
			t.Errorf("rank %d blames rank %d, want %d: %v", r, p.Rank, culprit, err)
		}
		if !strings.Contains(p.Detail, want) {
			t.Errorf("rank %d says %q, want it to say %q", r, p.Detail, want)
		}
	}
}

func TestMismatchNamesFieldAndRanks(t *testing.T) {
	base := engine.Op{
		Call: lifecycle.CallAllReduce, Count: 4, DataType: kernels.Float32, Reduction: kernels.PreMulSum, Scale: 1,
		Peer: -1, Algorithm: algo.Ring,
	}
	for _, c := range []struct {
		name   string
		change func(o *engine.Op)
		want   string // %s: the ranks that agree, and the rank that differs
	}{
		{
			"call", func(o *engine.Op) { o.Call, o.Peer = lifecycle.CallBroadcast, 0 },
			"call: %s all_reduce, %s broadcast",
		},
		{
			"barrier", func(o *engine.Op) { o.Call, o.Algorithm = lifecycle.CallBarrier, algo.Auto },
			"call: %s all_reduce, %s barrier",
		},
		{"count", func(o *engine.Op) { o.Count = 3 }, "count: %s 4, %s 3"},
		{"data type", func(o *engine.Op) { o.DataType = kernels.Int32 }, "data type: %s float32, %s int32"},
		{"reduction", func(o *engine.Op) { o.Reduction = kernels.Max }, "reduction: %s premul_sum, %s max"},
		{"algorithm", func(o *engine.Op) { o.Algorithm = algo.Tree }, "algorithm: %s ring, %s tree"},
	} {
		for _, size := range []int{3, 4, 17} {
			for name, how := range transports() {
				if name == "tcp" && size > 3 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", c.name, name, size), func(t *testing.T) {
					cl := newCluster(t, size, how)
					const odd = 1
					recvs := make([][]byte, size)
					errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
						op := base
						if rank == odd {
							c.change(&op)
						}
						op.Send, op.Recv = slices.Repeat([]byte{byte(rank)}, 16), slices.Repeat([]byte{0xEE}, 16)
						recvs[rank] = op.Recv
						return run(ctx, e, seq, op)
					})
					mustMismatch(t, errs, odd, fmt.Sprintf(c.want, others(size, odd), "rank 1 says"))
					for r, b := range recvs {
						if !slices.Equal(b, slices.Repeat([]byte{0xEE}, 16)) {
							t.Errorf("rank %d's buffer was written: %x", r, b)
						}
					}
				})
			}
		}
	}
}

// others returns the text for all ranks but one.
func others(size, odd int) string {
	var ranks []int
	for r := range size {
		if r != odd {
			ranks = append(ranks, r)
		}
	}
	return words.Ranks(ranks) + " say"
}

// With two ranks, each considers itself right.
func TestMismatchOfTwo(t *testing.T) {
	cl := newCluster(t, 2, transports()["inproc"])
	errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
		return run(ctx, e, seq, engine.Op{
			Call: lifecycle.CallBroadcast, Count: 1, DataType: kernels.Int8, Peer: rank, Send: []byte{1},
			Recv: []byte{2},
		})
	})
	mustMismatch(t, errs, -1, "root: rank 0 says 0, rank 1 says 1")
	for r, err := range errs {
		if p := peerError(t, r, err); p.Rank != 1-r {
			t.Errorf("rank %d blames rank %d, want %d", r, p.Rank, 1-r)
		}
	}
}

// A rank that skipped a collective is one behind.
func TestMismatchOfNumber(t *testing.T) {
	cl := newCluster(t, 3, transports()["inproc"])
	errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, _ uint64) error {
		seq := uint64(8)
		if rank == 2 {
			seq = 7
		}
		return run(ctx, e, seq, engine.Op{Call: lifecycle.CallBarrier, Peer: -1})
	})
	mustMismatch(t, errs, 2, "number of the operation: ranks 0 and 1 say 8, rank 2 says 7")
}

// Three variants.
func TestMismatchOfMany(t *testing.T) {
	for _, size := range []int{5, 17} {
		cl := newCluster(t, size, transports()["inproc"])
		errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
			n := 1
			if rank > 2 {
				n = rank
			}
			return run(ctx, e, seq, engine.Op{
				Call: lifecycle.CallAllReduce, Count: n, DataType: kernels.Int8, Peer: -1, Send: make([]byte,
					n), Recv: make([]byte, n),
			})
		})
		mustMismatch(t, errs, -1, "count: ")
	}
}

// A rank is in a collective, its peer in a send or receive.
func TestCollectiveMeetsMessage(t *testing.T) {
	for _, size := range []int{2, 3, 17} {
		for _, call := range []lifecycle.Call{lifecycle.CallSend, lifecycle.CallRecv} {
			t.Run(fmt.Sprintf("%v/%d", call, size), func(t *testing.T) {
				cl := newCluster(t, size, transports()["inproc"])
				errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					op := engine.Op{Call: lifecycle.CallBarrier, Peer: -1}
					if rank == 0 {
						op = engine.Op{
							Call: call, Count: 2, DataType: kernels.Int32, Peer: 1, Send: make([]byte, 8),
							Recv: make([]byte, 8),
						}
					}
					return run(ctx, e, seq, op)
				})
				mustMismatch(t, errs, -1, fmt.Sprintf("rank 0 says %v", call))
			})
		}
	}
}

// A receive whose header arrived before the peer called a barrier instead of the send.
func TestCollectiveAfterUnmetReceive(t *testing.T) {
	cl := newCluster(t, 2, transports()["inproc"])
	pair := func(rank int, calls ...lifecycle.Call) (ops []engine.Op) {
		for _, c := range calls {
			ops = append(ops, engine.Op{
				Call: c, Count: 1, DataType: kernels.Int8, Peer: 1 - rank, Send: []byte{1},
				Recv: []byte{0},
			})
		}
		return ops
	}
	errs := cl.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
		if rank == 0 {
			return run(ctx, e, seq, pair(rank, lifecycle.CallRecv, lifecycle.CallSend)...)
		}
		// Rank 0's receive is known here, and kept, when rank 0's send is received.
		if err := run(ctx, e, seq, pair(rank, lifecycle.CallRecv)...); err != nil {
			return err
		}
		return run(ctx, e, seq+1, engine.Op{Call: lifecycle.CallBarrier, Peer: -1})
	})
	mustMismatch(t, errs, -1, "recv from rank 1")
}
