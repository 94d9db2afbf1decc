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

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// deeds are the things that a rank may do with a communicator.
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

// TestLife checks that whatever two ranks do with a communicator, one of them or both, every call returns, and a new
// communicator works on the same GPUs.
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
				_ = c.Abort(nil) // unless it has ended
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

// TestPeerClosed checks that a rank that waits on its GPU for one that has destroyed the communicator is told so: in
// packets, staged, in a message and in a graph, even if that rank has graphs. The earlier calls, which that rank made,
// complete.
func TestPeerClosed(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, r *rank, b cuda.Buffer[int32]) error{
		"packets": func(t *testing.T, r *rank, b cuda.Buffer[int32]) error {
			return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b.Slice(0, 8), b.Slice(0, 8), ccl.Sum)
		},
		"staged": func(t *testing.T, r *rank, b cuda.Buffer[int32]) error {
			return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum)
		},
		"message": func(t *testing.T, r *rank, b cuda.Buffer[int32]) error {
			return ccl.RecvOn(t.Context(), r.Comm, r.stream, b, 1)
		},
		"graph": func(t *testing.T, r *rank, b cuda.Buffer[int32]) error {
			must(t, r.stream.BeginCapture())
			err := ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b.Slice(0, 8), b.Slice(0, 8), ccl.Sum)
			graph, ended := r.stream.EndCapture()
			must(t, ended)
			x, instantiated := graph.Instantiate()
			must(t, instantiated)
			return errors.Join(err, x.Launch(r.stream))
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := ranks(t, 2)
			buffers := []cuda.Buffer[int32]{memory(t, &all[0], 7001), memory(t, &all[1], 7001)}
			each(t, all, func(r *rank) error {
				b := buffers[r.Rank()]
				err := sum(t.Context(), r, r.Comm)
				if err == nil && name == "graph" {
					err = captured(r, func() error {
						return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum)
					})
				}
				if err != nil || r.Rank() == 1 {
					return errors.Join(err, r.Destroy(t.Context()))
				}
				err = call(t, r, b)
				if err == nil {
					err = r.Wait(t.Context())
				}
				peer, ok := errors.AsType[*ccl.PeerError](err)
				if !ok || peer.Rank != 1 || peer.Code != lifecycle.CodePeerAborted {
					return fmt.Errorf("rank 0 got %w", err)
				}
				return nil
			})
		})
	}
}

// TestFinalized checks that a finalized communicator can be destroyed while another one exists that was made meanwhile.
func TestFinalized(t *testing.T) {
	for name, calls := range map[string]int{"after a call": 1, "unused": 0} {
		t.Run(name, func(t *testing.T) {
			all := ranks(t, 2)
			buffers := []cuda.Buffer[int32]{memory(t, &all[0], 8), memory(t, &all[1], 8)}
			each(t, all, func(r *rank) error {
				for range calls {
					if err := sum(t.Context(), r, r.Comm); err != nil {
						return err
					}
				}
				return r.Finalize(t.Context())
			})
			others, err := all[0].runtime.InitAll(t.Context(), 2, ccl.WithDevice(all[0].gpu, all[1].gpu))
			must(t, err)
			each(t, all, func(r *rank) error {
				other, b := others[r.Rank()], buffers[r.Rank()]
				return errors.Join(r.Destroy(t.Context()), sum(t.Context(), r, other), captured(r, func() error {
					return ccl.AllReduceOn(t.Context(), other, r.stream, b, b, ccl.Sum)
				}), other.Destroy(t.Context()))
			})
		})
	}
}

// TestEndBeside checks that a communicator ends while a kernel of another one waits for a rank that hasn't called yet,
// wherever windows are.
func TestEndBeside(t *testing.T) {
	for name, onHost := range map[string]bool{"devices": false, "host": true} {
		t.Run(name, func(t *testing.T) {
			o := options
			o.DisableP2P = onHost
			all := ranksWith(t, 2, o)
			first, second := &all[0], &all[1]
			buffers := []cuda.Buffer[int32]{memory(t, first, 8), memory(t, second, 8)}
			others, err := first.runtime.InitAll(t.Context(), 2, ccl.WithDevice(first.gpu, second.gpu))
			must(t, err)
			must(t, ccl.AllReduceOn(t.Context(), first.Comm, first.stream, buffers[0], buffers[0], ccl.Sum))
			each(t, all, func(r *rank) error { return others[r.Rank()].Destroy(t.Context()) })
			if err := first.stream.Query(); !errors.Is(err, cuda.ErrNotReady) {
				t.Errorf("the kernel that waits for rank 1: %v", err)
			}
			must(t, ccl.AllReduceOn(t.Context(), second.Comm, second.stream, buffers[1], buffers[1], ccl.Sum))
			each(t, all, func(r *rank) error { return r.Wait(t.Context()) })
			compare(t, all, []int{10})
		})
	}
}
