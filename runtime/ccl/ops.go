package ccl

import (
	"context"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// In all collectives and point-to-point calls, n is comm.Size() and a buffer's length is in elements. The caller owns
// the buffers and must not touch them until the call returns (for a call in a group: until the group ends).
//
// A UsageError about an argument only concerns this rank: nothing was sent, and the communicator is unchanged. The
// other ranks wait until this rank makes its call correctly, until it leaves the communicator, or until their own
// contexts end.
//
// Sources of the semantics: NCCL's collective and point-to-point API, and MPI's for Gather, Scatter and AllToAll.

// AllReduce combines send of all ranks element by element, and leaves the same result, bit by bit, in recv on all of
// them. len(send) == len(recv), the same on all ranks; send and recv may be the same slice (in place), and must not
// overlap otherwise.
func AllReduce[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, opts ...OpOption,
) error {
	return comm.call(ctx, newOp(lifecycle.CallAllReduce, send, recv, op, -1, opts))
}

// IAllReduce is AllReduce in the background. It takes its place in the order of the communicator's calls when it is
// called.
func IAllReduce[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, opts ...OpOption,
) *Work {
	return comm.launch(ctx, newOp(lifecycle.CallAllReduce, send, recv, op, -1, opts))
}

// Broadcast copies send of rank root to recv of all ranks. len(send) == len(recv) on the root, where they may be the
// same slice; send is ignored, and may be nil, on the others.
func Broadcast[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, root int, opts ...OpOption) error {
	return comm.call(ctx, newOp(lifecycle.CallBroadcast, send, recv, Sum, root, opts))
}

// IBroadcast is Broadcast in the background.
func IBroadcast[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, root int, opts ...OpOption,
) *Work {
	return comm.launch(ctx, newOp(lifecycle.CallBroadcast, send, recv, Sum, root, opts))
}

// Reduce combines send of all ranks element by element and leaves the result in recv of rank root, where len(send) ==
// len(recv), and both may be the same slice. recv is ignored, and may be nil, on the others.
func Reduce[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, root int, opts ...OpOption,
) error {
	return comm.call(ctx, newOp(lifecycle.CallReduce, send, recv, op, root, opts))
}

// IReduce is Reduce in the background.
func IReduce[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, root int, opts ...OpOption,
) *Work {
	return comm.launch(ctx, newOp(lifecycle.CallReduce, send, recv, op, root, opts))
}

// AllGather puts send of rank i at recv[i*len(send):] on all ranks. len(recv) == n*len(send). In place: send is that
// part of recv.
func AllGather[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, opts ...OpOption) error {
	return comm.call(ctx, newOp(lifecycle.CallAllGather, send, recv, Sum, -1, opts))
}

// IAllGather is AllGather in the background.
func IAllGather[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, opts ...OpOption) *Work {
	return comm.launch(ctx, newOp(lifecycle.CallAllGather, send, recv, Sum, -1, opts))
}

// ReduceScatter combines send of all ranks and leaves the i-th of n equal parts of the result in recv of rank i.
// len(send) == n*len(recv). In place: recv is that part of send.
func ReduceScatter[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, opts ...OpOption,
) error {
	return comm.call(ctx, newOp(lifecycle.CallReduceScatter, send, recv, op, -1, opts))
}

// IReduceScatter is ReduceScatter in the background.
func IReduceScatter[T kernels.Element](
	ctx context.Context, comm *Comm, send, recv []T, op Reduction, opts ...OpOption,
) *Work {
	return comm.launch(ctx, newOp(lifecycle.CallReduceScatter, send, recv, op, -1, opts))
}

// AllToAll sends the j-th of n equal parts of send to rank j, and receives rank j's part for this rank as the j-th part
// of recv. len(send) == len(recv), divisible by n. The slices must not overlap.
func AllToAll[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, opts ...OpOption) error {
	return comm.call(ctx, newOp(lifecycle.CallAllToAll, send, recv, Sum, -1, opts))
}

// Gather puts send of rank i at recv[i*len(send):] on rank root, where len(recv) == n*len(send). recv is ignored, and
// may be nil, on the others.
func Gather[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, root int, opts ...OpOption) error {
	return comm.call(ctx, newOp(lifecycle.CallGather, send, recv, Sum, root, opts))
}

// Scatter sends the i-th of n equal parts of send of rank root to recv of rank i. len(send) == n*len(recv) on the root;
// send is ignored, and may be nil, on the others.
func Scatter[T kernels.Element](ctx context.Context, comm *Comm, send, recv []T, root int, opts ...OpOption) error {
	return comm.call(ctx, newOp(lifecycle.CallScatter, send, recv, Sum, root, opts))
}

// Send sends data to rank peer, which must call Recv with the same number of elements of the same type. It returns when
// the peer has received it. Sends and receives that need each other at the same time (an exchange) belong into SendRecv
// or a Group; two ranks that both send first get an error, not a hang.
func Send[T kernels.Element](ctx context.Context, comm *Comm, data []T, peer int) error {
	return comm.call(ctx, newOp(lifecycle.CallSend, data, nil, Sum, peer, nil))
}

// Recv receives len(data) elements from rank peer.
func Recv[T kernels.Element](ctx context.Context, comm *Comm, data []T, peer int) error {
	return comm.call(ctx, newOp(lifecycle.CallRecv, nil, data, Sum, peer, nil))
}

// SendRecv sends send to rank dst while it receives recv from rank src; either may be this rank itself (then both must
// be).
func SendRecv[T kernels.Element](ctx context.Context, comm *Comm, send []T, dst int, recv []T, src int) error {
	return comm.run(ctx, lifecycle.CallSendRecv, []engine.Op{
		newOp(lifecycle.CallSend, send, nil, Sum, dst, nil), newOp(lifecycle.CallRecv, nil, recv, Sum, src, nil),
	})
}

// Barrier blocks until all ranks have called it.
func Barrier(ctx context.Context, comm *Comm) error {
	return comm.call(ctx, newOp[uint8](lifecycle.CallBarrier, nil, nil, Sum, -1, nil))
}

func newOp[T kernels.Element](call lifecycle.Call, send, recv []T, red Reduction, peer int, opts []OpOption) engine.Op {
	op := engine.Op{
		Call: call, DataType: kernels.TypeOf[T](), Reduction: red, Peer: peer,
		Send: kernels.Bytes(send), Recv: kernels.Bytes(recv),
	}
	for _, o := range opts {
		op.Scale, op.Scaled = o.scale, true
	}
	return op
}
