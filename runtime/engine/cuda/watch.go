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
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const (
	// leaveTime is for how long a communicator that ends waits for its kernels, which leave within a millisecond unless
	// what lies before them on their stream takes longer.
	leaveTime = 2 * time.Second
	// lookEvery is how often what runs is looked at, and lookAtGraphs once graphs may launch kernels unseen.
	lookEvery    = time.Millisecond
	lookAtGraphs = 10 * time.Millisecond
)

// A page is host memory that the kernels write: the tape's, or, where that has none or the driver can't map it, memory
// of its own.
type page struct {
	*tape.DevicePage
	context *cuda.Context
	own     []byte
	at      cuda.Pointer // where the GPU reaches it
}

func newPage(c *cuda.Context, w *tape.CommWriter) (p *page, err error) {
	const size = int(unsafe.Sizeof(tape.DevicePage{}))
	p = &page{context: c, DevicePage: w.DevicePage()}
	if p.DevicePage != nil {
		if p.at, err = c.Register(unsafe.Pointer(p.DevicePage), size); err == nil {
			return p, nil
		}
	}
	const readWrite, own = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_ANONYMOUS
	if p.own, err = syscall.Mmap(-1, 0, size, readWrite, own); err != nil {
		return nil, fmt.Errorf("memory for what kernels tell: %w", err)
	}
	p.DevicePage = (*tape.DevicePage)(unsafe.Pointer(unsafe.SliceData(p.own)))
	if p.at, err = c.Register(unsafe.Pointer(p.DevicePage), size); err != nil {
		_ = syscall.Munmap(p.own)
		return nil, err
	}
	return p, nil
}

func (p *page) free() {
	_ = p.context.Unregister(unsafe.Pointer(p.DevicePage))
	if p.own != nil {
		_ = syscall.Munmap(p.own)
	}
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
	d.page.Stop()
	d.failed(err)
	return true
}

// trouble is why what runs will never be done.
func (d *device) trouble() error {
	if err := d.mismatch(); err != nil {
		return err
	}
	if lost := d.comm.FirstLost(); lost != nil {
		lost.Call, lost.Seq, _, _ = d.Current()
		return lost
	}
	if err := d.side.Query(); err != nil {
		return &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "what was put on the GPU has failed", Err: err}
	}
	return nil
}

// Current is engine.Device's.
func (d *device) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	next := d.page.Done() + 1
	r := &d.recent[next%uint32(len(d.recent))]
	if d.captured.Load() || r.launch.Load() != next {
		return lifecycle.CallNone, 0, -1, false
	}
	_, waits, _ := d.page.Waits()
	return r.call, r.seq, int(waits), true
}

// mismatch is the error of an operation that a kernel has given up, because it found another rank's call by a packet.
func (d *device) mismatch() error {
	phase, other, _ := d.page.Waits()
	if kernel.Phase(phase) != kernel.Mismatch {
		return nil
	}
	p := d.comm.PeerError(lifecycle.CodeMismatch, -1, "") // the two differ: who is wrong the kernel can't know
	if d.size == 2 {
		p.Rank = int(other)
	}
	p.Call, p.Seq = lifecycle.CallNone, 0
	next := d.page.Done() + 1
	if r := &d.recent[next%uint32(len(d.recent))]; r.launch.Load() == next {
		p.Call, p.Seq = r.call, r.seq
		p.Detail = fmt.Sprintf("call: rank %d says %s of %d bytes, rank %d makes another one, or with other arguments",
			d.rank, r.call, r.bytes, other)
	}
	return p
}
