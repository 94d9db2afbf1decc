//go:build linux && cgo

package nccl

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
	"github.com/carillon-rt/carillon/runtime/nccl"
)

// device is the engine of one rank.
type device struct {
	*queue.Queue
	comm       *engine.Comm
	rank, size int
	ops        []nccl.Op // of the next call

	mu      sync.Mutex
	nccl    *nccl.Comm    // nil before it is made, and once it is aborted or destroyed
	aborted chan struct{} // closed when ncclCommAbort has returned

	remote atomic.Pointer[time.Time] // when NCCL first reported an error on another rank
}

// remoteTime is how long an error on another rank is held back for the connections between the ranks to tell which rank
// it is; NCCL doesn't tell.
const remoteTime = time.Second

// errEnded is returned by use when there is no NCCL communicator.
var errEnded = errors.New("NCCL's communicator was aborted")

// use calls NCCL, unless the communicator was aborted.
func (d *device) use(do func(*nccl.Comm) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nccl == nil {
		return errEnded
	}
	return do(d.nccl)
}

// Name implements engine.Device.
func (d *device) Name() string { return name }

// Algorithm implements engine.Device. NCCL doesn't tell which algorithm it takes.
func (d *device) Algorithm(*engine.Op) algo.Algorithm { return algo.Auto }

// Put implements queue.Backend. The streams of further operations wait for the first one's stream, and that one for
// them.
func (d *device) Put(call lifecycle.Call, seq uint64, ops []engine.Op, captured bool) (err error) {
	stream := ops[0].Stream
	d.ops = d.ops[:0]
	for i := range ops {
		if err := d.After(stream, ops[i].Stream); err != nil {
			return err
		}
		d.add(&ops[i])
	}
	if reduction := &d.ops[0].Reduction; ops[0].Scaled {
		if *reduction, err = d.scaled(&ops[0]); err != nil {
			return err
		}
		defer d.use(func(c *nccl.Comm) error { //nolint:errcheck // one that stays costs nothing but a place in a table
			return c.EndReduction(*reduction)
		})
	}
	err = d.use(func(c *nccl.Comm) error { return c.Run(stream.Handle(), d.ops...) })
	if err == nil {
		err = d.settle(context.Background())
	}
	for i := range ops {
		if err == nil {
			err = d.After(ops[i].Stream, stream)
		}
	}
	switch {
	case err != nil:
		return err
	case captured:
		d.comm.Tape.Captured()
		return nil
	default:
		number := d.Add(call, seq, ops[0].Count*ops[0].DataType.Size())
		return stream.WriteValue(d.Page.Words(), number)
	}
}

// calls maps operations to NCCL operations of the same name.
var calls = map[lifecycle.Call]nccl.Call{
	lifecycle.CallAllReduce: nccl.AllReduce, lifecycle.CallBroadcast: nccl.Broadcast, lifecycle.CallReduce: nccl.Reduce,
	lifecycle.CallAllGather: nccl.AllGather, lifecycle.CallReduceScatter: nccl.ReduceScatter,
	lifecycle.CallSend: nccl.Send, lifecycle.CallRecv: nccl.Recv,
}

