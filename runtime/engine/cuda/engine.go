//go:build linux && cgo

package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"github.com/carillon-rt/carillon/kernels"
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// device is the engine of one rank.
type device struct {
	*queue.Queue
	gpu        *GPU
	comm       *engine.Comm
	rank, size int
	blocks     int // most blocks of a grid, the same on all ranks
	limits     Limits
	functions  [kernel.NumKernels][]*cuda.Function
	windows    *windows
	reached    *reached // buffers of the other ranks
	reach      *reach   // this rank's buffers for the others; nil if ranks share host memory

	args *kernel.ExchangeArgs // of the next launch; allocated separately, since C gets it
}

// placement is what ranks tell each other first. Its size is fixed.
type placement struct {
	UUID    [16]byte
	Process [16]byte
	Ordinal uint32 // of the device in its process
	Blocks  uint32 // that the GPU can run at once
	Shared  bool
	// Must be the same:
	Options  [2 + numLimits]uint64
	Fallback [16]byte // its name
}

// apartError is the reason why our kernels can't join the GPUs; Options.Fallback may be able to.
type apartError struct{ error }

// Open implements engine.DeviceKind.
func (g *GPU) Open(ctx context.Context, c *engine.Comm, gather func([]byte) ([][]byte, error), failed func(error)) (
	engine.Device, error,
) {
	d := &device{
		gpu: g, comm: c, rank: c.Rank, size: c.Size, args: new(kernel.ExchangeArgs),
		limits: g.options.Tuning.For(c.Size),
	}
	if err := d.open(gather, failed); err != nil {
		d.free()
		if _, apart := errors.AsType[apartError](err); apart && g.options.Fallback != nil {
			if d.rank == 0 {
				g.options.Log.Info("GPUs that can't be joined directly: another engine carries the communicator",
					"comm", c.Name, "engine", g.options.Fallback.Name(), "reason", err)
			}
			return g.options.Fallback.Open(ctx, c, gather, failed)
		}
		return nil, fmt.Errorf("a communicator on GPUs: %w", err)
	}
	d.Start(d, d.windows.at[d.rank]+cuda.Pointer(d.stateAt()+kernel.Ended))
	return d, nil
}

func (d *device) open(gather func([]byte) ([][]byte, error), failed func(error)) (err error) {
	if err := d.place(gather); err != nil {
		return err
	}
	for k := range d.functions {
		for dt := kernels.Int8; dt.Valid(); dt++ {
			name := kernel.Function(kernel.Kernel(k), dt, d.size)
			d.functions[k] = append(d.functions[k], d.gpu.functions[name])
		}
	}
	unit, prepared := d.gpu.context.Granularity()
	if prepared == nil {
		d.Queue, prepared = queue.New(d.comm, d.gpu.context, failed)
	}
	size := roundUp(d.stateAt()+kernel.StateBytes, max(unit, 1))
	ready := func(p cuda.Pointer) error {
		if prepared != nil {
			return prepared
		}
		return d.clear(p)
	}
	readyHere := func(p cuda.Pointer) error {
		if d.gpu.options.DisableP2P {
			return kindError{errors.New("Options.DisableP2P (NCCL_P2P_DISABLE) keeps its GPU apart")}
		}
		return ready(p)
	}
	d.windows, err = openWindows(memory{d.gpu.context, false}, d.rank, size, gather, readyHere, d.reached)
	if err == nil {
		d.reach = newReach(d)
	} else if kindRefused(err) {
		err = d.meetOnHost(size, gather, ready, err)
	}
	if err != nil {
		return err
	}
	a := d.args
	a.Args = kernel.Args{
		Rank: uint32(d.rank), Ranks: uint32(d.size), Half: uint64(d.gpu.options.Mailbox), Slot: uint32(d.slot()),
		State: uint64(d.windows.at[d.rank]) + uint64(d.stateAt()),
	}
	for k := range d.size {
		a.Window[k] = uint64(d.windows.at[(d.rank+k)%d.size])
	}
	return nil
}

// meetOnHost opens the windows in host memory after windows on GPUs were refused.
func (d *device) meetOnHost(size int, gather func([]byte) ([][]byte, error), ready func(cuda.Pointer) error,
	refused error,
) (err error) {
	d.limits = d.limits.inLL()
	d.windows, err = openWindows(memory{d.gpu.context, true}, d.rank, size, gather, ready, nil)
	switch {
	case kindRefused(err):
		return apartError{fmt.Errorf("the GPUs share neither their memory (%w) nor the host's: %w", refused, err)}
	case err == nil && d.rank == 0:
		d.gpu.options.Log.Warn("GPUs don't reach each other's memory: they meet in the host's, which is slower",
			"comm", d.comm.Name, "error", refused)
	}
	return err
}

