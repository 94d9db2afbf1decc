//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"cmp"
	"runtime"
)

// A Context is the primary context of a device, retained.
type Context struct {
	driver *Driver
	device *Device
	c      C.CUcontext
}

// Retain retains the device's primary context, and makes it if nobody else in the process has, which takes tenths of a
// second. With ErrDeviceUnavailable the device is another process's alone (ComputeMode).
func (dev *Device) Retain() (*Context, error) {
	c := &Context{driver: dev.driver, device: dev}
	if err := c.check("cuDevicePrimaryCtxRetain", C.shim_retain(dev.driver.c, &c.c, dev.c)); err != nil {
		return nil, err
	}
	return c, nil
}

// Release gives it back. The last one to do so in the process, whoever it is, ends the context with all its memory and
// streams.
func (c *Context) Release() error {
	return c.check("cuDevicePrimaryCtxRelease", C.shim_release(c.driver.c, c.device.c))
}

// Within calls do on a thread on which the context is current, for libraries that go by that.
func (c *Context) Within(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was C.CUcontext
	if err := c.check("cuCtxSetCurrent", C.in(c.driver.c, c.c, &was)); err != nil {
		return err
	}
	err := do()
	return cmp.Or(err, c.check("cuCtxSetCurrent", C.out(c.driver.c, c.c, was, 0)))
}

// Driver is the context's.
func (c *Context) Driver() *Driver { return c.driver }

// Device is the context's.
func (c *Context) Device() *Device { return c.device }

func (c *Context) check(call string, r C.CUresult) error { return c.driver.check(call, r) }

// Synchronize waits until all work in the context is done. It answers the error of work that failed.
func (c *Context) Synchronize() error {
	return c.check("cuCtxSynchronize", C.shim_synchronize(c.driver.c, c.c))
}

// EnablePeer lets kernels in the context reach memory that was allocated in peer, for good; not the other way round. It
// fails with ErrPeerEnabled if they can already, with ErrPeerUnsupported if they can't.
func (c *Context) EnablePeer(peer *Context) error {
	return c.check("cuCtxEnablePeerAccess", C.shim_enable_peer(c.driver.c, c.c, peer.c))
}
