//go:build linux && cgo

package cuda

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

const (
	// leaveTime is for how long a communicator that ends waits for its kernels, which leave within a millisecond unless
	// what lies before them on their stream takes longer.
	leaveTime = 2 * time.Second
	// lookEvery is how often what runs is looked at, and lookAtGraphs once graphs may launch kernels unseen.
	lookEvery    = time.Millisecond
	lookAtGraphs = 10 * time.Millisecond
)

// A page is host memory that the kernels write: the abort word, and behind it the words of each block.
type page struct {
	context *cuda.Context
	mem     []byte
	abort   cuda.Pointer // where the GPU reaches them
	words   cuda.Pointer
}

const wordsAt = 64

func newPage(c *cuda.Context) (*page, error) {
	const bytes = 4096 // at least wordsAt + kernel.MaxBlocks * 32
	const readWrite, own = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_ANONYMOUS
	mem, err := syscall.Mmap(-1, 0, bytes, readWrite, own)
	if err != nil {
		return nil, fmt.Errorf("memory for what kernels tell: %w", err)
	}
	p := &page{context: c, mem: mem}
	if p.abort, err = c.Register(unsafe.Pointer(&mem[0]), bytes); err != nil {
		_ = syscall.Munmap(mem)
		return nil, err
	}
	p.words = p.abort + wordsAt
	return p, nil
}

func (p *page) free() {
	_ = p.context.Unregister(unsafe.Pointer(&p.mem[0]))
	_ = syscall.Munmap(p.mem)
}

func (p *page) setAbort() { (*atomic.Uint32)(unsafe.Pointer(&p.mem[0])).Store(1) }

// A word is the first half of what a block has written: all but the time.
type word uint64

func (w word) epoch() uint32       { return uint32(w) }
func (w word) phase() kernel.Phase { return kernel.Phase(w >> 32) }
func (w word) peer() int           { return int(uint8(w >> 40)) }
func (w word) blocks() int         { return int(uint16(w >> 48)) }

func (p *page) word(block, half int) word {
	return word((*atomic.Uint64)(unsafe.Pointer(&p.mem[wordsAt+block*32+half*16])).Load())
}

// doneBy is what a block was last done with, and waits what it last waited for.
func (p *page) doneBy(block int) word { return p.word(block, 0) }
func (p *page) waits(block int) word  { return p.word(block, 1) }

// done is the last epoch with which all blocks are done. A kernel begins when the one before it has ended.
func (p *page) done() uint32 {
	newest := p.doneBy(0)
	for b := 1; b < kernel.MaxBlocks; b++ {
		if w := p.doneBy(b); int32(w.epoch()-newest.epoch()) > 0 {
			newest = w
		}
	}
	for b := range newest.blocks() {
		if p.doneBy(b).epoch() != newest.epoch() {
			return newest.epoch() - 1
		}
	}
	return newest.epoch()
}

// pause is the time between two looks, which grows.
type pause struct {
	next   time.Duration
	waited time.Duration
}

func (p *pause) wait() {
	p.next = min(max(2*p.next, 20*time.Microsecond), lookEvery)
	time.Sleep(p.next)
	p.waited += p.next
}

// A watcher looks at what runs on the GPU, for as long as something does.
type watcher struct {
	on      atomic.Bool
	wake    chan struct{}
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

func newWatcher() *watcher {
	w := &watcher{wake: make(chan struct{}, 1)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// start says that something runs.
func (w *watcher) start() {
	if !w.on.Load() && !w.on.Swap(true) {
		w.wake <- struct{}{}
	}
}

// stop returns when the watcher's goroutine has ended.
func (w *watcher) stop() {
	w.end()
	w.running.Wait()
}

// watch is the watcher's goroutine.
func (d *device) watch() {
	w := d.watcher
	for {
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return
		}
		for p := (pause{}); !d.idle(); p.wait() {
			if w.ctx.Err() != nil || d.look() {
				return
			}
			if p.next == lookEvery && d.captured.Load() {
				time.Sleep(lookAtGraphs - lookEvery)
			}
		}
		w.on.Store(false)
		if !d.idle() {
			w.start()
		}
	}
}

// look looks once, and is true when the communicator has stopped: then the kernels leave.
func (d *device) look() bool {
	err := d.comm.Stopped()
	if err == nil {
		if err = d.trouble(); err != nil {
			err = d.comm.Stop(err)
		}
	}
	if err == nil {
		return false
	}
	d.page.setAbort()
	d.failed(err)
	return true
}

// trouble is why what runs will never be done.
func (d *device) trouble() error {
	if err := d.mismatch(); err != nil {
		return err
	}
	if lost := d.comm.FirstLost(); lost != nil {
		return lost
	}
	if err := d.side.Query(); err != nil {
		return &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "what was put on the GPU has failed", Err: err}
	}
	return nil
}

// Current is engine.Device's.
func (d *device) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	epoch := d.page.done() + 1
	r := &d.recent[epoch%uint32(len(d.recent))]
	if d.captured.Load() || r.epoch.Load() != epoch {
		return lifecycle.CallNone, 0, -1, false
	}
	peer = -1
	for b := range kernel.MaxBlocks {
		if w := d.page.waits(b); w.epoch() == epoch && w.phase() != kernel.Done {
			peer = w.peer()
		}
	}
	return r.call, r.seq, peer, true
}

// mismatch is the error of an operation that a kernel has given up, because it found another rank's call by a packet.
func (d *device) mismatch() error {
	for b := range kernel.MaxBlocks {
		if w := d.page.waits(b); w.phase() == kernel.Mismatch {
			return d.mismatchAt(w)
		}
	}
	return nil
}

func (d *device) mismatchAt(w word) error {
	p := d.comm.PeerError(lifecycle.CodeMismatch, w.peer(), "")
	p.Call, p.Seq = lifecycle.CallNone, 0
	r := &d.recent[w.epoch()%uint32(len(d.recent))]
	if r.epoch.Load() == w.epoch() {
		p.Call, p.Seq = r.call, r.seq
		p.Detail = fmt.Sprintf("call: rank %d says %s of %d bytes, rank %d makes another one, or with other arguments",
			d.rank, r.call, r.bytes, w.peer())
	}
	return p
}