// place exchanges the placements of all ranks, and returns an error if they can't form a communicator.
func (d *device) place(gather func([]byte) ([][]byte, error)) error {
	o, l := d.gpu.options, d.limits
	mine := placement{
		UUID: d.gpu.uuid, Process: process(), Ordinal: uint32(d.gpu.context.Device().Ordinal()),
		Blocks: uint32(d.gpu.blocks), Shared: o.Shared,
	}
	limits := l.list()
	for i, n := range append([]int{o.Mailbox, o.Slots}, limits[:]...) {
		mine.Options[i] = uint64(n)
	}
	if o.Fallback != nil {
		copy(mine.Fallback[:], o.Fallback.Name())
	}
	encoded, err := binary.Append(nil, binary.LittleEndian, mine)
	if err != nil {
		return err
	}
	all, err := tell(gather, encoded, nil)
	if err != nil {
		return err
	}
	nodes := d.comm.Links.Topology().Node
	if far := slices.IndexFunc(nodes, func(n int) bool { return n != nodes[0] }); far >= 0 {
		return apartError{fmt.Errorf("ranks 0 and %d are on different hosts, where only a Fallback joins GPUs", far)}
	}
	if d.size > kernel.MaxRanks {
		return apartError{fmt.Errorf("it has %d ranks: more than %d only a Fallback joins", d.size, kernel.MaxRanks)}
	}
	on := map[[16]byte][]int{}
	d.blocks = math.MaxInt
	d.reached = &reached{context: d.gpu.context, mapped: map[mapping]cuda.Pointer{}}
	shared := true
	var first placement
	for r, b := range all {
		var p placement
		if _, err := binary.Decode(b, binary.LittleEndian, &p); err != nil {
			return fmt.Errorf("rank %d doesn't say on which GPU it is: %w", r, err)
		}
		if r == 0 {
			first = p
		}
		if p.Options != first.Options {
			return fmt.Errorf("ranks 0 and %d have different options (bytes of mailbox, slots and limits: %v and %v): "+
				"choose the same, and the same tuning", r, first.Options, p.Options)
		}
		if p.Fallback != first.Fallback {
			return fmt.Errorf("ranks 0 and %d have different fallbacks (%q and %q): choose the same", r,
				bytes.TrimRight(first.Fallback[:], "\x00"), bytes.TrimRight(p.Fallback[:], "\x00"))
		}
		on[p.UUID] = append(on[p.UUID], r)
		d.reached.near[r] = p.Process == mine.Process && (p.UUID == mine.UUID || d.gpu.reaches(p.Ordinal))
		d.blocks, shared = min(d.blocks, int(p.Blocks)), shared && p.Shared
	}
	most := 1
	for _, ranks := range on {
		if len(ranks) > 1 && !shared {
			return fmt.Errorf("%s share a GPU, where their kernels wait for each other and must all run at once: "+
				"give each rank a GPU of its own, or allow it on all ranks (Options.Shared says what it takes)",
				words.Ranks(ranks))
		}
		most = max(most, len(ranks))
	}
	if need := kernel.MinBlocks(d.size); d.blocks/most < need {
		return fmt.Errorf("%d ranks share a GPU, which runs %d blocks at once, and each rank needs %d", most, d.blocks,
			need)
	}
	d.blocks = min(kernel.MaxBlocks, d.blocks/most)
	if len(on) == 1 {
		d.limits.Push, d.limits.ReduceScatterPush = 0, 0 // a GPU reads its own memory as fast as it writes it
	}
	return d.format(gather, slices.Collect(maps.Keys(on)))
}

// format makes the ranks agree on whether they use LL128: either all do, or none.
func (d *device) format(gather func([]byte) ([][]byte, error), gpus [][16]byte) error {
	const no, yes = 0, 1
	mine := []byte{no}
	if d.gpu.linked(gpus) {
		mine[0] = yes
	}
	all, err := tell(gather, mine, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(b []byte) bool { return len(b) == 0 || b[0] != yes }) {
		d.limits = d.limits.inLL()
	}
	return nil
}

// slot returns the size of a FIFO's slot, in bytes.
func (d *device) slot() int { return kernel.SlotBytes(d.size, d.gpu.options.Slots) }

// stateAt returns the offset of the rank's own state in a window: behind what ranks share.
func (d *device) stateAt() int { return kernel.WindowBytes(d.size, d.gpu.options.Mailbox, d.slot()) }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// clear clears a window, so that nothing in it looks like a packet or flag that has arrived.
func (d *device) clear(p cuda.Pointer) error {
	return errors.Join(d.Side.Set(p, 0, d.stateAt()+kernel.StateBytes), d.Side.Synchronize())
}

