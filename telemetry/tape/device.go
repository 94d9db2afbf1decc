package tape

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A DevicePage is host memory into which the kernels of a communicator's rank write their state: words of 16 bytes, two
// for each block of a kernel. The device itself can't be queried while a kernel runs.
type DevicePage struct {
	stop   uint32 // not 0: kernels leave
	_      [44]byte
	end    deviceWord // why the first kernel that gave up did so
	blocks [DeviceBlocks]deviceBlock
	_      [devicePageSize - 64 - DeviceBlocks*32]byte
}

// DeviceBlocks is the most blocks that a kernel has, and DeviceBlockSize the bytes of the words of one.
const (
	DeviceBlocks    = 96
	DeviceBlockSize = int(unsafe.Sizeof(deviceBlock{}))
)

// untold is the most kernels that may be done without the page showing it, when a later one waits.
const untold = marksPerSlot

// The offsets that kernels get: of the word that stops them, and of their own words.
const (
	DeviceStop  = 0
	DeviceWords = 64
)

type (
	deviceBlock struct{ done, waits deviceWord }

	// deviceWord has the number u32, phase u8, peer u8 and blocks u16; then the operation u32 and replayed u32.
	deviceWord struct{ first, second uint64 }
)

// A DeviceWord is the state of a kernel's block.
type DeviceWord struct {
	Number    uint32 // of the kernel, from 1: one begins when the one before it has ended
	Phase     uint8  // the kernel's own; 0: it waits for no rank
	Peer      int32  // the rank that it waits for
	Blocks    int    // of the kernel
	Operation uint32 // the launcher's number of the operation
	Replayed  uint32 // collectives launched by graphs, up to this kernel
}

// halves reads both halves of one write: successive words of a block differ in the first half.
func (w *deviceWord) halves() (first, second uint64) {
	for {
		first, second = atomic.LoadUint64(&w.first), atomic.LoadUint64(&w.second)
		if atomic.LoadUint64(&w.first) == first {
			return first, second
		}
	}
}

func (w *deviceWord) load() DeviceWord {
	first, second := w.halves()
	return DeviceWord{
		uint32(first), uint8(first >> 32), int32(uint8(first >> 40)), int(first >> 48),
		uint32(second), uint32(second >> 32),
	}
}

func (w *deviceWord) set(other *deviceWord) {
	first, second := other.halves()
	atomic.StoreUint64(&w.second, second)
	atomic.StoreUint64(&w.first, first)
}

// reach marks a block as done with a kernel, unless it already is. first is the first half of the kernel's word.
func (b *deviceBlock) reach(first uint64) {
	for {
		was := atomic.LoadUint64(&b.done.first)
		if int32(uint32(first)-uint32(was)) <= 0 || atomic.CompareAndSwapUint64(&b.done.first, was, first) {
			return
		}
	}
}

// Stop makes running and later kernels return if they would have to wait. Kernels that do so aren't done.
func (p *DevicePage) Stop() { atomic.StoreUint32(&p.stop, 1) }

// Newest is the last kernel whose first block is done; done tells whether all its blocks are. A block with a higher
// number is done with a later kernel, which began when this one had ended.
func (p *DevicePage) Newest() (newest DeviceWord, done bool) {
	newest = p.blocks[0].done.load()
	for b := 1; b < min(newest.Blocks, DeviceBlocks); b++ {
		if int32(p.blocks[b].done.load().Number-newest.Number) < 0 {
			return newest, false
		}
	}
	return newest, true
}

// Merge adds the kernels that are done according to another page, if a device writes some onto one page and the rest
// onto the other. Both pages may be written meanwhile.
func (p *DevicePage) Merge(other *DevicePage) {
	for b := range p.blocks {
		p.blocks[b].reach(atomic.LoadUint64(&other.blocks[b].done.first))
	}
}

