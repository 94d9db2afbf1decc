//go:build linux && cgo

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// device is the engine of one rank.
type device struct {
	gpu        *GPU
	comm       *engine.Comm
	failed     func(error)
	rank, size int
	blocks     int // of a grid at most, as on all ranks
	limits     Limits
	functions  [kernel.NumKernels][]*cuda.Function
	windows    *windows
	page       *page
	side       *cuda.Stream // our own, on which nothing waits
	fence      *cuda.Event

	args *kernel.ExchangeArgs // of the next launch; by itself, since C gets it

	mu       sync.Mutex   // guards last
	last     *cuda.Stream // on which something was enqueued last
	captured atomic.Bool  // something was enqueued on a stream that was captured: it may be launched at any time
	launched atomic.Uint32
	recent   [64]recent // by launch
	watcher  *watcher
}

// recent is what a launch was for.
type recent struct {
	launch atomic.Uint32
	call   lifecycle.Call
	seq    uint64
	bytes  int
}

// placement is what ranks tell each other before anything else, of a fixed size.
type placement struct {
	UUID    [16]byte
	Blocks  uint32 // that the GPU runs at once
	Shared  bool
	Options [5]uint64 // must be the same
}

// Open is engine.DeviceKind's.
func (g *GPU) Open(c *engine.Comm, gather func([]byte) ([][]byte, error), failed func(error)) (engine.Device, error) {
	d := &device{
		gpu: g, comm: c, failed: failed, rank: c.Rank, size: c.Size, args: new(kernel.ExchangeArgs),
		limits: g.options.Tuning.For(c.Size), watcher: newWatcher(),
	}
	if err := d.open(gather); err != nil {
		d.free()
		return nil, fmt.Errorf("a communicator on GPUs: %w", err)
	}
	d.watcher.running.Go(d.watch)
	return d, nil
}

func (d *device) open(gather func([]byte) ([][]byte, error)) error {
	if err := d.place(gather); err != nil {
		return err
	}
	for k := range d.functions {
		for dt := kernels.Int8; dt.Valid(); dt++ {
			name := kernel.Function(kernel.Kernel(k), dt, d.size)
			d.functions[k] = append(d.functions[k], d.gpu.functions[name])
		}
	}
	unit, prepared := d.prepare()
	bytes := roundUp(d.stateAt()+kernel.StateBytes, max(unit, 1))
	ready := func(p cuda.Pointer) error {
		if prepared != nil {
			return prepared
		}
		return d.clear(p)
	}
	var err error
	for _, kind := range []memory{deviceMemory{d.gpu.context}, hostMemory{d.gpu.context}} {
		d.windows, err = openWindows(kind, d.rank, bytes, gather, ready)
		refused, ok := errors.AsType[*refusedError](err)
		if !ok || !refused.kind {
			break
		}
		if d.rank == 0 {
			d.gpu.options.Log.Warn("GPUs don't reach each other's memory: they meet in the host's, which is slower",
				"comm", d.comm.Name, "error", err)
		}
	}
	if err != nil {
		return err
	}
	a := d.args
	a.Args = kernel.Args{
		Rank: uint32(d.rank), Ranks: uint32(d.size), Half: uint64(d.gpu.options.Mailbox), Slot: uint32(d.slot()),
		State: uint64(d.windows.at[d.rank]) + uint64(d.stateAt()),
		Words: uint64(d.page.at) + tape.DeviceWords, Abort: uint64(d.page.at) + tape.DeviceStop,
	}
	for k := range d.size {
		a.Window[k] = uint64(d.windows.at[(d.rank+k)%d.size])
	}
	return nil
}

