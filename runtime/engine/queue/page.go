//go:build linux && cgo

package queue

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A Page is host memory that the GPU writes: the tape's, or, where that has none or the driver can't map it, as on a
// disk, memory of its own.
type Page struct {
	*tape.DevicePage
	At      cuda.Pointer     // where GPUs reach it
	context *cuda.Context    // by which they do; retained
	tape    *tape.CommWriter // by which it stays; nil if it is own
	own     []byte
	onTape  *tape.DevicePage // the tape's that couldn't be mapped, which show writes; or nil
	written bool             // something on a stream may still write it
}

const pageSize = int(unsafe.Sizeof(tape.DevicePage{}))

// Pages are those that a driver has mapped. It ends a mapping when all is done that runs on the process's GPUs, and
// keeps other calls waiting, by one of which a rank may do what that waits for. So a page stays mapped, for the next
// queue, until the process has none.
var pages = struct {
	sync.Mutex
	used map[*cuda.Driver]int
	free map[*cuda.Driver][]*Page
}{used: map[*cuda.Driver]int{}, free: map[*cuda.Driver][]*Page{}}

// newPage returns a page with nothing on it: that of a communicator's slot on the tape, or one for nobody but the queue
// if w is nil.
func newPage(c *cuda.Context, w *tape.CommWriter) (p *Page, err error) {
	pages.Lock()
	defer pages.Unlock()
	onTape := w.DevicePage()
	if p, err = mapped(c, w, onTape); err != nil && onTape != nil {
		p, err = mapped(c, nil, nil)
	}
	if err != nil {
		return nil, err
	}
	*p.DevicePage, p.onTape = tape.DevicePage{}, nil
	if p.own != nil {
		p.onTape = onTape
		p.show()
	}
	pages.used[c.Driver()]++
	return p, nil
}

// mapped is a page that is mapped: one of the tape, or one that the process allocates if page is nil.
func mapped(c *cuda.Context, w *tape.CommWriter, page *tape.DevicePage) (p *Page, err error) {
	free := pages.free[c.Driver()]
	if i := slices.IndexFunc(free, func(p *Page) bool {
		return !p.written && (p.DevicePage == page || page == nil && p.own != nil)
	}); i >= 0 {
		p = free[i]
		pages.free[c.Driver()] = slices.Delete(free, i, i+1)
		return p, nil
	}
	p = &Page{DevicePage: page, tape: w}
	if page == nil {
		const readWrite, own = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_ANONYMOUS
		if p.own, err = syscall.Mmap(-1, 0, pageSize, readWrite, own); err != nil {
			return nil, fmt.Errorf("memory for what kernels tell: %w", err)
		}
		p.DevicePage = (*tape.DevicePage)(unsafe.Pointer(unsafe.SliceData(p.own)))
	}
	if p.context, err = c.Device().Retain(); err == nil {
		p.At, err = p.context.Register(unsafe.Pointer(p.DevicePage), pageSize)
	}
	if err != nil {
		p.unmap()
		return nil, err
	}
	return p, nil
}

// Words is where kernels write.
func (p *Page) Words() cuda.Pointer { return p.At + tape.DeviceWords }

// Abort is where kernels look whether to leave.
func (p *Page) Abort() cuda.Pointer { return p.At + tape.DeviceStop }

// show copies onto the tape what the GPU can't write there itself.
func (p *Page) show() {
	if p.onTape != nil {
		p.onTape.Set(p.DevicePage)
	}
}

// free gives a page back. If something on a stream may still write it, it is for no other queue. Nil is none.
func (p *Page) free(written bool) {
	if p == nil {
		return
	}
	p.written = written
	pages.Lock()
	defer pages.Unlock()
	d := p.context.Driver()
	pages.free[d] = append(pages.free[d], p)
	if pages.used[d]--; pages.used[d] > 0 {
		return
	}
	for _, p := range pages.free[d] {
		_ = p.context.Unregister(unsafe.Pointer(p.DevicePage))
		p.unmap()
	}
	delete(pages.free, d)
	delete(pages.used, d)
}

func (p *Page) unmap() {
	if p.context != nil {
		_ = p.context.Release()
	}
	if p.own != nil {
		_ = syscall.Munmap(p.own)
	}
}
