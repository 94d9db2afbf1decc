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

// A Page is host memory that the GPU writes to: the tape's page, or memory of its own if there is no tape or the driver
// can't map the tape, for example on a disk.
type Page struct {
	*tape.DevicePage
	At      cuda.Pointer     // its address on GPUs
	context *cuda.Context    // the context that registered it
	tape    *tape.CommWriter // keeps the tape mapped; nil if the page is own
	own     []byte
	onTape  *tape.DevicePage // the tape's page that couldn't be registered, to which show copies; or nil
	written bool             // something on a stream may still write to it
}

const pageSize = int(unsafe.Sizeof(tape.DevicePage{}))

// pages are the pages registered with a driver. Unregistering memory waits for everything that runs on the process's
// GPUs, and blocks other driver calls meanwhile. If that happened at the end of a communicator, a kernel of another one
// might wait for a rank that can't launch its kernel. So pages are reused, and only unregistered when the process has
// no queue left.
type pages struct {
	mu   sync.Mutex
	used int
	free []*Page
}

func pagesOf(c *cuda.Context) *pages {
	type key struct{}
	return c.Driver().Keep(key{}, new(pages)).(*pages) //nolint:errcheck // nobody else has the key
}

// newPage returns an empty page: the page of a communicator's slot on the tape, or, if w is nil, a page only for the
// queue.
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

// take returns the given page of the tape, or, if page is nil, one that the process allocates.
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
	if p.context, err = c.Device().Retain(); err == nil { // held while the page is registered
		p.At, err = p.context.Register(unsafe.Pointer(p.DevicePage), pageSize)
	}
	if err != nil {
		p.unmap()
		return nil, err
	}
	return p, nil
}

// Words is the address to which kernels write.
func (p *Page) Words() cuda.Pointer { return p.At + tape.DeviceWords }

// Abort is the address at which kernels check whether to leave.
func (p *Page) Abort() cuda.Pointer { return p.At + tape.DeviceStop }

// show copies to the tape what the GPU can't write there itself.
func (p *Page) show() {
	if p.onTape != nil {
		p.onTape.Set(p.DevicePage)
	}
}

// free returns a page. If something on a stream may still write to it, no other queue gets it. A nil page is ignored.
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
