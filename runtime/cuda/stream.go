//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// A Stream is work of a context in order.
type Stream struct {
	driver    *Driver
	context   *Context
	c         C.CUstream
	destroyed atomic.Bool
}

// Stream makes a stream that doesn't wait for the default one. Priorities below 0 come first; the driver takes the
// nearest that it has.
func (c *Context) Stream(priority int) (*Stream, error) {
	s := &Stream{driver: c.driver, context: c}
	if err := s.check("cuStreamCreateWithPriority", C.shim_stream(c.driver.c, c.c, &s.c, C.int(priority))); err != nil {
		return nil, err
	}
	return s, nil
}

// WrapStream takes a CUstream or cudaStream_t of somebody else's, who goes on to own it: 0 is the default one. It fails
// with ErrInvalidContext if the stream is of another context.
func (c *Context) WrapStream(handle uintptr) (*Stream, error) {
	s := &Stream{driver: c.driver, context: c}
	*(*uintptr)(unsafe.Pointer(&s.c)) = handle
	var of C.CUcontext
	if err := s.check("cuStreamGetCtx", C.shim_stream_context(c.driver.c, c.c, s.c, &of)); err != nil {
		return nil, err
	}
	if of != c.c {
		return nil, c.check("cuStreamGetCtx", C.CUresult(ErrInvalidContext))
	}
	return s, nil
}

func (s *Stream) check(call string, r C.CUresult) error { return s.driver.check(call, r) }

// Context is the stream's.
func (s *Stream) Context() *Context { return s.context }

// Handle is the stream as a CUstream.
func (s *Stream) Handle() uintptr { return uintptr(unsafe.Pointer(s.c)) }

// Destroy gives the stream up and returns; what is on it is still done. Only whoever made it may.
func (s *Stream) Destroy() error {
	s.destroyed.Store(true)
	return s.check("cuStreamDestroy", C.shim_stream_destroy(s.driver.c, s.context.c, s.c))
}

// Destroyed tells whether Destroy was called.
func (s *Stream) Destroyed() bool { return s.destroyed.Load() }

// Query is nil if all that is on the stream is done, ErrNotReady if not, and otherwise what failed.
func (s *Stream) Query() error {
	return s.check("cuStreamQuery", C.shim_stream_query(s.driver.c, s.context.c, s.c))
}

// Synchronize waits until all that is on the stream is done.
func (s *Stream) Synchronize() error {
	return s.check("cuStreamSynchronize", C.shim_stream_synchronize(s.driver.c, s.context.c, s.c))
}

// Wait has the stream wait for what was on another one when the event was recorded there; of any device.
func (s *Stream) Wait(e *Event) error {
	return s.check("cuStreamWaitEvent", C.shim_stream_wait(s.driver.c, s.context.c, s.c, e.c))
}

// WriteValue has the stream write 4 bytes when it gets there, after all that was before it is visible.
func (s *Stream) WriteValue(to Pointer, value uint32) error {
	return s.check("cuStreamWriteValue32",
		C.shim_write_value(s.driver.c, s.context.c, s.c, C.CUdeviceptr(to), C.uint32_t(value)))
}

// WaitValue has the stream wait until the 4 bytes there are at least value, counted cyclically: their difference as a
// signed number is not below 0.
func (s *Stream) WaitValue(at Pointer, value uint32) error {
	return s.check("cuStreamWaitValue32",
		C.shim_wait_value(s.driver.c, s.context.c, s.c, C.CUdeviceptr(at), C.uint32_t(value)))
}

// An Event is a place on a stream.
type Event struct {
	context *Context
	c       C.CUevent
}

// Event makes an event. One without timing costs less, and Elapsed can't be asked of it.
func (c *Context) Event(timing bool) (*Event, error) {
	e := &Event{context: c}
	flags := C.uint(2)
	if timing {
		flags = 0
	}
	if err := c.check("cuEventCreate", C.shim_event(c.driver.c, c.c, &e.c, flags)); err != nil {
		return nil, err
	}
	return e, nil
}

// Destroy gives the event up.
func (e *Event) Destroy() error {
	return e.context.check("cuEventDestroy", C.shim_event_destroy(e.context.driver.c, e.context.c, e.c))
}

// Record puts the event behind all that is on a stream of its context. An earlier place is forgotten.
func (e *Event) Record(s *Stream) error {
	return e.context.check("cuEventRecord", C.shim_event_record(e.context.driver.c, e.context.c, e.c, s.c))
}

// Query is nil if the stream has passed the event, or it was never recorded, and ErrNotReady before.
func (e *Event) Query() error {
	return e.context.check("cuEventQuery", C.shim_event_query(e.context.driver.c, e.context.c, e.c))
}

// Synchronize waits until the stream has passed the event.
func (e *Event) Synchronize() error {
	return e.context.check("cuEventSynchronize", C.shim_event_synchronize(e.context.driver.c, e.context.c, e.c))
}

// Elapsed is the time from one event to another in milliseconds, by the device's clock, exact to half a microsecond.
// Both must have been passed.
func (e *Event) Elapsed(to *Event) (float32, error) {
	var ms C.float
	err := e.context.check("cuEventElapsedTime",
		C.shim_event_elapsed(e.context.driver.c, e.context.c, &ms, e.c, to.c))
	return float32(ms), err
}
