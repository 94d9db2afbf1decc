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
	context *cuda.Context    // that has registered it
	tape    *tape.CommWriter // which keeps the tape mapped; nil if the page is own
	own     []byte
	onTape  *tape.DevicePage // the tape's that couldn't be registered, which show writes; or nil
	written bool             // something on a stream may still write it
}

const pageSize = int(unsafe.Sizeof(tape.DevicePage{}))

// Pages are those that are registered with a driver. A driver that unregisters memory waits for all that runs on the
// process's GPUs, and other calls wait for it. Were it done when a communicator ends, a kernel of another one might
// wait for a rank that can't launch its own. So a page is used again, and unregistered when the process has no queue.
type pages struct {
	mu   sync.Mutex
	used int
	free []*Page
}

func pagesOf(c *cuda.Context) *pages {
	type key struct{}
	return c.Driver().Keep(key{}, new(pages)).(*pages) //nolint:errcheck // nobody else has the key
}

// newPage returns a page with nothing on it: that of a communicator's slot on the tape, or one for nobody but the queue
// if w is nil.
func newPage(c *cuda.Context, w *tape.CommWriter) (p *Page, err error) {
	all := pagesOf(c)
	all.mu.Lock()
	defer all.mu.Unlock()
	onTape := w.DevicePage()
	if p, err = all.take(c, w, onTape); err != nil && onTape != nil {
		p, err = all.take(c, nil, nil)
	}
	if err != nil {
		return nil, err
	}
	*p.DevicePage, p.onTape = tape.DevicePage{}, nil
	if p.own != nil {
		p.onTape = onTape
		p.show()
	}
	all.used++
	return p, nil
}

// take is a page of the tape, or one that the process allocates if page is nil.
func (all *pages) take(c *cuda.Context, w *tape.CommWriter, page *tape.DevicePage) (p *Page, err error) {
	if i := slices.IndexFunc(all.free, func(p *Page) bool {
		return !p.written && (p.DevicePage == page || page == nil && p.own != nil)
	}); i >= 0 {
		p = all.free[i]
		all.free = slices.Delete(all.free, i, i+1)
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
	if p.context, err = c.Device().Retain(); err == nil { // for as long as the page is registered
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
	all := pagesOf(p.context)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.free = append(all.free, p)
	if all.used--; all.used > 0 {
		return
	}
	for _, p := range all.free {
		_ = p.context.Unregister(unsafe.Pointer(p.DevicePage))
		p.unmap()
	}
	all.free = nil
}

func (p *Page) unmap() {
	if p.context != nil {
		_ = p.context.Release()
	}
	if p.own != nil {
		_ = syscall.Munmap(p.own)
	}
}
