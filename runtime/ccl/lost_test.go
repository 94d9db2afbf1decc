package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// members makes a communicator of n runtimes, which the test closes: to the others, a closed runtime is a process that
// has ended.
func members(t *testing.T, n int) ([]*ccl.Runtime, []*ccl.Comm) {
	t.Helper()
	rts, comms := make([]*ccl.Runtime, n), make([]*ccl.Comm, n)
	for i := range rts {
		var err error
		if rts[i], err = ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rts[i].Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	id, err := rts[0].NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for r := range comms {
		go func() {
			var err error
			comms[r], err = rts[r].InitRank(t.Context(), id, n, r)
			errs <- err
		}()
	}
	for range comms {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rts, comms
}

func TestLostNamesWhoseProcessHasEnded(t *testing.T) {
	rts, comms := members(t, 4)
	for _, c := range comms {
		if lost, err := c.Lost(t.Context()); err != nil || len(lost) > 0 {
			t.Fatalf("%s: lost %v, %v; all live", c, lost, err)
		}
	}
	if err := comms[2].Abort(errors.New("it had enough")); err != nil {
		t.Fatal(err)
	}
	if lost, err := comms[0].Lost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("lost %v, %v; rank 2 aborted, but its process lives", lost, err)
	}
	for _, gone := range []int{1, 3} {
		if err := rts[gone].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// It works in every state of the communicator.
	if err := comms[0].Revoke(nil); err != nil {
		t.Fatal(err)
	}
	lost, err := comms[0].Lost(t.Context())
	if err != nil || !slices.Equal(lost, []int{1, 3}) {
		t.Errorf("lost %v, %v; want ranks 1 and 3", lost, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := comms[0].Lost(over); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after the context's end", err)
	}
	if err := comms[0].Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[*ccl.Comm]lifecycle.Code{
		comms[0]: lifecycle.CodeDestroyed,
		nil:      lifecycle.CodeInvalidArgument,
	} {
		if _, err := c.Lost(t.Context()); lifecycle.CodeOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A second rank dies before the first is excluded: the ranks that only know of one fail, and meet when they retry.
func TestShrinkAgainAfterASecondDeath(t *testing.T) {
	rts, comms := members(t, 5)
	for _, gone := range []int{1, 3} {
		if err := rts[gone].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	each(t, []*ccl.Comm{comms[0], comms[2], comms[4]}, func(ctx context.Context, c *ccl.Comm) error {
		if err := sum(ctx, c); err == nil {
			return errors.New("a sum with two ranks that are gone")
		}
		first := []int{1}
		if c.Rank() == 2 {
			first = []int{3}
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if small, err := c.Shrink(short, first, ccl.ShrinkAbort); err == nil {
			return fmt.Errorf("the ranks pass different lists, and rank %d gets %s", c.Rank(), small)
		}
		lost, err := c.Lost(ctx)
		if err != nil {
			return err
		}
		small, err := c.Shrink(ctx, lost, ccl.ShrinkAbort)
		if err != nil {
			return err
		}
		if small.Size() != 3 || small.Rank() != c.Rank()/2 {
			return fmt.Errorf("%s, want rank %d of 3", small, c.Rank()/2)
		}
		return errors.Join(sum(ctx, small), small.Destroy(ctx), c.Destroy(ctx))
	})
}

func TestShrinkNamesWhoIsMissingInTheNewNumbers(t *testing.T) {
	_, comms := members(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// Of ranks 1, 2 and 3, which become 0, 1 and 2, only the last arrives; the first would hold the rendezvous.
	_, err := comms[3].Shrink(ctx, []int{0}, ccl.ShrinkAbort)
	var peer *ccl.PeerError
	if !errors.As(err, &peer) || peer.Rank != 0 ||
		!errors.Is(err, ccl.ErrNotJoined) && !errors.Is(err, ccl.ErrTimeout) {
		t.Errorf("%v, want that rank 0 of the new communicator is missing", err)
	}
	for _, c := range comms {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
