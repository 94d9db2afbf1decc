package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

func TestInitRankOverTCPRendezvous(t *testing.T) {
	for name, cfg := range map[string]fabric.Config{
		"shm": {},
		"tcp": {DisableSHM: true},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 3
			first := newRuntime(t, ccl.Config{Fabric: cfg})
			id, err := first.NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			comms := make([]*ccl.Comm, n)
			var wg sync.WaitGroup
			for r := range n {
				rt := first
				if r > 0 {
					rt = newRuntime(t, ccl.Config{Fabric: cfg}) // like another process
				}
				wg.Go(func() {
					c, err := rt.InitRank(t.Context(), id, n, r, ccl.WithName("dp"))
					if err != nil {
						t.Error(err)
						return
					}
					comms[r] = c
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
				if got := c.Topology().Transport[(c.Rank()+1)%n]; got != name {
					return fmt.Errorf("the transport is %s, want %s", got, name)
				}
				return errors.Join(allCollectives(ctx, c, 100_000), c.Destroy(ctx))
			})
		})
	}
}
