//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import "unsafe"

// Register makes the driver map host memory, so that devices of every context can access it at the returned address.
// The memory must begin and end at page boundaries, must not be Go memory, and stays mapped until Unregister. For
// example, it may be a file on tmpfs that is mapped as shared.
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

// Unregister unmaps registered memory. The driver waits for everything that runs on the GPUs of the process, and blocks
// calls of other threads meanwhile.
func (c *Context) Unregister(memory unsafe.Pointer) error {
	return c.check("cuMemHostUnregister", C.shim_unregister(c.driver.c, c.c, memory))
}

// A Shareable is memory of a device, or of the host, that other processes can map through a file descriptor.
type Shareable struct {
	driver  *Driver
	context *Context
	c       C.CUmem
}

// Granularity returns the unit of the size of Shareable memory: 2 MiB.
func (c *Context) Granularity() (int, error) {
	var n C.size_t
	err := c.check("cuMemGetAllocationGranularity", C.shim_granularity(c.driver.c, c.c, c.device.c, &n))
	return int(n), err
}

// Create allocates memory on the device. It has no address before it is mapped.
func (c *Context) Create(bytes int) (*Shareable, error) { return c.create(0, c.device.c, bytes) }

// CreateOnHost allocates memory on the host's NUMA node that is nearest to the device. Every device can access it.
// Unlike Unregister, Unmap waits for no device. CreateOnHost needs a driver of CUDA 12.6 or later and, in a container,
// the right to choose the memory's node (mbind; for Docker --cap-add SYS_NICE).
func (c *Context) CreateOnHost(bytes int) (*Shareable, error) {
	node, err := c.device.Attribute(hostNUMANode)
	if err != nil {
		return nil, err
	}
	return c.create(1, C.int(max(node, 0)), bytes) // -1: the host has no nodes, or only one
}

func (c *Context) create(onHost, ordinal C.int, bytes int) (*Shareable, error) {
	m := &Shareable{driver: c.driver, context: c}
	err := c.check("cuMemCreate", C.shim_create(c.driver.c, c.c, onHost, ordinal, &m.c, C.size_t(bytes)))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Import opens memory of another process, or of another context, through a descriptor that Export returned there. The
// caller still owns the descriptor.
func (c *Context) Import(fd int) (*Shareable, error) {
	m := &Shareable{driver: c.driver, context: c}
	if err := c.check("cuMemImportFromShareableHandle", C.shim_import(c.driver.c, c.c, &m.c, C.int(fd))); err != nil {
		return nil, err
	}
	return m, nil
}

// Export returns a file descriptor for other processes, which can be sent over a Unix socket. The caller must close it.
func (m *Shareable) Export() (int, error) {
	var fd C.int
	err := m.driver.check("cuMemExportToShareableHandle", C.shim_export(m.driver.c, m.context.c, &fd, m.c))
	return int(fd), err
}

// Release releases the memory. It is freed when no process maps it any more.
func (m *Shareable) Release() error {
	return m.driver.check("cuMemRelease", C.shim_mem_release(m.driver.c, m.context.c, m.c))
}

// Map maps all of the memory, bytes long, at an address where the context's device can access it.
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

// Unmap undoes Map. It doesn't wait: the caller must know that no kernel uses the memory.
func (c *Context) Unmap(p Pointer, bytes int) error {
	at, n := C.CUdeviceptr(p), C.size_t(bytes)
	if err := c.check("cuMemUnmap", C.shim_unmap(c.driver.c, c.c, at, n)); err != nil {
		return err
	}
	return c.check("cuMemAddressFree", C.shim_unreserve(c.driver.c, c.c, at, n))
}

// An IPCHandle identifies an allocation made by Alloc, or by cudaMalloc, for another process.
type IPCHandle [64]byte

// IPCHandle returns the handle of the allocation that contains an address. It fails with ErrInvalidValue for other
// kinds of memory: see Allocation.IPC.
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

// CloseIPC unmaps what OpenIPC mapped.
func (c *Context) CloseIPC(p Pointer) error {
	return c.check("cuIpcCloseMemHandle", C.shim_ipc_close(c.driver.c, c.c, C.CUdeviceptr(p)))
}
