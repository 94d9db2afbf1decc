package ccl

import (
	"context"
	"errors"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
)

// Calls whose names end with On do the same on GPU memory: they put the operation on a stream and return, and ctx
// bounds only the wait for their turn. The communicator must be made WithDevice; the stream and the buffers must belong
// to that GPU. The caller must not touch the buffers, nor end the stream, until the stream has completed the operation.
// Errors of operations on streams are returned by the next call, AsyncError or Wait; the operations are then not done.
// The operations of a communicator run in the order of their calls, on all streams, except for those that are captured
// into graphs. In a Group, neighboring sends and receives run concurrently, up to 64 of them.
//
// Until the stream has completed an operation, other ranks may read and write its buffers, even after the communicator
// has failed or was aborted; Wait returns its error before that. Streams of such a communicator continue within a
// millisecond or, if other ranks are using the buffers, when these are done, but after half a second at the latest, so
// that a dead rank blocks no stream. A GPU that is slower than that may still write.
//
// Kernels wait for kernels of other ranks. So operations of different communicators that run at the same time must fit
// on each GPU together. Three large ones don't fit on an H100: put them on one stream, in the same order on all ranks.
//
// A communicator with captured calls must not be destroyed before the graphs. Nor must the buffers of these calls be
// freed before, even if the same addresses are allocated again: other ranks have mapped the former memory.

// AllReduceOn is AllReduce on device memory.
func AllReduceOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send, recv cuda.Buffer[T],
	op Reduction, opts ...OpOption,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallAllReduce, send, recv, op, -1, opts))
}

// BroadcastOn is Broadcast on device memory.
func BroadcastOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send, recv cuda.Buffer[T],
	root int,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallBroadcast, send, recv, Sum, root, nil))
}

// ReduceOn is Reduce on device memory.
func ReduceOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send, recv cuda.Buffer[T],
	op Reduction, root int, opts ...OpOption,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallReduce, send, recv, op, root, opts))
}

// AllGatherOn is AllGather on device memory.
func AllGatherOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream,
	send, recv cuda.Buffer[T],
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallAllGather, send, recv, Sum, -1, nil))
}

// ReduceScatterOn is ReduceScatter on device memory.
func ReduceScatterOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream,
	send, recv cuda.Buffer[T], op Reduction, opts ...OpOption,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallReduceScatter, send, recv, op, -1, opts))
}

// AllToAllOn is AllToAll on device memory.
func AllToAllOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream,
	send, recv cuda.Buffer[T],
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallAllToAll, send, recv, Sum, -1, nil))
}

// GatherOn is Gather on device memory.
func GatherOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send, recv cuda.Buffer[T],
	root int,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallGather, send, recv, Sum, root, nil))
}

// ScatterOn is Scatter on device memory.
func ScatterOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send, recv cuda.Buffer[T],
	root int,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallScatter, send, recv, Sum, root, nil))
}

// SendOn is Send on device memory. The stream continues when the data may be overwritten, which may be before the peer
// has received it.
func SendOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, data cuda.Buffer[T],
	peer int,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallSend, data, cuda.Buffer[T]{}, Sum, peer, nil))
}

// RecvOn is Recv on device memory.
func RecvOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, data cuda.Buffer[T],
	peer int,
) error {
	return comm.callOn(ctx, stream, onDevice(lifecycle.CallRecv, cuda.Buffer[T]{}, data, Sum, peer, nil))
}

// SendRecvOn is SendRecv on device memory.
func SendRecvOn[T kernels.Element](ctx context.Context, comm *Comm, stream *cuda.Stream, send cuda.Buffer[T], dst int,
	recv cuda.Buffer[T], src int,
) error {
	return comm.runOn(ctx, stream, lifecycle.CallSendRecv, []engine.Op{
		onDevice(lifecycle.CallSend, send, cuda.Buffer[T]{}, Sum, dst, nil),
		onDevice(lifecycle.CallRecv, cuda.Buffer[T]{}, recv, Sum, src, nil),
	})
}

// BarrierOn makes the stream wait until the streams of all ranks have reached the barrier.
func BarrierOn(ctx context.Context, comm *Comm, stream *cuda.Stream) error {
	return comm.callOn(ctx, stream, newOp[uint8](lifecycle.CallBarrier, nil, nil, Sum, -1, nil))
}

