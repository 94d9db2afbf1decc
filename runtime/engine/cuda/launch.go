//go:build linux && cgo

package cuda

import (
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// launch is one call that is put on a stream.
type launch struct {
	*device
	stream   *cuda.Stream
	call     lifecycle.Call
	seq      uint64
	captured bool
}

// limits are up to how many bytes kernels in packets are the faster ones, by the number of ranks.
func limits(ranks int) (oneShot, twoShot, copies int) {
	switch {
	case ranks <= 2:
		return 256 << 10, 512 << 10, 256 << 10
	case ranks <= 4:
		return 64 << 10, 512 << 10, 64 << 10
	default:
		return 32 << 10, 512 << 10, 32 << 10
	}
}

// choose is which kernel a collective is made with, and how many bytes of it at once at most.
func (d *device) choose(op *engine.Op) (k kernel.Kernel, most int) {
	bytes := op.Count * op.DataType.Size()
	oneShot, twoShot, copies := limits(d.size)
	fits := func(k kernel.Kernel, bytes int) bool {
		return kernel.HalfFor(k, d.size, bytes) <= d.gpu.options.Mailbox
	}
	switch {
	case !op.Call.Reduces():
		if bytes <= copies && fits(kernel.Copy, bytes) {
			return kernel.Copy, bytes
		}
		return kernel.Gather, d.staged(op.Call)
	case bytes <= oneShot && fits(kernel.OneShot, bytes):
		return kernel.OneShot, bytes
	case op.Call == lifecycle.CallAllReduce && bytes <= twoShot && fits(kernel.TwoShot, bytes):
		return kernel.TwoShot, bytes
	case op.Reduction != kernels.PreMulSum:
		return kernel.Reduce, d.staged(op.Call)
	}
	// Only packets know a rank's factor.
	k, most = kernel.OneShot, oneShot
	if op.Call == lifecycle.CallAllReduce {
		k, most = kernel.TwoShot, twoShot
	}
	for !fits(k, most) {
		most /= 2
	}
	return k, most
}

// staged is how many bytes, for each rank that gets some of its own, go through a window at once: whole vectors.
func (d *device) staged(call lifecycle.Call) int {
	return d.gpu.options.Staging / d.parts(call) / 16 * 16
}

// parts is how many parts a rank's staging has: one for each rank that gets something else than the others.
func (d *device) parts(call lifecycle.Call) int {
	switch call {
	case lifecycle.CallAllToAll, lifecycle.CallScatter, lifecycle.CallReduceScatter:
		return d.size
	default:
		return 1
	}
}

// collective makes one, in parts if it is too large for the mailboxes or the staging.
func (l *launch) collective(op *engine.Op) error {
	k, most := l.choose(op)
	total := op.Count * op.DataType.Size()
	for at := 0; at == 0 || at < total; at += max(most, 1) { // without data it is a barrier
		l.arguments(op)
		err := error(nil)
		switch n := min(most, total-at); k {
		case kernel.Gather:
			err = l.gather(op, at, n)
		case kernel.Reduce:
			err = l.reduce(op, at, n)
		default:
			err = l.packets(k, op, at, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// arguments sets those that say who gets what from whom.
func (l *launch) arguments(op *engine.Op) {
	a, size := l.args, uint64(op.Count*op.DataType.Size())
	everybody, own := uint32(1)<<l.size-1, uint32(1)<<l.rank
	root := uint32(0)
	if op.Peer >= 0 {
		root = 1 << op.Peer
	}
	a.Signature, a.Reduction, a.Factor = signature(l.call, op), uint32(op.Reduction), op.Scale
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

// packets makes n bytes of a collective, from at on, in packets.
func (l *launch) packets(k kernel.Kernel, op *engine.Op, at, n int) error {
	l.args.Send, l.args.Recv = uint64(address(op.Send))+uint64(at), uint64(address(op.Recv))+uint64(at)
	l.args.Bytes = uint64(n)
	return l.run(k, op.DataType, n)
}

// gather makes n bytes of a collective that reduces nothing: this rank's are put into its window, and the others' read
// from theirs.
func (l *launch) gather(op *engine.Op, at, n int) error {
	a, own := l.args, l.windows.at[l.rank]+cuda.Pointer(l.stagingAt())
	if err := l.stage(own, op, at, n); err != nil {
		return err
	}
	for r := range l.size {
		a.In[r] = uint64(l.windows.at[r]) + uint64(l.stagingAt())
		a.Out[r] = uint64(address(op.Recv)) + uint64(at)
	}
	a.Bytes = uint64(n)
	return l.run(kernel.Gather, op.DataType, n)
}

// stage copies n bytes of each part of what the rank sends, from at on, to its staging, and sets the stride between
// them there.
func (l *launch) stage(to cuda.Pointer, op *engine.Op, at, n int) error {
	parts, stride := l.parts(op.Call), 0
	if parts > 1 {
		stride = roundUp(n, 16)
	}
	l.args.SendStride = uint64(stride)
	if op.Send == nil {
		return nil
	}
	for p := range parts {
		from := address(op.Send) + cuda.Pointer(p*op.Count*op.DataType.Size()+at)
		if err := l.stream.Copy(to+cuda.Pointer(p*stride), from, n); err != nil {
			return err
		}
	}
	return nil
}

// reduce makes n bytes of a reduction. Each rank reduces a share of all ranks' windows: its part of a reduce-scatter,
// which is its result; else what falls to it, which it puts into the windows of those that get the result.
func (l *launch) reduce(op *engine.Op, at, n int) error {
	a, own := l.args, l.windows.at[l.rank]
	if err := l.stage(own+cuda.Pointer(l.stagingAt()), op, at, n); err != nil {
		return err
	}
	scatter := op.Call == lifecycle.CallReduceScatter
	share := roundUp((n+l.size-1)/l.size, 16)
	a.Bytes = uint64(max(0, min(share, n-l.rank*share)))
	if scatter {
		share, a.Bytes, a.SendTo = n, uint64(n), 1<<l.rank
	} else {
		a.SendStride, a.RecvStride = uint64(share), uint64(share)
	}
	for r := range l.size {
		a.In[r] = uint64(l.windows.at[r]) + uint64(l.stagingAt())
		a.Out[r] = uint64(l.windows.at[r]) + uint64(l.resultsAt())
		if scatter {
			a.Out[r] = uint64(address(op.Recv)) + uint64(at)
		}
	}
	err := l.run(kernel.Reduce, op.DataType, share)
	if err != nil || scatter || op.Recv == nil {
		return err
	}
	return l.stream.Copy(address(op.Recv)+cuda.Pointer(at), own+cuda.Pointer(l.resultsAt()), n)
}

// run launches a kernel with a grid that is the same on all ranks, for which there is work of n bytes on any of them.
func (l *launch) run(k kernel.Kernel, dt kernels.DataType, n int) error {
	need := kernel.Threads(k, l.size, n)
	threads := min(l.gpu.threads, roundUp(need, 32))
	blocks := min(l.blocks, (need+threads-1)/threads)
	if err := l.stream.Launch(l.functions[k][dt], blocks, threads, 0, unsafe.Pointer(l.args)); err != nil {
		return err
	}
	if !l.captured {
		epoch := l.launched.Load() + 1
		r := &l.recent[epoch%uint32(len(l.recent))]
		r.epoch.Store(0)
		r.call, r.seq, r.bytes = l.call, l.seq, n
		r.epoch.Store(epoch)
		l.launched.Store(epoch)
	}
	return nil
}