// Set copies the words that kernels have written to another page. Both pages may be read meanwhile; readers of this one
// may see a word's second half before its first.
func (p *DevicePage) Set(other *DevicePage) {
	p.end.set(&other.end)
	for b := range p.blocks {
		to, from := &p.blocks[b], &other.blocks[b]
		to.done.set(&from.done)
		to.waits.set(&from.waits)
	}
}

// Done is the number of the last kernel that is known to be done: all its blocks are, or a block of the next one waits.
// No kernel after one that returned early reports a wait.
func (p *DevicePage) Done() uint32 {
	newest, all := p.Newest()
	told := newest.Number
	if !all {
		told--
	}
	done := told
	for b := range p.blocks {
		before := p.blocks[b].waits.load().Number - 1
		if before-told < untold && before-told > done-told { // otherwise the word is older
			done = before
		}
	}
	return done
}

// Waits is the word of the running kernel's block that waits in the latest phase. ok is false, and Peer -1, unless a
// block has waited for long.
func (p *DevicePage) Waits() (latest DeviceWord, ok bool) {
	running := p.Done() + 1
	latest.Peer = -1
	for b := range p.blocks {
		if w := p.blocks[b].waits.load(); w.Number == running && w.Phase > latest.Phase {
			latest = w
		}
	}
	return latest, latest.Phase != 0
}

// End is the word of the first kernel that gave up: with the rank that it waited for, and the phase as the reason. ok
// is false if none has.
func (p *DevicePage) End() (w DeviceWord, ok bool) {
	w = p.end.load()
	return w, w.Phase != 0
}

// DevicePage returns the device page of the communicator's slot, for kernels that write onto the tape themselves; nil
// if there is none. It is page-aligned, and stays mapped for as long as the Writer is reachable. The caller clears it:
// kernels of the slot's previous communicator may still write it.
func (c *CommWriter) DevicePage() *DevicePage {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.index < 0 || c.index >= len(c.w.devices) {
		return nil
	}
	return &c.w.devices[c.index]
}

// Captured says that the last started operation is captured in a graph, whose launches are not seen. If it ends well,
// its end has PhaseCaptured. Call it before End.
func (c *CommWriter) Captured() {
	if c != nil {
		c.op.find(c.op.launched).captured = true
	}
}

// Launched records that the operation for which Start returned launched runs on a device, with number as its last
// kernel: Start and End are those of its launch. For readers it is in flight until the device page shows that it is
// done. Call it before End.
func (c *CommWriter) Launched(launched uint64, number uint32) {
	if c == nil || c.closed || c.index < 0 || c.index >= len(c.w.devices) {
		return
	}
	p := c.op.find(launched)
	at := number % marksPerSlot
	for of := &c.w.marked[c.index].marks; ; at = (at + marksPerSlot - 1) % marksPerSlot {
		// If more operations are queued than there is room for, the oldest stay, and the newest is replaced.
		was := of[at][recMarker]
		if uint32(of[at][recComm]) != c.number || c.deviceHasDone(uint32(was>>32), number) ||
			at == (number+1)%marksPerSlot {
			break
		}
	}
	store(&c.w.marked[c.index].marks[at], uint64(number), kindMark, uint64(p.start), p.number,
		p.kinds|uint64(PhaseQueued)<<32, pack32(p.peer, int32(uint32(c.slot.begun))), p.bytes, launched, c.comm)
	runtime.KeepAlive(c)
}

// deviceHasDone tells whether the device is known to have done a kernel, when another one is launched. Reading memory
// that a device has written takes long, so the page is read for some launches only.
func (c *CommWriter) deviceHasDone(kernel, launched uint32) bool {
	if int32(kernel-c.deviceDone) > 0 && launched-c.deviceRead >= marksPerSlot/2 {
		c.deviceDone, c.deviceRead = c.w.devices[c.index].Done(), launched
	}
	return int32(kernel-c.deviceDone) <= 0
}

var _ = [1]struct{}{}[devicePageSize-unsafe.Sizeof(DevicePage{})]
