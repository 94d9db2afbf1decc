//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import "unsafe"

// Register has the driver map host memory, so that devices of every context read and write it at the address that it
// answers. The memory begins and ends at a page's border, isn't Go's, and stays mapped until Unregister. A file on
// tmpfs, mapped shared, is such memory.
func (c *Context) Register(memory unsafe.Pointer, bytes int) (Pointer, error) {
	if err := c.check("cuMemHostRegister", C.shim_register(c.driver.c, c.c, memory, C.size_t(bytes))); err != nil {
		return 0, err
	}
	var p Pointer
	if err := c.check("cuMemHostGetDevicePointer", C.shim_host_pointer(c.driver.c, c.c, p.c(), memory)); err != nil {
		_ = c.Unregister(memory)
		return 0, err
	}
	return p, nil
}

// Unregister ends it. The driver waits for all that runs on the GPUs of the process, and other threads' calls of it
// wait meanwhile.
func (c *Context) Unregister(memory unsafe.Pointer) error {
	return c.check("cuMemHostUnregister", C.shim_unregister(c.driver.c, c.c, memory))
}

// A Shareable is memory of a device, or of the host, that other processes can map, by a file descriptor.
type Shareable struct {
	driver  *Driver
	context *Context
	c       C.CUmem
}

// Granularity is what the bytes of Shareable memory are a multiple of: 2 MiB.
func (c *Context) Granularity() (int, error) {
	var n C.size_t
	err := c.check("cuMemGetAllocationGranularity", C.shim_granularity(c.driver.c, c.c, c.device.c, &n))
	return int(n), err
}

// Create makes memory on the device. It has no address before it is mapped.
func (c *Context) Create(bytes int) (*Shareable, error) { return c.create(0, c.device.c, bytes) }

// CreateOnHost makes memory on the host's NUMA node that is nearest to the device. Every device reaches it. Unlike
// Unregister, Unmap waits for no device. It takes a driver from 12.6 on; in a container, the right to say on which
// node memory lies (mbind; for Docker --cap-add SYS_NICE).
func (c *Context) CreateOnHost(bytes int) (*Shareable, error) {
	node, err := c.device.Attribute(hostNUMANode)
	if err != nil {
		return nil, err
	}
	return c.create(1, C.int(max(node, 0)), bytes) // -1 is a host without nodes, or of one
}

func (c *Context) create(onHost, ordinal C.int, bytes int) (*Shareable, error) {
	m := &Shareable{driver: c.driver, context: c}
	err := c.check("cuMemCreate", C.shim_create(c.driver.c, c.c, onHost, ordinal, &m.c, C.size_t(bytes)))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Import takes memory of another process's, or another context's, by what Export answered there. The descriptor stays
// the caller's.
func (c *Context) Import(fd int) (*Shareable, error) {
	m := &Shareable{driver: c.driver, context: c}
	if err := c.check("cuMemImportFromShareableHandle", C.shim_import(c.driver.c, c.c, &m.c, C.int(fd))); err != nil {
		return nil, err
	}
	return m, nil
}

// Export answers a file descriptor, which the caller closes, to be sent to another process over a Unix socket.
func (m *Shareable) Export() (int, error) {
	var fd C.int
	err := m.driver.check("cuMemExportToShareableHandle", C.shim_export(m.driver.c, m.context.c, &fd, m.c))
	return int(fd), err
}

// Release gives the memory up. It goes when nobody maps it any more, in any process.
func (m *Shareable) Release() error {
	return m.driver.check("cuMemRelease", C.shim_mem_release(m.driver.c, m.context.c, m.c))
}

// Map maps all of the memory, which has so many bytes, where the context's device reads and writes it.
func (m *Shareable) Map(bytes int) (Pointer, error) {
	c, n := m.context, C.size_t(bytes)
	var p Pointer
	if err := c.check("cuMemAddressReserve", C.shim_reserve(c.driver.c, c.c, p.c(), n)); err != nil {
		return 0, err
	}
	at := C.CUdeviceptr(p)
	if err := c.check("cuMemMap", C.shim_map(c.driver.c, c.c, at, n, m.c)); err != nil {
		_ = C.shim_unreserve(c.driver.c, c.c, at, n)
		return 0, err
	}
	if err := c.check("cuMemSetAccess", C.shim_access(c.driver.c, c.c, at, n, c.device.c)); err != nil {
		_ = c.Unmap(p, bytes)
		return 0, err
	}
	return p, nil
}

// Unmap takes back what Map did. It waits for nothing: the caller knows that no kernel uses the memory.
func (c *Context) Unmap(p Pointer, bytes int) error {
	at, n := C.CUdeviceptr(p), C.size_t(bytes)
	if err := c.check("cuMemUnmap", C.shim_unmap(c.driver.c, c.c, at, n)); err != nil {
		return err
	}
	return c.check("cuMemAddressFree", C.shim_unreserve(c.driver.c, c.c, at, n))
}

// An IPCHandle names an allocation of Alloc's, or of cudaMalloc, for another process.
type IPCHandle [64]byte

// IPCHandle answers the handle of the allocation that an address is in. It fails with ErrInvalidValue for memory of
// another kind: see Allocation.IPC.
func (c *Context) IPCHandle(p Pointer) (IPCHandle, error) {
	var h IPCHandle
	err := c.check("cuIpcGetMemHandle", C.shim_ipc_get(c.driver.c, c.c, unsafe.Pointer(&h), C.CUdeviceptr(p)))
	return h, err
}

// OpenIPC maps an allocation of another process, from its beginning. It must be closed before that process frees it.
func (c *Context) OpenIPC(h IPCHandle) (Pointer, error) {
	var p Pointer
	err := c.check("cuIpcOpenMemHandle", C.shim_ipc_open(c.driver.c, c.c, p.c(), unsafe.Pointer(&h)))
	return p, err
}

// CloseIPC unmaps it.
func (c *Context) CloseIPC(p Pointer) error {
	return c.check("cuIpcCloseMemHandle", C.shim_ipc_close(c.driver.c, c.c, C.CUdeviceptr(p)))
}
