package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// A rank that has begun a collective has posted the data that the others need, so that they needn't wait until it has
// recorded the operation.
func TestBeginPosts(t *testing.T) {
	c := newCluster(t, 2, transports()["shm"])
	bufs := [2][]int32{{1}, {2}}
	ops := func(r int) []engine.Op {
		b := kernels.Bytes(bufs[r])
		return []engine.Op{{
			Call: lifecycle.CallAllReduce, Count: 1, DataType: kernels.Int32, Peer: -1, Send: b, Recv: b,
		}}
	}
	c.engines[1].Begin(lifecycle.CallAllReduce, 1, ops(1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run(ctx, c.engines[0], 1, ops(0)...); err != nil {
		t.Fatalf("rank 0, when rank 1 has begun: %v", err)
	}
	if err := c.engines[1].Run(ctx); err != nil || bufs[0][0] != 3 || bufs[1][0] != 3 {
		t.Errorf("the ranks have %v, %v; want 3 each", bufs, err)
	}
}
