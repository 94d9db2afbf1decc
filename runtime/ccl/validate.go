package ccl

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// validate checks the arguments of an operation before anything is done, and says which value is wrong and what is
// allowed. It makes Count what the engine wants.
func validate(c *core, op *host.Op, scaled bool) error {
	bad := func(format string, args ...any) error { return c.usage(op.Call, fmt.Sprintf(format, args...)) }
	if !op.Reduction.Valid() {
		return bad("reduction %d is unknown: use Sum, Prod, Max, Min, Avg or PreMulSum", op.Reduction)
	}
	if scaled != (op.Reduction == PreMulSum) {
		return bad("a Scale belongs to PreMulSum, and PreMulSum needs one: pass Scale(factor) with PreMulSum only; got reduction %s", op.Reduction)
	}
	size, es := c.size, op.DataType.Size()
	send, recv := len(op.Send)/es, len(op.Recv)/es
	onRoot := op.Peer == c.rank
	switch op.Call {
	case lifecycle.CallSend, lifecycle.CallRecv:
		if op.Peer < 0 || op.Peer >= size {
			return bad("peer %d is not a rank of the communicator: ranks are 0 to %d", op.Peer, size-1)
		}
		return nil
	case lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallGather, lifecycle.CallScatter:
		if op.Peer < 0 || op.Peer >= size {
			return bad("root %d is not a rank of the communicator: ranks are 0 to %d", op.Peer, size-1)
		}
	default: // no rank has a part of its own
	}

	sendUsed, recvUsed := true, true // does this rank use the buffer?
	wantSend, wantRecv := send, recv
	inPlace := -1 // where recv may begin inside send, or send inside recv, in elements
	switch op.Call {
	case lifecycle.CallAllReduce:
		wantRecv, inPlace = send, 0
	case lifecycle.CallBroadcast:
		sendUsed, wantSend, inPlace = onRoot, recv, 0
	case lifecycle.CallReduce:
		recvUsed, wantRecv, inPlace = onRoot, send, 0
	case lifecycle.CallAllGather:
		wantRecv, inPlace = send*size, c.rank*send
	case lifecycle.CallReduceScatter:
		wantSend, inPlace = recv*size, c.rank*recv
	case lifecycle.CallAllToAll:
		if send%size != 0 {
			return bad("send has %d elements, which %d ranks can't share equally: its length must be a multiple of %d", send, size, size)
		}
		wantRecv = send
		op.Count = send / size
	case lifecycle.CallGather:
		recvUsed, wantRecv, inPlace = onRoot, send*size, c.rank*send
	case lifecycle.CallScatter:
		sendUsed, wantSend, inPlace = onRoot, recv*size, c.rank*recv
	default: // a barrier has no buffers
	}
	if sendUsed && send != wantSend {
		return bad("send has %d elements and recv %d: send must have %d", send, recv, wantSend)
	}
	if recvUsed && recv != wantRecv {
		return bad("recv has %d elements and send %d: recv must have %d", recv, send, wantRecv)
	}
	if !sendUsed {
		op.Send = nil
	}
	if !recvUsed {
		op.Recv = nil
	}
	if off, overlap := overlaps(op.Send, op.Recv); overlap && (inPlace < 0 || off != inPlace*es) {
		allowed := "must not overlap"
		if inPlace >= 0 {
			allowed = fmt.Sprintf("may overlap only where the smaller one is exactly elements %d to %d of the larger one (in place)",
				inPlace, inPlace+min(send, recv)-1)
			if send == recv {
				allowed = "must be the same slice (in place) or not overlap"
			}
		}
		return bad("send and recv overlap: they %s", allowed)
	}
	return nil
}

// overlaps tells whether two buffers share memory, and by how many bytes the shorter one begins behind the longer one.
func overlaps(a, b []byte) (offset int, overlap bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	if len(a) < len(b) {
		a, b = b, a
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return int(pb) - int(pa), pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

// usage is the error of a call with a wrong argument.
func (c *core) usage(call lifecycle.Call, detail string) *UsageError {
	rank, _ := c.place()
	return &UsageError{
		Call: call, Code: lifecycle.CodeInvalidArgument, State: c.life.State(),
		Comm: c.ident(), Name: c.name, Rank: rank, Detail: detail,
	}
}

// nilComm is the error of a call on no communicator, such as the one that Split gives a rank with NoColor.
func nilComm(call lifecycle.Call) *UsageError {
	return &UsageError{
		Call: call, Code: lifecycle.CodeInvalidArgument, Rank: -1,
		Detail: "the communicator is nil: a rank that passed NoColor to Split has none, and does not make its calls",
	}
}

// plainly is what err says, less what the error that it becomes a part of says already.
func plainly(err error) string {
	if usage, ok := asUsage(err); ok && usage.Detail != "" {
		return usage.Detail
	}
	return err.Error()
}

// asUsage finds the UsageError in err.
func asUsage(err error) (*UsageError, bool) {
	var u *UsageError
	ok := errors.As(err, &u)
	return u, ok
}

// culprit is the rank at fault in err, or -1.
func culprit(err error) int32 {
	var p *PeerError
	if errors.As(err, &p) {
		return int32(p.Rank)
	}
	return -1
}