// place tells the ranks where each is, and says what can't be.
func (d *device) place(gather func([]byte) ([][]byte, error)) error {
	o, l := d.gpu.options, d.limits
	mine := placement{UUID: d.gpu.uuid, Blocks: uint32(d.gpu.blocks), Shared: o.Shared}
	for i, n := range []int{o.Mailbox, o.Slots, l.OneShot, l.TwoShot, l.Copy} {
		mine.Options[i] = uint64(n)
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
		return fmt.Errorf("ranks 0 and %d are on different hosts, and GPUs of one host alone are supported", far)
	}
	if d.size > kernel.MaxRanks {
		return fmt.Errorf("it has %d ranks, and %d are supported", d.size, kernel.MaxRanks)
	}
	on := map[[16]byte][]int{}
	d.blocks = math.MaxInt
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
		on[p.UUID] = append(on[p.UUID], r)
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
	return nil
}

// prepare makes what a rank has for itself, and says in units of how many bytes windows are made.
func (d *device) prepare() (unit int, err error) {
	c := d.gpu.context
	if d.page, err = newPage(c, d.comm.Tape); err != nil {
		return 0, err
	}
	if d.side, err = c.Stream(0); err != nil {
		return 0, err
	}
	if d.fence, err = c.Event(false); err != nil {
		return 0, err
	}
	return c.Granularity()
}

// slot is the bytes of a FIFO's slot.
func (d *device) slot() int { return kernel.SlotBytes(d.size, d.gpu.options.Slots) }

// stateAt is where a window has the rank's own state: behind what ranks share.
func (d *device) stateAt() int { return kernel.WindowBytes(d.size, d.gpu.options.Mailbox, d.slot()) }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// clear makes a window ready: no packet or flag may look like one that came.
func (d *device) clear(p cuda.Pointer) error {
	return errors.Join(d.side.Set(p, 0, d.stateAt()+kernel.StateBytes), d.side.Synchronize())
}

// Check is engine.Device's.
func (d *device) Check(op engine.Op) error {
	if op.Stream.Context() != d.gpu.context {
		return fmt.Errorf("the stream is of device %d, and the rank is on device %d: use a stream of the context that "+
			"the communicator was made with", op.Stream.Context().Device().Ordinal(), d.gpu.context.Device().Ordinal())
	}
	for _, buffer := range []struct {
		name string
		b    []byte
	}{{"send", op.Send}, {"recv", op.Recv}} {
		if len(buffer.b) == 0 {
			continue
		}
		if err := d.checkBuffer(buffer.b, op.DataType.Size()); err != nil {
			return fmt.Errorf("%s: %w", buffer.name, err)
		}
	}
	return nil
}

func (d *device) checkBuffer(b []byte, element int) error {
	p := address(b)
	if uint64(p)%uint64(element) != 0 {
		return fmt.Errorf("it begins at %#x, which is no multiple of an element's %d bytes", uint64(p), element)
	}
	a, err := d.gpu.context.Lookup(p)
	switch {
	case errors.Is(err, cuda.ErrInvalidValue):
		return fmt.Errorf("%#x is no memory of a GPU: it is the host's, or was freed", uint64(p))
	case err != nil:
		return err
	case uint64(p)+uint64(len(b)) > uint64(a.Base)+a.Bytes:
		return fmt.Errorf("it has %d bytes, and its allocation has %d from where it begins", len(b),
			uint64(a.Base)+a.Bytes-uint64(p))
	case !a.Host && a.Device != d.gpu.context.Device().Ordinal():
		return fmt.Errorf("it is memory of device %d, and the rank is on device %d", a.Device,
			d.gpu.context.Device().Ordinal())
	}
	return nil
}

