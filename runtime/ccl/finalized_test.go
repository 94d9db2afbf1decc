package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// A rank that has finalized makes no more calls: ranks that wait for it are told, and get what it sent before.
func TestWhoWaitsForAFinalizedRankIsToldSo(t *testing.T) {
	for name, cfg := range map[string]fabric.Config{
		"inproc": {}, "shm": {DisableP2P: true}, "tcp": {DisableP2P: true, DisableSHM: true},
	} {
		t.Run(name, func(t *testing.T) {
			comms, err := newRuntime(t, ccl.Config{Fabric: cfg}).InitAll(t.Context(), 3)
			if err != nil {
				t.Fatal(err)
			}
			var ranks sync.WaitGroup
			for rank, c := range comms {
				ranks.Go(func() {
					if err := leaveEarly(t.Context(), c); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			ranks.Wait()
			for _, c := range comms {
				_ = c.Abort(nil) // only now
			}
		})
	}
}

// leaveEarly makes rank 0 finalize, while the others wait for it in a call that it does not make.
func leaveEarly(ctx context.Context, c *ccl.Comm) error {
	sum := make([]int64, 1<<18)
	for i := range sum {
		sum[i] = int64(c.Rank())
	}
	if err := ccl.AllReduce(ctx, c, sum, sum, ccl.Sum); err != nil || sum[len(sum)-1] != 3 {
		return fmt.Errorf("the sum is %d: %w", sum[len(sum)-1], err)
	}
	if c.Rank() == 0 {
		return c.Finalize(ctx)
	}
	err := ccl.AllReduce(ctx, c, sum, sum, ccl.Sum)
	if peer, ok := errors.AsType[*ccl.PeerError](err); ok && peer.Rank == 0 && peer.Code == lifecycle.CodePeerAborted {
		return nil
	}
	return fmt.Errorf("it was told %w, and not that rank 0 is gone", err)
}
