package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// lonely is a kind of device whose ranks wait for each other.
type lonely struct{}

func (lonely) Name() string { return "lonely" }

func (lonely) Open(_ context.Context, _ *engine.Comm, gather func([]byte) ([][]byte, error), _ func(error)) (
	engine.Device, error,
) {
	_, err := gather(nil)
	return nil, err
}

// TestSplitOfWhichOneRankIsOnADevice checks that such a split is refused on all ranks of the color, which would wait
// for each other otherwise. The other ranks, and the parent, are unaffected.
func TestSplitOfWhichOneRankIsOnADevice(t *testing.T) {
	each(t, together(t, 4), func(ctx context.Context, c *ccl.Comm) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var opts []ccl.Option
		if c.Rank() == 2 {
			opts = append(opts, ccl.WithDevice(lonely{}))
		}
		child, err := c.Split(ctx, c.Rank()%2, 0, opts...)
		if c.Rank()%2 == 1 {
			return errors.Join(err, child.Destroy(ctx), c.Destroy(ctx))
		}
		says := `rank 0 is on a device of kind "" and rank 1 of kind "lonely"`
		if !errors.Is(err, lifecycle.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("%w; want that it says %s", err, says)
		}
		return c.Destroy(ctx)
	})
}
