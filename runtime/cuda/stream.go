//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// A Stream is an ordered sequence of work in a context.
type Stream struct {
	driver    *Driver
	context   *Context
	c         C.CUstream
	destroyed atomic.Bool
}

// Stream makes a stream that doesn't wait for the default stream. Lower priorities come first; the driver uses the
// nearest priority that it supports.
func (c *Context) Stream(priority int) (*Stream, error) {
	s := &Stream{driver: c.driver, context: c}
	if err := s.check("cuStreamCreateWithPriority", C.shim_stream(c.driver.c, c.c, &s.c, C.int(priority))); err != nil {
		return nil, err
	}
	return s, nil
}

// WrapStream wraps a CUstream or cudaStream_t that somebody else owns and keeps owning; 0 is the default stream. It
// fails with ErrInvalidContext if the stream is of another context.
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

// Context returns the stream's context.
func (s *Stream) Context() *Context { return s.context }

// Handle returns the stream as a CUstream.
func (s *Stream) Handle() uintptr { return uintptr(unsafe.Pointer(s.c)) }

// Destroy destroys the stream and returns; work on it still runs. Only the stream's owner may call it.
func (s *Stream) Destroy() error {
	s.destroyed.Store(true)
	return s.check("cuStreamDestroy", C.shim_stream_destroy(s.driver.c, s.context.c, s.c))
}

// Destroyed reports whether Destroy was called.
func (s *Stream) Destroyed() bool { return s.destroyed.Load() }

// Query returns nil if all work on the stream is done, ErrNotReady if not, and otherwise the error of failed work.
func (s *Stream) Query() error {
	return s.check("cuStreamQuery", C.shim_stream_query(s.driver.c, s.context.c, s.c))
}

// Synchronize waits until all work on the stream is done.
func (s *Stream) Synchronize() error {
	return s.check("cuStreamSynchronize", C.shim_stream_synchronize(s.driver.c, s.context.c, s.c))
}

// Wait makes the stream wait for the work that was on another stream, of any device, when the event was recorded there.
func (s *Stream) Wait(e *Event) error {
	return s.check("cuStreamWaitEvent", C.shim_stream_wait(s.driver.c, s.context.c, s.c, e.c))
}

// WriteValue makes the stream write 4 bytes when it gets there, after all earlier work is visible.
func (s *Stream) WriteValue(to Pointer, value uint32) error {
	return s.check("cuStreamWriteValue32",
		C.shim_write_value(s.driver.c, s.context.c, s.c, C.CUdeviceptr(to), C.uint32_t(value)))
}

// WaitValue makes the stream wait until the 4 bytes there are at least value, compared cyclically: their difference as
// a signed number is not negative.
func (s *Stream) WaitValue(at Pointer, value uint32) error {
	return s.check("cuStreamWaitValue32",
		C.shim_wait_value(s.driver.c, s.context.c, s.c, C.CUdeviceptr(at), C.uint32_t(value)))
}

// An Event is a position on a stream.
type Event struct {
	context *Context
	c       C.CUevent
}

// Event makes an event. Without timing it costs less, and Elapsed doesn't work on it.
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

// Destroy destroys the event.
func (e *Event) Destroy() error {
	return e.context.check("cuEventDestroy", C.shim_event_destroy(e.context.driver.c, e.context.c, e.c))
}

// Record puts the event behind all work that is now on a stream of its context. It replaces an earlier position.
func (e *Event) Record(s *Stream) error {
	return e.context.check("cuEventRecord", C.shim_event_record(e.context.driver.c, e.context.c, e.c, s.c))
}

// Query returns nil if the stream has passed the event, or it was never recorded, and otherwise ErrNotReady.
func (e *Event) Query() error {
	return e.context.check("cuEventQuery", C.shim_event_query(e.context.driver.c, e.context.c, e.c))
}

// Synchronize waits until the stream has passed the event.
func (e *Event) Synchronize() error {
	return e.context.check("cuEventSynchronize", C.shim_event_synchronize(e.context.driver.c, e.context.c, e.c))
}

// Elapsed returns the time from one event to another in milliseconds, by the device's clock, exact to half a
// microsecond. Both must have been passed.
func (e *Event) Elapsed(to *Event) (float32, error) {
	var ms C.float
	err := e.context.check("cuEventElapsedTime",
		C.shim_event_elapsed(e.context.driver.c, e.context.c, &ms, e.c, to.c))
	return float32(ms), err
}
