package tape

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A DevicePage is what the kernels of a communicator's rank write into host memory, in words of 16 bytes. Each of a
// kernel's blocks has two, so that nobody has to ask a device, which answers nobody while a kernel runs.
type DevicePage struct {
	stop   uint32 // not 0: kernels leave
	_      [60]byte
	blocks [DeviceBlocks]deviceBlock
	_      [devicePageSize - 64 - DeviceBlocks*32]byte
}

// DeviceBlocks is the most blocks that a kernel has.
const DeviceBlocks = 64

// Where a DevicePage has what kernels are told of: the word that stops them, and the first of their own.
const (
	DeviceStop  = 0
	DeviceWords = 64
)

type (
	deviceBlock struct{ done, waits deviceWord }

	// deviceWord has in value the number u32, phase u8, peer u8, and how many blocks the kernel has u16. Behind it is
	// the device's time.
	deviceWord struct{ value, _ uint64 }
)

func (w *deviceWord) load() (number uint32, phase uint8, peer int32, blocks int) {
	v := atomic.LoadUint64(&w.value)
	return uint32(v), uint8(v >> 32), int32(uint8(v >> 40)), int(v >> 48)
}

// Stop makes running and later kernels leave.
func (p *DevicePage) Stop() { atomic.StoreUint32(&p.stop, 1) }

// Done is the number of the last kernel of which all blocks are done: kernels are numbered from 1, and one begins when
// the one before it has ended.
func (p *DevicePage) Done() uint32 {
	newest, _, _, blocks := p.blocks[0].done.load()
	for b := 1; b < DeviceBlocks; b++ {
		if n, _, _, of := p.blocks[b].done.load(); int32(n-newest) > 0 {
			newest, blocks = n, of
		}
	}
	for b := range min(blocks, DeviceBlocks) {
		if n, _, _, _ := p.blocks[b].done.load(); n != newest {
			return newest - 1
		}
	}
	return newest
}

// Waits returns the rank that the running kernel waits for, and the kernel's phase, of the block that is in the latest
// phase. ok is false unless a block has waited for long.
func (p *DevicePage) Waits() (phase uint8, peer int32, ok bool) {
	running := p.Done() + 1
	peer = -1
	for b := range p.blocks {
		if n, in, of, _ := p.blocks[b].waits.load(); n == running && in > phase {
			phase, peer = in, of
		}
	}
	return phase, peer, phase != 0
}

// DevicePage clears and returns the device page of the communicator's slot, for kernels that write onto the tape
// themselves; nil if there is none. It is page-aligned, and stays mapped for as long as the Writer is reachable.
func (c *CommWriter) DevicePage() *DevicePage {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.index < 0 || c.index >= len(c.w.devices) {
		return nil
	}
	p := &c.w.devices[c.index]
	*p = DevicePage{}
	return p
}

// Captured notes that the last operation that was started was captured in a graph: the device runs it with each launch
// of the graph, unseen.
func (c *CommWriter) Captured() {
	if c != nil {
		storeRelease(&c.slot.captured, c.slot.captured+1)
	}
}

// Launched notes that the operation for which Start returned launched runs on a device, and number is its last kernel:
// Start and End are of its launch alone. For readers it is in flight until the device page shows that it is done. Call
// it before End.
func (c *CommWriter) Launched(launched uint64, number uint32) {
	if c == nil || c.closed || c.index < 0 || c.index >= len(c.w.devices) {
		return
	}
	p := c.op.find(launched)
	at, done := number%marksPerSlot, c.w.devices[c.index].Done()
	for of := &c.w.marks[c.index]; ; at = (at + marksPerSlot - 1) % marksPerSlot {
		// If more operations are queued than there is room, the oldest stay, and the newest is replaced.
		was := of[at][recMarker]
		if uint32(of[at][recComm]) != c.number || int32(uint32(was>>32)-done) <= 0 || at == (number+1)%marksPerSlot {
			break
		}
	}
	store(&c.w.marks[c.index][at], uint64(number), kindMark, uint64(p.start), p.number,
		p.kinds|uint64(PhaseQueued)<<32, pack32(p.peer, int32(uint32(c.slot.begun))), p.bytes, launched, c.comm)
	runtime.KeepAlive(c)
}

var _ = [1]struct{}{}[devicePageSize-unsafe.Sizeof(DevicePage{})]
