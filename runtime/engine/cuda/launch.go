//go:build linux && cgo

package cuda

import (
	"slices"
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
)

// launch is one call to be put on a stream.
type launch struct {
	*device
	stream   *cuda.Stream
	call     lifecycle.Call
	seq      uint64
	ops      []engine.Op
	captured bool
}

// choose returns the kernel that carries out an operation.
func (d *device) choose(op *engine.Op) kernel.Kernel {
	bytes, l := op.Count*op.DataType.Size(), &d.limits
	within := func(k kernel.Kernel, limit int) bool {
		return bytes <= limit && kernel.HalfFor(k, d.size, bytes) <= d.gpu.options.Mailbox
	}
	oneShot := l.OneShotLL128
	if op.Call == lifecycle.CallReduceScatter {
		oneShot = l.ReduceScatterLL128
	}
	switch {
	case !op.Call.IsCollective():
		return kernel.Exchange
	case !op.Call.Reduces():
		switch {
		case within(kernel.Copy, l.Copy):
			return kernel.Copy
		case within(kernel.CopyLL128, l.CopyLL128):
			return kernel.CopyLL128
		}
		return kernel.Exchange
	case within(kernel.OneShot, l.OneShot):
		return kernel.OneShot
	case within(kernel.OneShotLL128, oneShot):
		return kernel.OneShotLL128
	case op.Call == lifecycle.CallAllReduce && within(kernel.TwoShot, l.TwoShot):
		return kernel.TwoShot
	case op.Call == lifecycle.CallAllReduce && within(kernel.TwoShotLL128, l.TwoShotLL128):
		return kernel.TwoShotLL128
	default:
		return kernel.Reduce
	}
}

// collective puts a collective on the stream.
func (l *launch) collective(op *engine.Op) error {
	l.arguments(op)
	k := l.choose(op)
	if k == kernel.Exchange {
		l.copies()
	}
	if k == kernel.Exchange || k == kernel.Reduce {
		l.reachable(op)
		if err := l.comm.Stopped(); err != nil { // stopped while waiting for the other ranks
			return err
		}
	}
	return l.run(k, op.DataType, int(l.args.Bytes))
}

// reachable sets the addresses at which the other ranks access the buffers that they read or write when nothing is
// staged.
func (l *launch) reachable(op *engine.Op) {
	r := &l.args.Reach
	*r = kernel.Reach{}
	if l.reach == nil || l.size == 1 {
		return
	}
	need := func(b kernel.Buffer, of []byte) {
		r.Need(b)
		r.At[b] = l.reach.of(of, l.captured)
	}
	switch {
	case op.Call.Reduces() && op.Reduction == kernels.PreMulSum: // a rank doesn't know another rank's factor
	case op.Call == lifecycle.CallAllReduce:
		need(kernel.SendBuffer, op.Send)
		need(kernel.RecvBuffer, op.Recv)
		if pushes(l.limits.Push, len(op.Send)) {
			r.Pushes = 1
		}
	case op.Call == lifecycle.CallReduceScatter && pushes(l.limits.ReduceScatterPush, len(op.Recv)): // all is staged
	case op.Call == lifecycle.CallReduceScatter, op.Call == lifecycle.CallAllGather:
		need(kernel.SendBuffer, op.Send)
	}
}

// pushes reports whether a call is large enough to push.
func pushes(limit, bytes int) bool { return limit > 0 && bytes >= limit }

// copies sets the messages of a copying collective: one to each rank and one from each.
func (l *launch) copies() {
	a := l.args
	messages := func(ranks uint32, at, stride uint64) [][]kernel.Message {
		of := make([][]kernel.Message, l.size)
		for r := range of {
			if ranks>>r&1 != 0 {
				of[r] = []kernel.Message{kernel.NewMessage(at+uint64(r)*stride, int(a.Bytes), uint8(a.Signature))}
			}
		}
		return of
	}
	a.SetMessages(messages(a.SendTo, a.Send, a.SendStride), messages(a.RecvFrom, a.Recv, a.RecvStride))
}

