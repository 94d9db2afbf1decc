//go:build linux && cgo

package cuda

// #include "driver.h"
// #cgo noescape shim_pointer
// #cgo nocallback shim_pointer
import "C"

import "unsafe"

// c is a pointer as C's.
func (p *Pointer) c() *C.CUdeviceptr { return (*C.CUdeviceptr)(p) }

// Alloc allocates n elements of a device's memory. The caller frees them with Context.Free.
func Alloc[T any](c *Context, n int) (Buffer[T], error) {
	p, err := c.Alloc(n * int(unsafe.Sizeof(*new(T))))
	return Wrap[T](p, n), err
}

// Alloc allocates bytes of the device's memory, aligned to 256. The caller frees it.
func (c *Context) Alloc(bytes int) (Pointer, error) {
	var p Pointer
	err := c.check("cuMemAlloc", C.shim_alloc(c.driver.c, c.c, p.c(), C.size_t(bytes)))
	return p, err
}

// Free frees what Alloc allocated. It waits for all work on the device.
func (c *Context) Free(p Pointer) error {
	return c.check("cuMemFree", C.shim_free(c.driver.c, c.c, C.CUdeviceptr(p)))
}

// CopyToDevice copies from the host, and returns when it is done.
func (c *Context) CopyToDevice(to Pointer, from []byte) error {
	return c.check("cuMemcpy", C.shim_copy_to_device(c.driver.c, c.c, C.CUdeviceptr(to),
		unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

// CopyToHost copies from a device, and returns when it is done.
func (c *Context) CopyToHost(to []byte, from Pointer) error {
	return c.check("cuMemcpy", C.shim_copy_to_host(c.driver.c, c.c, unsafe.Pointer(unsafe.SliceData(to)),
		C.CUdeviceptr(from), C.size_t(len(to))))
}

// Copy copies between any two places that the driver knows: devices and registered host memory. It puts the copy on a
// stream, and returns.
func (s *Stream) Copy(to, from Pointer, bytes int) error {
	return s.check("cuMemcpyAsync", C.shim_copy_async(s.driver.c, s.context.c, C.CUdeviceptr(to), C.CUdeviceptr(from),
		C.size_t(bytes), s.c))
}

// Set sets bytes to a value, on a stream.
func (s *Stream) Set(to Pointer, value byte, bytes int) error {
	return s.check("cuMemsetD8Async", C.shim_set(s.driver.c, s.context.c, C.CUdeviceptr(to), C.uchar(value),
		C.size_t(bytes), s.c))
}

// An Allocation is what the driver knows of an address.
type Allocation struct {
	Base   Pointer // where the allocation begins
	Bytes  uint64
	Device int    // the ordinal of the device whose memory it is, or in whose context it was registered
	Host   bool   // host memory, registered or of Context.CreateOnHost
	ID     uint64 // no other allocation of the process has it, not even a later one at the same address
	IPC    bool   // IPCHandle works
}

// Lookup says what is at an address, whoever allocated it. It fails with ErrInvalidValue for what the driver doesn't
// know: plain host memory, and memory that was freed.
func (c *Context) Lookup(p Pointer) (Allocation, error) {
	var i C.pointer_info
	if err := c.check("cuPointerGetAttributes", C.shim_pointer(c.driver.c, c.c, C.CUdeviceptr(p), &i)); err != nil {
		return Allocation{}, err
	}
	if i._type == 0 { // it answers for an address that it doesn't know, too, but with nothing
		return Allocation{}, c.check("cuPointerGetAttributes", C.CUresult(ErrInvalidValue))
	}
	return Allocation{
		Base: Pointer(i.base), Bytes: uint64(i.bytes), Device: int(i.ordinal), Host: i._type == 1, ID: uint64(i.id),
		IPC: i.ipc != 0,
	}, nil
}