// Name implements engine.Device.
func (d *device) Name() string { return d.gpu.Name() }

// Algorithm implements engine.Device.
func (d *device) Algorithm(op *engine.Op) algo.Algorithm {
	if !op.Call.IsCollective() {
		return algo.Auto
	}
	switch d.choose(op) {
	case kernel.OneShot, kernel.OneShotLL128, kernel.Copy, kernel.CopyLL128:
		return algo.OneShot
	case kernel.TwoShot, kernel.TwoShotLL128:
		return algo.TwoShot
	default:
		return algo.Direct
	}
}

// Put implements queue.Backend.
func (d *device) Put(call lifecycle.Call, seq uint64, ops []engine.Op, captured bool) error {
	op := &ops[0]
	l := launch{device: d, stream: op.Stream, call: call, seq: seq, ops: ops, captured: captured}
	if op.Call.IsCollective() {
		return l.collective(op)
	}
	return l.messages(ops)
}

// signature returns the value, 1 to 255, by which flags identify a call. A message has the same value at both ends.
func signature(call lifecycle.Call, op *engine.Op) uint8 {
	var text [engine.SignatureSize]byte
	signed := *op
	if !op.Call.IsCollective() {
		signed.Peer = -1
	}
	s := engine.Sign(call, &signed, 0, 0)
	s.Put(text[:])
	h := fnv.New32a()
	_, _ = h.Write(text[:])
	return uint8(h.Sum32()%255 + 1)
}

// Trouble implements queue.Backend. It returns the error of an operation that a kernel has given up because a flag had
// the signature of another call, or because a rank has closed its end.
func (d *device) Trouble() error {
	w, gaveUp := d.Page.End()
	call, seq, bytes, known := d.Launch(w.Number)
	if !gaveUp {
		var sig tape.Signature
		w, sig, gaveUp = d.Replay()
		call, seq, bytes, known = sig.Call, 0, int(sig.Bytes), true
	}
	if !gaveUp {
		return nil
	}
	var p *lifecycle.PeerError
	switch kernel.Phase(w.Phase) {
	case kernel.Mismatch:
		p = d.comm.PeerError(lifecycle.CodeMismatch, -1, "") // the two differ, and the kernel can't know which is wrong
		if d.size == 2 {
			p.Rank = int(w.Peer)
		}
		if known {
			p.Detail = fmt.Sprintf("call: rank %d says %s of %d bytes, rank %d makes another one, or with other "+
				"arguments", d.rank, call, bytes, w.Peer)
		}
	case kernel.Closed:
		p = d.comm.Explain(int(w.Peer), transport.PeerClosed(int(w.Peer)))
	default:
		return nil
	}
	p.Call, p.Seq = call, seq // both zero if not known
	return p
}

// Leave implements queue.Backend.
func (d *device) Leave() {
	d.Stop()
	d.reach.leave()
}

// Close implements engine.Device. Memory that a kernel may still access stays until the GPU is closed.
func (d *device) Close() {
	d.reach.close()
	ended, unused := d.Left()
	if ended {
		unused = d.tellClosed() && unused
	}
	if unused {
		d.free()
	} else {
		d.gpu.keep(d)
	}
}

// tellClosed makes kernels of other ranks that wait for this rank give up. By now everything that this rank sent has
// arrived, and no graph that it launches from now on sends anything (Stop). If the communicator has stopped, a notice
// has already told the others more. It returns false if the windows may still be written.
func (d *device) tellClosed() bool {
	if d.comm.Stopped() != nil {
		return true
	}
	var failed error
	for r, window := range d.windows.at[:d.size] {
		if r != d.rank {
			at := window + cuda.Pointer(kernel.Closing(d.gpu.options.Mailbox, d.rank))
			failed = errors.Join(failed, d.Side.WriteValue(at, 1))
		}
	}
	settled := d.Settled()
	if !settled {
		failed = errors.Join(failed, errors.New("the GPU doesn't write into their windows"))
	}
	if failed != nil {
		d.gpu.options.Log.Warn("ranks that wait on their GPUs for this one aren't told that it has closed its end: "+
			"abort the communicator there", "comm", d.comm.Name, "rank", d.rank, "error", failed)
	}
	return settled
}

func (d *device) free() {
	d.reach.close()
	if d.windows != nil {
		d.windows.release() // and no request to map buffers can arrive any more
	}
	d.reached.close()
	d.Free()
}
