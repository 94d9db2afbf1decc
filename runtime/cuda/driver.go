//go:build linux && cgo

package cuda

// #cgo LDFLAGS: -ldl
// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// A Driver is a loaded CUDA driver. It stays loaded until the process ends.
type Driver struct {
	c    *C.driver
	path string
	kept sync.Map
}

// Open loads the driver at path, or, if path is empty, the libcuda.so.1 that the loader finds, and initializes it. It
// fails with ErrUnavailable without a driver, and with ErrNoDevice without a GPU. It may take a second.
func Open(path string) (*Driver, error) {
	if path == "" {
		path = "libcuda.so.1"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	c := C.open_driver(name, &text)
	if c == nil {
		why := strings.TrimPrefix(C.GoString(text), path+": ")
		return nil, fmt.Errorf("%w: %s: %s (it comes with NVIDIA's driver; Docker: --gpus all)",
			ErrUnavailable, path, why)
	}
	d := &Driver{c: c, path: path}
	err := d.check("cuInit", C.shim_init(c))
	if errors.Is(err, ErrNoDevice) {
		err = fmt.Errorf("%w: none is in this machine, or CUDA_VISIBLE_DEVICES or a container hides it", err)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Path returns the path that Open loaded.
func (d *Driver) Path() string { return d.path }

// Keep returns the value that a package stores with the driver under a key of its own type. If there is none yet, it
// stores made. It may be called from any goroutine.
func (d *Driver) Keep(key, made any) any {
	kept, _ := d.kept.LoadOrStore(key, made)
	return kept
}

// check converts the result of a function to an error.
func (d *Driver) check(call string, r C.CUresult) error {
	if r == 0 {
		return nil
	}
	return d.newError(call, r)
}

func (d *Driver) newError(call string, r C.CUresult) *Error {
	return &Error{
		Call: call, Code: Code(r),
		Name: C.GoString(C.error_name(d.c, r)), Text: C.GoString(C.error_text(d.c, r)),
	}
}

// Devices returns the number of devices that this process sees; CUDA_VISIBLE_DEVICES hides some.
func (d *Driver) Devices() (int, error) {
	var n C.int
	err := d.check("cuDeviceGetCount", C.shim_count(d.c, &n))
	return int(n), err
}

// A Device is a GPU, or an instance of a divided GPU (MIG).
type Device struct {
	driver  *Driver
	c       C.CUdevice
	ordinal int
}

// Device returns the device with a number below Devices.
func (d *Driver) Device(ordinal int) (*Device, error) {
	dev := &Device{driver: d, ordinal: ordinal}
	if err := d.check("cuDeviceGet", C.shim_device(d.c, &dev.c, C.int(ordinal))); err != nil {
		return nil, fmt.Errorf("device %d: %w", ordinal, err)
	}
	return dev, nil
}

// Driver returns the device's driver.
func (dev *Device) Driver() *Driver { return dev.driver }

// Ordinal returns the device's number in this process.
func (dev *Device) Ordinal() int { return dev.ordinal }

// UUID returns the device's unique id, and whether it is an instance of a divided GPU (MIG); the id is then the
// instance's. Before CUDA 11.4, it is always the GPU's, and no device counts as an instance.
func (dev *Device) UUID() (id [16]byte, instance bool, err error) {
	d := dev.driver
	if err := d.check("cuDeviceGetUuid", C.shim_device_uuid(d.c, unsafe.Pointer(&id), dev.c)); err != nil {
		return id, false, err
	}
	of := id
	if C.shim_device_uuid_v2(d.c, unsafe.Pointer(&id), dev.c) != 0 {
		return of, false, nil
	}
	return id, id != of, nil
}

// An Attribute is a CUdevice_attribute.
type Attribute int

// The attributes that collectives need.
const (
	MaxThreadsPerBlock Attribute = 1
	Multiprocessors    Attribute = 16
	ComputeMajor       Attribute = 75
	ComputeMinor       Attribute = 76
	hostNUMANode       Attribute = 134 // the host's NUMA node nearest to the device, or -1
)

// Attribute returns the value of an attribute.
func (dev *Device) Attribute(a Attribute) (int, error) {
	var value C.int
	err := dev.driver.check("cuDeviceGetAttribute", C.shim_attribute(dev.driver.c, &value, C.int(a), dev.c))
	return int(value), err
}

// NativeAtomics reports whether the device can access another one's memory with native atomic operations of the link
// between them: over NVLink it can, over PCIe it can't.
func (dev *Device) NativeAtomics(peer *Device) bool {
	const nativeAtomics = 3 // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
	var can C.int
	return C.shim_p2p(dev.driver.c, &can, nativeAtomics, dev.c, peer.c) == 0 && can != 0
}
