package host

import (
	"fmt"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Op is one operation as one rank calls it.
type Op struct {
	Call lifecycle.Call

	// Count is NCCL's, in elements: those of Send for AllReduce, Broadcast, Reduce, AllGather, Gather, Send and Recv;
	// those of Recv for ReduceScatter and Scatter; per pair of ranks for AllToAll.
	Count     int
	DataType  kernels.DataType
	Reduction kernels.Reduction // of AllReduce, Reduce and ReduceScatter
	Scale     float64           // of PreMulSum: what Send is multiplied with
	Peer      int               // the root, or the peer of Send and Recv; -1 if none

	// Send and Recv are the caller's memory. The engine reads and writes them until the operation has returned, with
	// or without an error. A buffer that this rank has no part in (Recv of a Reduce, on a rank that is not the root)
	// may be nil. They may be the same memory as algo.Plan says.
	Send, Recv []byte

	Algorithm algo.Algorithm // algo.Auto: what the tuning says
}

// reduces says whether the call combines elements.
func reduces(c lifecycle.Call) bool {
	return c == lifecycle.CallAllReduce || c == lifecycle.CallReduce || c == lifecycle.CallReduceScatter
}

// rooted says whether one rank has a part of its own in the call.
func rooted(c lifecycle.Call) bool {
	return c == lifecycle.CallBroadcast || c == lifecycle.CallReduce || c == lifecycle.CallGather || c == lifecycle.CallScatter
}

func pointToPoint(c lifecycle.Call) bool {
	return c == lifecycle.CallSend || c == lifecycle.CallRecv
}

// needs says how many bytes of each buffer rank uses.
func needs(call lifecycle.Call, rank, size, root, bytes int) (send, recv int) {
	isRoot := rank == root
	only := func(yes bool, n int) int {
		if yes {
			return n
		}
		return 0
	}
	switch call { //nolint:exhaustive // all others have no buffers
	case lifecycle.CallAllReduce:
		return bytes, bytes
	case lifecycle.CallBroadcast:
		return only(isRoot, bytes), bytes
	case lifecycle.CallReduce:
		return bytes, only(isRoot, bytes)
	case lifecycle.CallAllGather:
		return bytes, bytes * size
	case lifecycle.CallReduceScatter:
		return bytes * size, bytes
	case lifecycle.CallAllToAll:
		return bytes * size, bytes * size
	case lifecycle.CallGather:
		return bytes, only(isRoot, bytes*size)
	case lifecycle.CallScatter:
		return only(isRoot, bytes*size), bytes
	case lifecycle.CallSend:
		return bytes, 0
	case lifecycle.CallRecv:
		return 0, bytes
	}
	return 0, 0
}

// refuse is the error of an operation that makes no sense. Nothing was sent.
func (e *Engine) refuse(call lifecycle.Call, format string, args ...any) error {
	return &lifecycle.UsageError{
		Call: call, Code: lifecycle.CodeInvalidArgument, State: lifecycle.StateReady,
		Comm: e.cfg.Comm, Name: e.cfg.Name, Rank: e.rank, Detail: fmt.Sprintf(format, args...),
	}
}

// check refuses what the engine cannot run: numbers out of range, and buffers that are too short.
func (e *Engine) check(op *Op) error {
	switch {
	case !op.DataType.Valid():
		return e.refuse(op.Call, "data type %d is unknown", op.DataType)
	case op.Count < 0:
		return e.refuse(op.Call, "count is %d, must not be negative", op.Count)
	case op.Count > maxBytes/e.size/op.DataType.Size():
		return e.refuse(op.Call, "count is %d, more than memory can hold", op.Count)
	case reduces(op.Call) && !op.Reduction.Valid():
		return e.refuse(op.Call, "reduction %d is unknown", op.Reduction)
	case (rooted(op.Call) || pointToPoint(op.Call)) && (op.Peer < 0 || op.Peer >= e.size):
		return e.refuse(op.Call, "root or peer is %d, must be 0 to %d", op.Peer, e.size-1)
	}
	send, recv := needs(op.Call, e.rank, e.size, op.Peer, op.Count*op.DataType.Size())
	return e.checkBuffers(op, send, recv)
}

func (e *Engine) checkBuffers(op *Op, send, recv int) error {
	if len(op.Send) < send {
		return e.refuse(op.Call, "send has %d bytes, needs %d", len(op.Send), send)
	}
	if len(op.Recv) < recv {
		return e.refuse(op.Call, "recv has %d bytes, needs %d", len(op.Recv), recv)
	}
	return nil
}

// maxBytes bounds all sizes so that they can be added and multiplied by a rank without overflow.
const maxBytes = 1 << 56
