//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// deeds are what a rank does with a communicator.
var deeds = map[string]func(ctx context.Context, r *rank, c *ccl.Comm, b cuda.Buffer[int32]) error{
	"reduce": func(ctx context.Context, r *rank, c *ccl.Comm, b cuda.Buffer[int32]) error {
		return ccl.AllReduceOn(ctx, c, r.stream, b, b, ccl.Max)
	},
	"reduce in a graph": func(ctx context.Context, r *rank, c *ccl.Comm, b cuda.Buffer[int32]) error {
		if err := r.stream.BeginCapture(); err != nil {
			return err
		}
		err := ccl.AllReduceOn(ctx, c, r.stream, b, b, ccl.Max)
		graph, ended := r.stream.EndCapture()
		if ended != nil {
			return ended
		}
		x, failed := graph.Instantiate()
		if failed == nil && err == nil {
			failed = x.Launch(r.stream)
		}
		return errors.Join(err, failed, x.Destroy(), graph.Destroy())
	},
	"wait":     func(ctx context.Context, _ *rank, c *ccl.Comm, _ cuda.Buffer[int32]) error { return c.Wait(ctx) },
	"finalize": func(ctx context.Context, _ *rank, c *ccl.Comm, _ cuda.Buffer[int32]) error { return c.Finalize(ctx) },
	"destroy":  func(ctx context.Context, _ *rank, c *ccl.Comm, _ cuda.Buffer[int32]) error { return c.Destroy(ctx) },
	"abort":    func(_ context.Context, _ *rank, c *ccl.Comm, _ cuda.Buffer[int32]) error { return c.Abort(nil) },
	"split": func(ctx context.Context, r *rank, c *ccl.Comm, b cuda.Buffer[int32]) error {
		child, err := c.Split(ctx, 0, r.Rank())
		if err == nil {
			err = ccl.AllReduceOn(ctx, child, r.stream, b, b, ccl.Max)
		}
		if child != nil {
			_ = child.Destroy(ctx)
		}
		return err
	},
}

// TestLife: whatever two ranks do with a communicator, one of them or both, every call returns, and a new communicator
// works on the same GPUs.
func TestLife(t *testing.T) {
	all := ranks(t, 2)
	buffers := []cuda.Buffer[int32]{memory(t, &all[0], 8), memory(t, &all[1], 8)}
	names := slices.Sorted(maps.Keys(deeds))
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		comms, err := all[0].runtime.InitAll(ctx, 2, ccl.WithDevice(all[0].gpu, all[1].gpu))
		if err != nil {
			t.Fatal(err)
		}
		var doers sync.WaitGroup
		for i := range all {
			r, c, b := &all[i], comms[i], buffers[i]
			do := rapid.SliceOfN(rapid.SampledFrom(names), 1, 5).Draw(t, fmt.Sprint("rank ", i))
			doers.Go(func() {
				for _, name := range do {
					brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond) // the other may do something else
					_ = deeds[name](brief, r, c, b)
					cancel()
				}
				_ = c.Abort(nil) // or it has ended
			})
		}
		doers.Wait()
		if ctx.Err() != nil {
			t.Fatal("a call took too long")
		}
		fresh, err := all[0].runtime.InitAll(ctx, 2, ccl.WithDevice(all[0].gpu, all[1].gpu))
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		for i := range all {
			g.Go(func() error {
				if err := sum(ctx, &all[i], fresh[i]); err != nil {
					return err
				}
				return fresh[i].Destroy(ctx)
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}
