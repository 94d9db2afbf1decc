package engine

import (
	"errors"
	"fmt"
	"iter"
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// Op is one operation as one rank calls it. Check completes it.
type Op struct {
	Call      lifecycle.Call
	DataType  kernels.DataType
	Reduction kernels.Reduction // of AllReduce, Reduce and ReduceScatter
	Algorithm algo.Algorithm    // instead of the tuning's, if Call has it; the same on all ranks
	Scaled    bool              // the caller passed a Scale
	Scale     float64           // of PreMulSum: the factor of Send, which may differ between ranks
	Peer      int               // the root, or the peer of Send and Recv; -1 if none
	Seq       uint64            // of a Send or Recv: its number among those from the one rank to the other

	// Send and Recv are the caller's memory. The engine reads and writes them until the operation has returned, with or
	// without an error. They may be the same memory where algo.Plan allows it.
	Send, Recv []byte

	// Count has NCCL's meaning, in elements; see algo.Request.
	Count int

	// Stream is the stream on which a Device puts the operation, whose buffers are then device addresses; nil on the
	// host.
	Stream *cuda.Stream
}

// ToSelf pairs the sends of a rank to itself with its receives from itself, in order, among operations of one group. A
// send or receive without a partner is paired with nil.
func ToSelf(ops []Op, rank int) iter.Seq2[*Op, *Op] {
	next := func(call lifecycle.Call, i int) (*Op, int) {
		for ; i < len(ops); i++ {
			if ops[i].Call == call && ops[i].Peer == rank {
				return &ops[i], i + 1
			}
		}
		return nil, i
	}
	return func(yield func(send, recv *Op) bool) {
		send, s := next(lifecycle.CallSend, 0)
		recv, r := next(lifecycle.CallRecv, 0)
		for (send != nil || recv != nil) && yield(send, recv) {
			send, s = next(lifecycle.CallSend, s)
			recv, r = next(lifecycle.CallRecv, r)
		}
	}
}

// CheckToSelf rejects sends of a rank to itself that don't match its receives from itself. They can only match within
// one group.
func CheckToSelf(ops []Op, rank int) error {
	for send, recv := range ToSelf(ops, rank) {
		switch {
		case send == nil || recv == nil:
			return fmt.Errorf("rank %d sends to itself, or receives from itself, without the other: "+
				"both must be in one group", rank)
		case send.Count != recv.Count || send.DataType != recv.DataType:
			return fmt.Errorf("rank %d sends itself %d elements of %v, but receives %d of %v",
				rank, send.Count, send.DataType, recv.Count, recv.DataType)
		}
	}
	return nil
}

// units returns the size of each buffer on a rank, in multiples of Count elements.
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

// Check completes this rank's operation: it sets Count, and drops a buffer that the rank doesn't use. Otherwise its
// error says which value is wrong and what is allowed. Nothing else checks these values: an Engine only gets operations
// that have passed. size is the number of ranks.
func (op *Op) Check(rank, size int) error {
	es := op.DataType.Size()
	send, recv := len(op.Send)/es, len(op.Recv)/es
	inSend, inRecv := units(op.Call, size, op.Peer == rank)
	part := "peer"
	if op.Call.IsRooted() {
		part = "root"
	}
	switch {
	case !op.Reduction.Valid():
		return fmt.Errorf("reduction %d is unknown: use Sum, Prod, Max, Min, Avg or PreMulSum", op.Reduction)
	case op.Scaled != (op.Reduction == kernels.PreMulSum):
		return fmt.Errorf("a Scale belongs to PreMulSum, and PreMulSum needs one: "+
			"pass Scale(factor) with PreMulSum only; got reduction %s", op.Reduction)
	case (op.Call.IsRooted() || !op.Call.IsCollective()) && (op.Peer < 0 || op.Peer >= size):
		return fmt.Errorf("%s %d is not a rank of the communicator: ranks are 0 to %d", part, op.Peer, size-1)
	case op.Call == lifecycle.CallAllToAll && send%size != 0:
		return fmt.Errorf("send has %d elements, which %d ranks can't share equally: "+
			"its length must be a multiple of %d", send, size, size)
	}
	switch op.Call {
	case lifecycle.CallBroadcast, lifecycle.CallReduceScatter, lifecycle.CallScatter, lifecycle.CallRecv:
		op.Count = recv
	case lifecycle.CallAllToAll:
		op.Count = send / size
	default: // 0 for a barrier
		op.Count = send
	}
	switch {
	case inSend == 0:
		op.Send = nil
	case send != inSend*op.Count:
		return fmt.Errorf("send has %d elements and recv %d: send must have %d", send, recv, inSend*op.Count)
	}
	switch {
	case inRecv == 0:
		op.Recv = nil
	case recv != inRecv*op.Count:
		return fmt.Errorf("recv has %d elements and send %d: recv must have %d", recv, send, inRecv*op.Count)
	}
	return op.checkOverlap(rank, inSend == inRecv)
}

// checkOverlap rejects buffers that share memory, except for in-place operations: both buffers are the same memory, or,
// where one has a part for each rank, the other is this rank's part.
func (op *Op) checkOverlap(rank int, equal bool) error {
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
		return errors.New("send and recv overlap: they must not overlap")
	case !equal:
		at = rank * op.Count
		allowed = fmt.Sprintf("may overlap only where the smaller one is exactly elements %d to %d "+
			"of the larger one (in place)", at, at+op.Count-1)
	}
	if second-first == uintptr(at*op.DataType.Size()) {
		return nil
	}
	return fmt.Errorf("send and recv overlap: they %s", allowed)
}
