package host

import (
	"fmt"
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Op is one operation as one rank calls it. Check completes it.
type Op struct {
	Call      lifecycle.Call
	DataType  kernels.DataType
	Reduction kernels.Reduction // of AllReduce, Reduce and ReduceScatter
	Algorithm algo.Algorithm    // instead of the tuning's, if Call has it; the same on all ranks
	Scaled    bool              // Scale was given
	Scale     float64           // of PreMulSum: what Send is multiplied with; ranks may have different ones
	Peer      int               // the root, or the peer of Send and Recv; -1 if none

	// Send and Recv are the caller's memory. The engine reads and writes them until the operation has returned, with
	// or without an error. They may be the same memory as algo.Plan says.
	Send, Recv []byte

	// Count is NCCL's, in elements; see algo.Request.
	Count int
}

// units is how many times Count elements a rank has in each buffer.
func units(call lifecycle.Call, size int, isRoot bool) (send, recv int) {
	root := 0
	if isRoot {
		root = 1
	}
	switch call { //nolint:exhaustive // all others have no buffers
	case lifecycle.CallAllReduce:
		return 1, 1
	case lifecycle.CallBroadcast:
		return root, 1
	case lifecycle.CallReduce:
		return 1, root
	case lifecycle.CallAllGather:
		return 1, size
	case lifecycle.CallReduceScatter:
		return size, 1
	case lifecycle.CallAllToAll:
		return size, size
	case lifecycle.CallGather:
		return 1, size * root
	case lifecycle.CallScatter:
		return size * root, 1
	case lifecycle.CallSend:
		return 1, 0
	case lifecycle.CallRecv:
		return 0, 1
	}
	return 0, 0
}

// Check completes an operation that has its buffers, with Count, and without a buffer that this rank has no part in. Or
// it is a *lifecycle.UsageError that says which value is wrong and what is allowed. Nothing else checks them: what
// Plan, Run and RunGroup are given has passed. It may be called by any goroutine.
func (e *Engine) Check(op *Op) error {
	es := op.DataType.Size()
	send, recv := len(op.Send)/es, len(op.Recv)/es
	inSend, inRecv := units(op.Call, e.size, op.Peer == e.rank)
	part := "peer"
	if op.Call.IsRooted() {
		part = "root"
	}
	switch {
	case !op.Reduction.Valid():
		return e.refuse(op.Call, "reduction %d is unknown: use Sum, Prod, Max, Min, Avg or PreMulSum", op.Reduction)
	case op.Scaled != (op.Reduction == kernels.PreMulSum):
		return e.refuse(op.Call, "a Scale belongs to PreMulSum, and PreMulSum needs one: "+
			"pass Scale(factor) with PreMulSum only; got reduction %s", op.Reduction)
	case (op.Call.IsRooted() || !op.Call.IsCollective()) && (op.Peer < 0 || op.Peer >= e.size):
		return e.refuse(op.Call, "%s %d is not a rank of the communicator: ranks are 0 to %d", part, op.Peer, e.size-1)
	case op.Call == lifecycle.CallAllToAll && send%e.size != 0:
		return e.refuse(op.Call, "send has %d elements, which %d ranks can't share equally: "+
			"its length must be a multiple of %d", send, e.size, e.size)
	}
	switch op.Call {
	case lifecycle.CallBroadcast, lifecycle.CallReduceScatter, lifecycle.CallScatter, lifecycle.CallRecv:
		op.Count = recv
	case lifecycle.CallAllToAll:
		op.Count = send / e.size
	default: // of a barrier none
		op.Count = send
	}
	switch {
	case inSend == 0:
		op.Send = nil
	case send != inSend*op.Count:
		return e.refuse(op.Call, "send has %d elements and recv %d: send must have %d", send, recv, inSend*op.Count)
	}
	switch {
	case inRecv == 0:
		op.Recv = nil
	case recv != inRecv*op.Count:
		return e.refuse(op.Call, "recv has %d elements and send %d: recv must have %d", recv, send, inRecv*op.Count)
	}
	return e.checkOverlap(op, inSend == inRecv)
}

// checkOverlap refuses buffers that share memory, but for what is in place: the same memory, or, where one buffer has a
// part for each rank, this rank's.
func (e *Engine) checkOverlap(op *Op, equal bool) error {
	if len(op.Send) == 0 || len(op.Recv) == 0 {
		return nil
	}
	long, short := op.Send, op.Recv
	if len(long) < len(short) {
		long, short = short, long
	}
	first, second := uintptr(unsafe.Pointer(&long[0])), uintptr(unsafe.Pointer(&short[0]))
	if first >= second+uintptr(len(short)) || second >= first+uintptr(len(long)) {
		return nil
	}
	at, allowed := 0, "must be the same slice (in place) or not overlap"
	switch {
	case op.Call == lifecycle.CallAllToAll:
		return e.refuse(op.Call, "send and recv overlap: they must not overlap")
	case !equal:
		at = e.rank * op.Count
		allowed = fmt.Sprintf("may overlap only where the smaller one is exactly elements %d to %d "+
			"of the larger one (in place)", at, at+op.Count-1)
	}
	if second-first == uintptr(at*op.DataType.Size()) {
		return nil
	}
	return e.refuse(op.Call, "send and recv overlap: they %s", allowed)
}

// refuse is the error of an operation that makes no sense. Nothing was sent.
func (e *Engine) refuse(call lifecycle.Call, format string, args ...any) error {
	return &lifecycle.UsageError{
		Call: call, Code: lifecycle.CodeInvalidArgument, State: lifecycle.StateReady,
		Comm: e.cfg.Comm, Name: e.cfg.Name, Rank: e.rank, Detail: fmt.Sprintf(format, args...),
	}
}
