//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"unsafe"
)

// A Module is a set of kernels that are loaded in a context.
type Module struct {
	context *Context
	c       C.CUmodule
}

// Load loads an image: a cubin, or PTX with a terminating zero byte, which the driver compiles, sometimes for seconds.
// It may wait for all work in the context, and so forever if that waits for what the caller would do next. The
// compiler's messages are in the error's Text.
func (c *Context) Load(image []byte) (*Module, error) {
	m, log := &Module{context: c}, make([]byte, 4096)
	r := C.shim_load(c.driver.c, c.c, &m.c, unsafe.Pointer(unsafe.SliceData(image)), (*C.char)(unsafe.Pointer(&log[0])),
		C.size_t(len(log)))
	if r == 0 {
		return m, nil
	}
	err := c.driver.newError("cuModuleLoadDataEx", r)
	if end := bytes.IndexByte(log, 0); end > 0 {
		err.Text += ": " + string(bytes.TrimSpace(log[:end]))
	}
	return nil, err
}

// Unload ends the module and its functions.
func (m *Module) Unload() error {
	return m.context.check("cuModuleUnload", C.shim_unload(m.context.driver.c, m.context.c, m.c))
}

// A Function is a kernel of a module.
type Function struct {
	context *Context
	c       C.CUfunction
	early   C.int
}

// AllowEarlyStart says that the kernel itself waits for earlier work on its stream (griddepcontrol.wait), so the GPU
// may start it while the previous kernel ends: when all blocks of that one have ended or allowed it
// (griddepcontrol.launch_dependents). That saves half a microsecond in graphs, and more between launches. A driver
// before CUDA 12.3 starts the kernel like any other.
func (f *Function) AllowEarlyStart() { f.early = 1 }

// Function finds a kernel by its name. It fails with ErrNotFound if there is none.
func (m *Module) Function(name string) (*Function, error) {
	c := m.context
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	f := &Function{context: c}
	if err := c.check("cuModuleGetFunction", C.shim_function(c.driver.c, c.c, &f.c, m.c, text)); err != nil {
		return nil, err
	}
	return f, nil
}

// Occupancy returns how many blocks of the given number of threads, with the given bytes of dynamic shared memory each,
// a multiprocessor runs at once.
func (f *Function) Occupancy(threads, shared int) (int, error) {
	var n C.int
	err := f.context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor",
		C.shim_occupancy(f.context.driver.c, f.context.c, &n, f.c, C.int(threads), C.size_t(shared)))
	return int(n), err
}

// Launch puts a kernel with one parameter on the stream. The grid has the given number of blocks, each with the given
// number of threads and bytes of dynamic shared memory. param points to the parameter, which must not contain Go
// pointers and is copied before Launch returns.
func (s *Stream) Launch(f *Function, blocks, threads, shared int, param unsafe.Pointer) error {
	// As *C.char, param isn't searched for Go pointers, which would take 0.3 microseconds.
	return s.check("cuLaunchKernel", C.shim_launch(s.driver.c, s.context.c, f.c, f.early, C.uint(blocks),
		C.uint(threads), C.uint(shared), s.c, (*C.char)(param)))
}
