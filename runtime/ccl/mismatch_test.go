package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// Split and Grow exchange the wishes of all ranks in the same way. They must not confuse each other's data: a rank's
// card is not a unique id.
func TestSplitDoesNotMatchGrow(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]ccl.UniqueID{"with an id": id, "without": {}} {
		t.Run(name, func(t *testing.T) {
			each(t, together(t, 3), func(ctx context.Context, c *ccl.Comm) error {
				call := lifecycle.CallSplit
				var err error
				if c.Rank() == 1 {
					call = lifecycle.CallGrow
					_, err = c.Grow(ctx, id, 4)
				} else {
					_, err = c.Split(ctx, 0, 0)
				}
				var peer *ccl.PeerError
				if !errors.As(err, &peer) || peer.Code != lifecycle.CodeMismatch || peer.Rank != 1 ||
					peer.Call != call {
					return fmt.Errorf("%w; want that the call of rank 1 does not match", err)
				}
				if says := "ranks 0 and 2 say split, rank 1 says grow"; !strings.Contains(err.Error(), says) {
					return fmt.Errorf("%w; want that it says %q", err, says)
				}
				return c.Close()
			})
		})
	}
}