// add appends the NCCL operations for one of ours. Operations that not every NCCL version has become messages to and
// from each rank.
func (d *device) add(op *engine.Op) {
	o := nccl.Op{
		Call: calls[op.Call], Type: int(op.DataType), Reduction: int(op.Reduction), Peer: op.Peer, Count: op.Count,
		Send: uint64(queue.Address(op.Send)), Recv: uint64(queue.Address(op.Recv)),
	}
	switch op.Call {
	case lifecycle.CallBarrier: // the sum of a byte that stays 0: on the page, where only our own kernels write
		zero := uint64(d.Page.Words()) + 8
		d.ops = append(d.ops, nccl.Op{Call: nccl.AllReduce, Send: zero, Recv: zero, Count: 1})
	case lifecycle.CallAllToAll, lifecycle.CallGather, lifecycle.CallScatter:
		stride := uint64(op.Count * op.DataType.Size())
		message := func(call nccl.Call, peer int, at uint64) {
			m := o
			m.Call, m.Peer, m.Send, m.Recv = call, peer, m.Send+at, m.Recv+at
			d.ops = append(d.ops, m)
		}
		for r := range d.size {
			part := uint64(r) * stride
			switch toRoot, fromRoot := r == op.Peer, d.rank == op.Peer; op.Call {
			case lifecycle.CallGather:
				if toRoot {
					message(nccl.Send, r, 0)
				}
				if fromRoot {
					message(nccl.Recv, r, part)
				}
			case lifecycle.CallScatter:
				if fromRoot {
					message(nccl.Send, r, part)
				}
				if toRoot {
					message(nccl.Recv, r, 0)
				}
			default:
				message(nccl.Send, r, part)
				message(nccl.Recv, r, part)
			}
		}
	default:
		d.ops = append(d.ops, o)
	}
}

// scaled makes the reduction of a PreMulSum. The factor is rounded to the data type as in kernels.Scale.
func (d *device) scaled(op *engine.Op) (reduction int, err error) {
	one := [...]uint64{
		kernels.Int8: 1, kernels.Uint8: 1, kernels.Int32: 1, kernels.Uint32: 1, kernels.Int64: 1, kernels.Uint64: 1,
		kernels.Float16: 0x3c00, kernels.Float32: 0x3f800000, kernels.Float64: 0x3ff0000000000000,
		kernels.BFloat16: 0x3f80, kernels.Float8E4M3: 0x38, kernels.Float8E5M2: 0x3c,
	}[op.DataType]
	scalar := binary.NativeEndian.AppendUint64(nil, one)
	of := scalar[:op.DataType.Size()]
	kernels.Scale(of, of, op.DataType, op.Scale)
	err = d.use(func(c *nccl.Comm) error {
		reduction, err = c.PreMulSum(binary.NativeEndian.Uint64(scalar), int(op.DataType))
		return err
	})
	return reduction, err
}

// Trouble implements queue.Backend. It returns the error that NCCL has met since.
func (d *device) Trouble() error {
	switch err := d.use((*nccl.Comm).Ready); {
	case err == nil || errors.Is(err, nccl.ErrInProgress) || errors.Is(err, errEnded):
		return nil
	case errors.Is(err, nccl.ErrRemote):
		if d.remote.CompareAndSwap(nil, new(time.Now())) || time.Since(*d.remote.Load()) < remoteTime {
			return nil
		}
		p := d.comm.PeerError(lifecycle.CodeUnreachable, -1, err.Error())
		p.Call, p.Seq, _, _ = d.Current()
		return p
	default:
		return systemError("run what was put on the GPU", err)
	}
}

// Leave implements queue.Backend.
func (d *device) Leave() {
	d.mu.Lock()
	c := d.nccl
	d.nccl = nil
	d.mu.Unlock()
	if c == nil {
		return
	}
	go func() { // abort waits for this goroutine: c.Abort blocks while there are graphs
		defer close(d.aborted)
		_ = c.Abort() // no caller is left that could be told
	}()
}

// Close implements engine.Device. If it can't be known whether everything is done, or NCCL doesn't end, it aborts the
// NCCL communicator.
func (d *device) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), queue.LeaveTime)
	defer cancel()
	if _, unused := d.Left(); unused && d.use((*nccl.Comm).Finalize) == nil && d.settle(ctx) == nil {
		_ = d.use(func(c *nccl.Comm) error {
			d.nccl = nil
			return c.Destroy()
		})
	} else {
		d.abort()
	}
	d.Free()
}

// abort ends the NCCL communicator, which must have been made.
func (d *device) abort() {
	d.Leave()
	select {
	case <-d.aborted:
	case <-time.After(queue.LeaveTime): // it ends once graphs are destroyed later
	}
}
