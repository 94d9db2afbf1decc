//go:build linux && cgo

package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
	"github.com/carillon-rt/carillon/runtime/nccl"
)

// A GPU is a device for the ranks of communicators. It implements engine.DeviceKind and is safe for concurrent use.
type GPU struct {
	context *cuda.Context
	library func() (*nccl.Library, error)
}

// New makes a GPU of a device's context, which the caller still owns, and of the library at path, as for nccl.Open. The
// library is opened for the first communicator.
func New(c *cuda.Context, path string) *GPU {
	return &GPU{c, sync.OnceValues(func() (*nccl.Library, error) { return nccl.Open(path) })}
}

// Name is what the tape calls engines of this package.
func (g *GPU) Name() string { return name }

const name = "nccl"

// greeting is what ranks tell each other first.
type greeting struct {
	Error   string // why the rank can't use NCCL
	Version string
	ID      []byte // only from rank 0
}

// Open implements engine.DeviceKind. All ranks get an error if one of them has no NCCL, or another version.
func (g *GPU) Open(ctx context.Context, c *engine.Comm, gather func([]byte) ([][]byte, error), failed func(error)) (
	engine.Device, error,
) {
	d := &device{comm: c, rank: c.Rank, size: c.Size, aborted: make(chan struct{})}
	if err := d.open(ctx, g, gather, failed); err != nil {
		if d.nccl != nil {
			d.abort()
		}
		d.Free()
		return nil, fmt.Errorf("a communicator on NCCL: %w", err)
	}
	d.Start(d, 0)
	return d, nil
}

func (d *device) open(ctx context.Context, g *GPU, gather func([]byte) ([][]byte, error), failed func(error)) error {
	library, id, err := d.meet(g, gather)
	if err != nil {
		return err
	}
	// From here on, a rank that fails tells the others by Stop: they are not in gather.
	if d.Queue, err = queue.New(d.comm, g.context, failed); err != nil {
		return d.comm.Stop(systemError("prepare the GPU", err))
	}
	err = g.context.Within(func() (err error) {
		d.nccl, err = library.Init(id, d.rank, d.size)
		return err
	})
	if err == nil {
		err = d.settle(ctx)
	}
	if err != nil {
		return d.comm.Stop(err)
	}
	return nil
}

// meet passes the unique id to all ranks, unless one of them can't continue.
func (d *device) meet(g *GPU, gather func([]byte) ([][]byte, error)) (*nccl.Library, nccl.ID, error) {
	var mine greeting
	library, err := g.library()
	if err == nil {
		mine.Version, err = library.Version()
	}
	if err == nil && d.rank == 0 {
		var id nccl.ID
		id, err = library.NewID()
		mine.ID = id[:]
	}
	if err != nil {
		mine.Error = err.Error()
	}
	encoded, _ := json.Marshal(mine) // it contains nothing that can't be encoded
	all, gathered := gather(encoded)
	if gathered != nil {
		return nil, nccl.ID{}, gathered
	}
	var first greeting
	for r, text := range all {
		var other greeting
		err := json.Unmarshal(text, &other)
		switch {
		case err != nil:
			err = fmt.Errorf("rank %d says nothing of NCCL: %w", r, err)
		case other.Error != "":
			err = fmt.Errorf("rank %d: %s", r, other.Error)
		case r == 0:
			first = other
		case other.Version != first.Version:
			err = fmt.Errorf("rank 0 has NCCL %s, and rank %d %s: use the same on all ranks", first.Version, r,
				other.Version)
		}
		if err != nil {
			_, _ = gather(nil) // no rank leaves before all have heard the error
			return nil, nccl.ID{}, err
		}
	}
	if len(first.ID) != len(nccl.ID{}) {
		return nil, nccl.ID{}, fmt.Errorf("rank 0 tells a unique id of %d bytes", len(first.ID))
	}
	return library, nccl.ID(first.ID), nil
}

// settle waits until NCCL has finished the last call to it.
func (d *device) settle(ctx context.Context) error {
	for p := (queue.Pause{}); ; p.Wait() {
		err := d.use((*nccl.Comm).Ready)
		if !errors.Is(err, nccl.ErrInProgress) {
			return err
		}
		if err := d.comm.Stopped(); err != nil {
			return err
		}
		if lost := d.comm.FirstLost(); lost != nil {
			return lost
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func systemError(op string, err error) error {
	return &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: op, Err: err}
}