// messages puts sends and receives on the stream: all concurrently, if one launch has room for them. The streams of the
// other operations wait for this one, and this one for them.
func (l *launch) messages(ops []engine.Op) error {
	for i := range ops {
		if err := l.After(l.stream, ops[i].Stream); err != nil {
			return err
		}
	}
	for send, recv := range engine.ToSelf(ops, l.rank) {
		if err := l.stream.Copy(queue.Address(recv.Recv), queue.Address(send.Send), len(send.Send)); err != nil {
			return err
		}
	}
	l.args.Signature, l.args.Reach.Needs = 0, 0
	for some := range slices.Chunk(ops, kernel.MaxMessages) {
		sends, receives, most := make([][]kernel.Message, l.size), make([][]kernel.Message, l.size), 0
		for i := range some {
			op := &some[i]
			if op.Peer == l.rank {
				continue
			}
			of, buffer := sends, op.Send
			if op.Call == lifecycle.CallRecv {
				of, buffer = receives, op.Recv
			}
			m := kernel.NewMessage(uint64(queue.Address(buffer)), len(buffer), signature(lifecycle.CallSend, op))
			of[op.Peer], most = append(of[op.Peer], m), max(most, len(buffer))
		}
		l.args.SetMessages(sends, receives)
		if err := l.run(kernel.Exchange, 0, most); err != nil {
			return err
		}
	}
	for i := range ops {
		if err := l.After(ops[i].Stream, l.stream); err != nil {
			return err
		}
	}
	return nil
}

// arguments sets the arguments that say which rank gets what from which rank.
func (l *launch) arguments(op *engine.Op) {
	a, size := l.args, uint64(op.Count*op.DataType.Size())
	everybody, own := uint32(1)<<l.size-1, uint32(1)<<l.rank
	root := uint32(0)
	if op.Peer >= 0 {
		root = 1 << op.Peer
	}
	a.Signature, a.Reduction, a.Factor = uint32(signature(l.call, op)), uint16(op.Reduction), op.Scale
	a.Send, a.Recv, a.Bytes = uint64(queue.Address(op.Send)), uint64(queue.Address(op.Recv)), size
	a.SendTo, a.RecvFrom, a.SendStride, a.RecvStride = everybody, everybody, 0, 0
	switch op.Call {
	case lifecycle.CallAllGather:
		a.RecvStride = size
	case lifecycle.CallAllToAll:
		a.SendStride, a.RecvStride = size, size
	case lifecycle.CallReduceScatter:
		a.SendStride = size
	case lifecycle.CallBroadcast:
		a.RecvFrom = root
		if own != root {
			a.SendTo = 0
		}
	case lifecycle.CallReduce:
		if own != root {
			a.RecvFrom = 0
		}
		a.SendTo = root
	case lifecycle.CallGather:
		a.SendTo, a.RecvStride = root, size
		if own != root {
			a.RecvFrom = 0
		}
	case lifecycle.CallScatter:
		a.RecvFrom, a.SendStride = root, size
		if own != root {
			a.SendTo = 0
		}
	case lifecycle.CallBarrier:
		a.SendTo, a.RecvFrom = 0, 0
	default: // an all-reduce
	}
}

// run launches a kernel. bytes is the size of the collective, or of the largest message.
func (l *launch) run(k kernel.Kernel, dt kernels.DataType, bytes int) error {
	a := l.args
	a.Channels = uint32(kernel.Channels(k, l.size, l.blocks))
	grid := kernel.GridFor(k, &a.Args, bytes, kernel.Grid{Blocks: l.blocks, Threads: l.gpu.threads})
	page := l.Page
	a.Number, a.Operation = l.Next(), 0
	if l.captured {
		page, a.Operation = l.Capture(l.ops)
	}
	a.Words, a.Abort, a.Tells = uint64(page.Words()), uint64(page.Abort()), 0
	if l.captured || l.Tells() {
		a.Tells = 1
	}
	err := l.stream.Launch(l.functions[k][dt], grid.Blocks, grid.Threads, 0, unsafe.Pointer(a))
	if err != nil || l.captured {
		return err
	}
	l.Add(l.call, l.seq, bytes)
	return nil
}
