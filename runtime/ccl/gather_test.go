package ccl

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The data that ranks exchange in a Split or a Grow may have any length, including 0.
func TestGatherOfAnyLengths(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		rt := quiet(t)
		comms, err := rt.InitAll(t.Context(), size)
		if err != nil {
			t.Fatal(err)
		}
		payload := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank)}, rank*rank) }
		var ranks errgroup.Group
		for _, c := range comms {
			ranks.Go(func() error {
				all, err := c.gather(t.Context(), lifecycle.CallSplit, 1, payload(c.rank))
				for r := range all {
					if !bytes.Equal(all[r], payload(r)) {
						return fmt.Errorf("rank %d: rank %d's payload came as %v", c.rank, r, all[r])
					}
				}
				return err
			})
		}
		if err := ranks.Wait(); err != nil {
			t.Error(err)
		}
		for _, c := range comms {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
