//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// sum makes an all-reduce of ones, in packets and staged, on the given communicator instead of the rank's own.
func sum(ctx context.Context, r *rank, comm *ccl.Comm) error {
	for _, n := range []int{3, 7001} {
		ones := slices.Repeat([]int32{1}, n)
		b, err := buffer(r, ones)
		if err != nil {
			return err
		}
		err = errors.Join(ccl.AllReduceOn(ctx, comm, r.stream, b, b, ccl.Sum), comm.Wait(ctx))
		if err != nil {
			return err
		}
		got, err := read(r, b)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(got, func(v int32) bool { return v != int32(comm.Size()) }); i >= 0 {
			return fmt.Errorf("element %d of %d is %d, with %d ranks", i, n, got[i], comm.Size())
		}
	}
	return nil
}

// TestShrink checks that ranks that wait on their GPUs for a lost rank continue without it, on the same streams, and so
// do ranks of a healthy communicator, with operations of the old one still enqueued.
func TestShrink(t *testing.T) {
	for name, healthy := range map[string]bool{"healthy": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			all := ranks(t, 3)
			each(t, all, func(r *rank) error {
				ctx, mode := t.Context(), ccl.ShrinkDefault
				b := memory(t, r, 4000)
				call := func() error { return ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum) }
				switch {
				case healthy:
					if err := errors.Join(call(), call()); err != nil {
						return err
					}
				case r.Rank() != 2:
					mode = ccl.ShrinkAbort
					err := call()
					if err == nil {
						err = r.Wait(ctx)
					}
					if peer, ok := errors.AsType[*ccl.PeerError](err); !ok || peer.Rank != 2 {
						return fmt.Errorf("rank %d got %w", r.Rank(), err)
					}
				}
				switch {
				case r.Rank() == 2 && healthy:
					return r.Destroy(ctx)
				case r.Rank() == 2:
					return r.Abort(errors.New("it is over"))
				}
				child, err := r.Shrink(ctx, []int{2}, mode)
				if err != nil {
					return err
				}
				return errors.Join(sum(ctx, r, child), r.Destroy(ctx), sum(ctx, r, child), child.Destroy(ctx))
			})
		})
	}
}

// TestGrow checks that a rank joins with its own GPU, and that without one it is refused on all ranks.
func TestGrow(t *testing.T) {
	for name, withDevice := range map[string]bool{"with a GPU": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			d, rt := driver(t, 3), runtime(t)
			all := make([]rank, 3)
			kinds := make([]engine.DeviceKind, len(all))
			for r := range all {
				dev, err := device(d, r)
				must(t, err)
				all[r] = on(t, dev)
				kinds[r] = all[r].gpu
			}
			parents, err := rt.InitAll(ctx, 2, ccl.WithDevice(kinds[:2]...))
			must(t, err)
			id, err := rt.NewUniqueID()
			must(t, err)
			var g errgroup.Group
			for r := range all {
				g.Go(func() error {
					var child *ccl.Comm
					var err error
					var opts []ccl.Option
					if withDevice {
						opts = append(opts, ccl.WithDevice(kinds[r]))
					}
					switch r {
					case 0:
						child, err = parents[r].Grow(ctx, id, len(all))
					case 1:
						child, err = parents[r].Grow(ctx, ccl.UniqueID{}, len(all))
					default:
						child, err = rt.JoinGrow(ctx, id, len(all), r, opts...)
					}
					if !withDevice {
						if !errors.Is(err, lifecycle.ErrInvalidArgument) {
							return fmt.Errorf("rank %d, where rank 2 has no GPU, got %w", r, err)
						}
						return nil
					}
					if err != nil {
						return err
					}
					return errors.Join(sum(ctx, &all[r], child), child.Destroy(ctx))
				})
			}
			must(t, g.Wait())
			each(t, all[:2], func(r *rank) error {
				parent := parents[slices.IndexFunc(all, func(a rank) bool { return a.gpu == r.gpu })]
				return errors.Join(sum(ctx, r, parent), parent.Destroy(ctx))
			})
		})
	}
}
