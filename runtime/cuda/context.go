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

// Retain retains the device's primary context, and creates it if the process doesn't have it yet, which takes tenths of
// a second. ErrDeviceUnavailable means that another process has exclusive use of the device (ComputeMode).
func (dev *Device) Retain() (*Context, error) {
	c := &Context{driver: dev.driver, device: dev}
	if err := c.check("cuDevicePrimaryCtxRetain", C.shim_retain(dev.driver.c, &c.c, dev.c)); err != nil {
		return nil, err
	}
	return c, nil
}

// Release releases the context. The last user in the process to do so, whichever it is, ends the context with all its
// memory and streams.
func (c *Context) Release() error {
	return c.check("cuDevicePrimaryCtxRelease", C.shim_release(c.driver.c, c.device.c))
}

// Within calls do on a thread on which the context is current, for libraries that use the current context.
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

// Driver returns the context's driver.
func (c *Context) Driver() *Driver { return c.driver }

// Device returns the context's device.
func (c *Context) Device() *Device { return c.device }

func (c *Context) check(call string, r C.CUresult) error { return c.driver.check(call, r) }

// Synchronize waits until all work in the context is done. It returns the error of work that failed.
func (c *Context) Synchronize() error {
	return c.check("cuCtxSynchronize", C.shim_synchronize(c.driver.c, c.c))
}

// EnablePeer permanently lets kernels in the context access memory that was allocated in peer; not vice versa. It fails
// with ErrPeerEnabled if they already can, and with ErrPeerUnsupported if it is impossible.
func (c *Context) EnablePeer(peer *Context) error {
	return c.check("cuCtxEnablePeerAccess", C.shim_enable_peer(c.driver.c, c.c, peer.c))
}
