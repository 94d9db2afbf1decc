//go:build linux && cgo

package cuda

// #include "driver.h"
// #cgo noescape shim_pointer
// #cgo nocallback shim_pointer
import "C"

import "unsafe"

// c returns the pointer as a C type.
func (p *Pointer) c() *C.CUdeviceptr { return (*C.CUdeviceptr)(p) }

// Alloc allocates n elements of a device's memory. The caller frees them with Context.Free.
func Alloc[T any](c *Context, n int) (Buffer[T], error) {
	p, err := c.Alloc(n * int(unsafe.Sizeof(*new(T))))
	return Wrap[T](p, n), err
}

// Alloc allocates bytes of the device's memory, aligned to 256. The caller frees them with Free.
func (c *Context) Alloc(bytes int) (Pointer, error) {
	var p Pointer
	err := c.check("cuMemAlloc", C.shim_alloc(c.driver.c, c.c, p.c(), C.size_t(bytes)))
	return p, err
}

// Free frees what Alloc allocated. It waits for all work on the device.
func (c *Context) Free(p Pointer) error {
	return c.check("cuMemFree", C.shim_free(c.driver.c, c.c, C.CUdeviceptr(p)))
}

// CopyToDevice copies from the host, and returns when the copy is done.
func (c *Context) CopyToDevice(to Pointer, from []byte) error {
	return c.check("cuMemcpy", C.shim_copy_to_device(c.driver.c, c.c, C.CUdeviceptr(to),
		unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

// CopyToHost copies from a device, and returns when the copy is done.
func (c *Context) CopyToHost(to []byte, from Pointer) error {
	return c.check("cuMemcpy", C.shim_copy_to_host(c.driver.c, c.c, unsafe.Pointer(unsafe.SliceData(to)),
		C.CUdeviceptr(from), C.size_t(len(to))))
}

// Copy copies between any two places that the driver knows: devices and registered host memory. It puts the copy on the
// stream, and returns.
func (s *Stream) Copy(to, from Pointer, bytes int) error {
	return s.check("cuMemcpyAsync", C.shim_copy_async(s.driver.c, s.context.c, C.CUdeviceptr(to), C.CUdeviceptr(from),
		C.size_t(bytes), s.c))
}

// Set sets bytes to a value, on the stream.
func (s *Stream) Set(to Pointer, value byte, bytes int) error {
	return s.check("cuMemsetD8Async", C.shim_set(s.driver.c, s.context.c, C.CUdeviceptr(to), C.uchar(value),
		C.size_t(bytes), s.c))
}

// An Allocation is what the driver knows about an address.
type Allocation struct {
	Base   Pointer // where the allocation begins
	Bytes  uint64
	Device int    // ordinal of the device that has the memory, or in whose context it was registered
	Host   bool   // host memory, registered or made by Context.CreateOnHost
	ID     uint64 // unique among all allocations of the process, even later ones at the same address
	IPC    bool   // IPCHandle works
}

// Lookup returns what is at an address, whoever allocated it. It fails with ErrInvalidValue for memory that the driver
// doesn't know: plain host memory, and memory that was freed.
func (c *Context) Lookup(p Pointer) (Allocation, error) {
	var i C.pointer_info
	if err := c.check("cuPointerGetAttributes", C.shim_pointer(c.driver.c, c.c, C.CUdeviceptr(p), &i)); err != nil {
		return Allocation{}, err
	}
	if i._type == 0 { // for an unknown address it returns no error, but no information either
		return Allocation{}, c.check("cuPointerGetAttributes", C.CUresult(ErrInvalidValue))
	}
	return Allocation{
		Base: Pointer(i.base), Bytes: uint64(i.bytes), Device: int(i.ordinal), Host: i._type == 1, ID: uint64(i.id),
		IPC: i.ipc != 0,
	}, nil
}
