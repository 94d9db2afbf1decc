//go:build linux && cgo

package queue

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A Page is host memory that the GPU writes: the tape's, or, where that has none or the driver can't map it, as on a
// disk, memory of its own.
type Page struct {
	*tape.DevicePage
	context *cuda.Context
	own     []byte
	onTape  *tape.DevicePage // the tape's that couldn't be mapped, which show writes; or nil
	At      cuda.Pointer     // where the GPU reaches it
}

func newPage(c *cuda.Context, w *tape.CommWriter) (p *Page, err error) {
	const size = int(unsafe.Sizeof(tape.DevicePage{}))
	p = &Page{context: c, DevicePage: w.DevicePage()}
	if p.DevicePage != nil {
		if p.At, err = c.Register(unsafe.Pointer(p.DevicePage), size); err == nil {
			return p, nil
		}
		p.onTape = p.DevicePage
	}
	const readWrite, own = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_ANONYMOUS
	if p.own, err = syscall.Mmap(-1, 0, size, readWrite, own); err != nil {
		return nil, fmt.Errorf("memory for what kernels tell: %w", err)
	}
	p.DevicePage = (*tape.DevicePage)(unsafe.Pointer(unsafe.SliceData(p.own)))
	if p.At, err = c.Register(unsafe.Pointer(p.DevicePage), size); err != nil {
		_ = syscall.Munmap(p.own)
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

// free frees a page; nil is none.
func (p *Page) free() {
	if p == nil {
		return
	}
	_ = p.context.Unregister(unsafe.Pointer(p.DevicePage))
	if p.own != nil {
		_ = syscall.Munmap(p.own)
	}
}