func address(b []byte) cuda.Pointer {
	return cuda.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Algorithm is engine.Device's.
func (d *device) Algorithm(op *engine.Op) algo.Algorithm {
	if !op.Call.IsCollective() {
		return algo.Auto
	}
	switch d.choose(op) {
	case kernel.OneShot, kernel.Copy:
		return algo.OneShot
	case kernel.TwoShot:
		return algo.TwoShot
	default:
		return algo.Direct
	}
}

// Enqueue is engine.Device's.
func (d *device) Enqueue(call lifecycle.Call, seq uint64, ops []engine.Op) (number uint32, err error) {
	if err := d.comm.Stopped(); err != nil {
		return 0, err
	}
	op := &ops[0]
	l := launch{device: d, stream: op.Stream, call: call, seq: seq}
	switch err = d.order(&l); {
	case err != nil:
	case op.Call.IsCollective():
		err = l.collective(op)
	default:
		err = l.messages(ops)
	}
	d.watcher.start()
	switch {
	case err == nil && l.captured:
		return 0, nil
	case err == nil:
		return d.launched.Load(), nil
	}
	err = &lifecycle.SystemError{
		Code: lifecycle.CodeSystem, Op: fmt.Sprintf("put %s number %d on a stream", call, seq), Err: err,
	}
	return 0, d.comm.Stop(err)
}

// order has the stream wait for what was enqueued on another one. What is captured is not ordered against what isn't:
// when it is launched is the caller's.
func (d *device) order(l *launch) (err error) {
	if l.captured, err = l.stream.Capturing(); err != nil {
		return err
	}
	if l.captured {
		d.captured.Store(true)
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && d.last.Handle() != l.stream.Handle() {
		if err := d.mark(d.fence); err != nil {
			return err
		}
		if err := l.stream.Wait(d.fence); err != nil {
			return err
		}
	}
	d.last = l.stream
	return nil
}

// mark records an event behind all that was enqueued but by graphs. That words say that it is done doesn't do: kernels
// end after that, and what they wrote is seen by others then. The caller holds the mutex.
func (d *device) mark(e *cuda.Event) error {
	if d.last.Destroyed() {
		return d.gpu.context.Synchronize()
	}
	return e.Record(d.last)
}

// idle tells whether all is done that was enqueued. What is launched by a graph isn't counted: then it is not known.
func (d *device) idle() bool { return !d.captured.Load() && d.page.Done() == d.launched.Load() }

// signature is what flags carry of a call: 1 to 255. Messages have the same at both ends.
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

// Wait is engine.Device's.
func (d *device) Wait(ctx context.Context) (err error) {
	d.mu.Lock()
	none := d.last == nil
	d.mu.Unlock()
	if none {
		return nil
	}
	e, err := d.gpu.context.Event(false)
	if err == nil {
		defer e.Destroy() //nolint:errcheck // what counts is what it was recorded behind
		d.mu.Lock()
		err = d.mark(e)
		d.mu.Unlock()
	}
	for p := (pause{}); err == nil; p.wait() {
		ended := e.Query()
		odd, stopped := d.mismatch(), d.comm.Stopped() // behind it: a kernel that has given up ends, too
		switch {
		case stopped != nil:
			return stopped
		case odd != nil:
			return d.comm.Stop(odd)
		case ended == nil:
			return nil
		case !errors.Is(ended, cuda.ErrNotReady):
			err = ended
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
	return d.comm.Stop(&lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "wait for the GPU", Err: err})
}

// Close is engine.Device's. Memory that a kernel may still come to stays until the GPU is closed.
func (d *device) Close() {
	d.watcher.stop()
	if d.left() {
		d.free()
	} else {
		d.gpu.keep(d)
	}
}

// left waits until no kernel uses the communicator's memory any more. It is false if that can't be known.
func (d *device) left() bool {
	if d.captured.Load() {
		d.page.Stop() // what is launched from now on leaves at once
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return true
	}
	if !d.idle() {
		d.page.Stop()
	}
	if d.mark(d.fence) != nil {
		return false
	}
	for p := (pause{}); p.waited < leaveTime; p.wait() {
		if err := d.fence.Query(); !errors.Is(err, cuda.ErrNotReady) {
			return err == nil
		}
	}
	return false
}

func (d *device) free() {
	if d.windows != nil {
		d.windows.release()
	}
	if d.fence != nil {
		_ = d.fence.Destroy()
	}
	if d.side != nil {
		_ = d.side.Destroy()
	}
	if d.page != nil {
		d.page.free()
	}
}
