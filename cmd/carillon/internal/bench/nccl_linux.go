//go:build linux && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
	"github.com/carillon-rt/carillon/runtime/nccl"
)

// ncclError is a failure of NCCL, as opposed to one of Carillon.
type ncclError struct{ error }

func (e *ncclError) Unwrap() error { return e.error }

func theirs(err error) error {
	if err == nil {
		return nil
	}
	return &ncclError{err}
}

// ncclComms are a rank's communicators of NCCL. Graphs have one of their own: in NCCL 2.28.9, a captured call slows
// down later eager calls on its communicator, even after the graph is gone, and whatever NCCL_GRAPH_MIXING_SUPPORT is.
type ncclComms [2]*nccl.Comm // by eager and graph

// each calls do for every communicator that exists.
func (c *ncclComms) each(do func(*nccl.Comm) error) (err error) {
	for _, comm := range c {
		if comm != nil {
			err = errors.Join(err, do(comm))
		}
	}
	return err
}

// openNCCL makes NCCL's communicators over the ranks. NCCL's functions are called directly, by each rank on a thread of
// its own.
func (w *world) openNCCL(ctx context.Context) error {
	if ranks, gpus := len(w.ranks), len(w.contexts); ranks > gpus {
		return fmt.Errorf("%d ranks share %d GPUs, and NCCL needs a GPU for each rank", ranks, gpus)
	}
	const blocking = "NCCL_COMM_BLOCKING" // as in most programs; otherwise NCCL makes each call on a thread of its own
	if os.Getenv(blocking) == "" {
		if err := os.Setenv(blocking, "1"); err != nil {
			return err
		}
	}
	library, err := nccl.Open("")
	if err != nil {
		return err
	}
	for _, r := range w.ranks {
		r.nccl = &ncclComms{}
	}
	for _, which := range []int{eager, graph} {
		if err := w.initNCCL(ctx, library, which); err != nil {
			return errors.Join(err, w.endNCCL(ctx, false))
		}
	}
	return nil
}

// initNCCL makes one of the communicators.
func (w *world) initNCCL(ctx context.Context, library *nccl.Library, which int) error {
	id, err := library.NewID()
	if err != nil {
		return err
	}
	g, now := errgroup.WithContext(ctx)
	for _, r := range w.ranks {
		g.Go(func() error {
			err := r.context.Within(func() (err error) {
				r.nccl[which], err = library.Init(id, r.rank, len(w.ranks))
				return err
			})
			if err != nil {
				return err
			}
			return settle(now, r.nccl[which])
		})
	}
	return g.Wait()
}

// settle waits until the last call on a communicator has completed.
func settle(ctx context.Context, c *nccl.Comm) error {
	for p := (queue.Pause{}); ; p.Wait() {
		if err := c.Ready(); !errors.Is(err, nccl.ErrInProgress) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// endNCCL ends NCCL's communicators, if there are any. Unless well is set, it aborts work that is still on streams.
func (w *world) endNCCL(ctx context.Context, well bool) error {
	var g errgroup.Group
	for _, r := range w.ranks {
		if r.nccl == nil {
			continue
		}
		g.Go(func() error {
			defer func() { r.nccl = nil }()
			return r.nccl.each(func(c *nccl.Comm) error {
				if !well || ctx.Err() != nil {
					return c.Abort()
				}
				return errors.Join(c.Finalize(), settle(ctx, c), c.Destroy())
			})
		})
	}
	return g.Wait()
}

// batchNCCL returns a function that enqueues a batch of NCCL's collective.
func (r *onGPU) batchNCCL(comm *nccl.Comm, c Collective, bytes, n int) func() error {
	call := map[Collective]nccl.Call{
		AllReduce: nccl.AllReduce, AllGather: nccl.AllGather, ReduceScatter: nccl.ReduceScatter,
	}[c]
	send, recv := c.elements(bytes, r.comm.Size())
	op := nccl.Op{
		Call: call, Type: int(kernels.Float32), Reduction: int(ccl.Sum), Count: min(send, recv),
		Send: uint64(r.send.Pointer()), Recv: uint64(r.recv.Pointer()),
	}
	stream := r.stream.Handle()
	put := repeat(n, func() error { return comm.Run(stream, op) })
	return func() error { return theirs(r.context.Within(put)) }
}

// waitNCCL waits until the stream is idle, or NCCL has failed.
func (r *onGPU) waitNCCL(ctx context.Context) error {
	for p := (queue.Pause{}); ; p.Wait() {
		ended, err := r.end.Query(), r.nccl.each((*nccl.Comm).Ready) // in this order, as a failed operation also ends
		switch {
		case err != nil && !errors.Is(err, nccl.ErrInProgress):
			return theirs(err)
		case !errors.Is(ended, cuda.ErrNotReady):
			return theirs(ended)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}