func onDevice[T kernels.Element](call lifecycle.Call, send, recv cuda.Buffer[T], red Reduction, peer int,
	opts []OpOption,
) engine.Op {
	op := newOp[T](call, nil, nil, red, peer, opts)
	op.Send, op.Recv = send.Addresses(), recv.Addresses()
	return op
}

func (c *Comm) callOn(ctx context.Context, stream *cuda.Stream, op engine.Op) error {
	return c.runOn(ctx, stream, op.Call, []engine.Op{op})
}

func (c *Comm) runOn(ctx context.Context, stream *cuda.Stream, call lifecycle.Call, ops []engine.Op) error {
	if stream == nil {
		if err := c.check(call); err != nil {
			return err
		}
		return c.refused(ctx, call, c.usage(call, lifecycle.CodeInvalidArgument, "the stream is nil"))
	}
	for i := range ops {
		ops[i].Stream = stream
	}
	return c.run(ctx, call, ops)
}

// kindName returns the kind of the rank's device; empty for none.
func (c *core) kindName() string {
	if c.kind == nil {
		return ""
	}
	return c.kind.Name()
}

// sameDevices rejects a communicator with only some ranks on GPUs, or with different kinds of devices, as engines open
// together. All ranks get the same error.
func (c *core) sameDevices(ranks []meet.Introduction) error {
	for r := range ranks {
		if ranks[r].Device != ranks[0].Device {
			return c.usage(c.life.Info().Call, lifecycle.CodeInvalidArgument,
				"rank 0 is on a device of kind %q and rank %d of kind %q, where the empty kind is none: make the "+
					"communicator with ccl.WithDevice on all ranks, and the same engine, or on none",
				ranks[0].Device, r, ranks[r].Device)
		}
	}
	return nil
}

// openDevice makes the engine for device memory, together with the other ranks.
func (c *core) openDevice(ctx context.Context) (err error) {
	if c.kind == nil {
		return nil
	}
	call := c.life.Info().Call
	gather := func(mine []byte) ([][]byte, error) {
		return c.gather(ctx, call, 0, mine) // before the first collective with a number
	}
	failed := func(err error) { _ = c.failOnDevice(err) }
	c.device, err = c.kind.Open(ctx, c.comm, gather, failed)
	if err != nil && lifecycle.CodeOf(err) == lifecycle.CodeSystem {
		return &SystemError{Code: lifecycle.CodeSystem, Op: "make " + c.String(), Err: err}
	}
	return err
}

// devices returns the device kind for communicators derived from this one.
func (c *core) devices() []engine.DeviceKind {
	if c.kind == nil {
		return nil
	}
	return []engine.DeviceKind{c.kind}
}

// checkDevice rejects an operation on device memory if the communicator, or the memory, doesn't allow it.
func (c *core) checkDevice(op engine.Op) error {
	switch {
	case op.Stream == nil:
		return nil
	case c.kind == nil:
		return c.usage(op.Call, lifecycle.CodeInvalidUsage,
			"the communicator is on no GPU: make it with ccl.WithDevice, on all ranks")
	}
	if err := c.device.Check(op); err != nil {
		return c.usage(op.Call, lifecycle.CodeInvalidArgument, "%v", err)
	}
	return nil
}

// enqueue puts operations on a stream, and records their last kernel on the tape.
func (c *core) enqueue(call lifecycle.Call, number, launched uint64, ops []engine.Op) error {
	kernel, err := c.device.Enqueue(call, number, ops)
	if err == nil && kernel != 0 {
		c.tape.Launched(launched, kernel)
	}
	return err
}

// waitForDevice waits until the operations on streams are done. If ctx ended, or the communicator failed, its error
// names the operation that is not done.
func (c *core) waitForDevice(ctx context.Context) error {
	if c.device == nil {
		return nil
	}
	err := c.device.Wait(ctx)
	switch {
	case err == nil:
		return nil
	case err != context.Cause(ctx): //nolint:errorlint // Wait's own
		return c.failOnDevice(err)
	}
	call, number, peer, ok := c.device.Current()
	if !ok {
		return err
	}
	late := c.comm.PeerError(lifecycle.CodeOf(ctx.Err()), peer, "")
	late.Call, late.Seq, late.Err = call, number, err
	return late
}

// failOnDevice is fail for an error of an operation on the device.
func (c *core) failOnDevice(err error) error {
	call, number := lifecycle.CallNone, c.collectives.Load()
	if peer, ok := errors.AsType[*PeerError](err); ok && peer.Seq > 0 {
		call, number = peer.Call, peer.Seq
	}
	return c.fail(call, number, err)
}
