package cuda

import (
	"errors"
	"fmt"
)

// ErrUnavailable is the error of Open on a machine, or in a program, without a CUDA driver.
var ErrUnavailable = errors.New("no CUDA driver")

// ErrContextLost matches, with errors.Is, every Error after which nothing in its context works any more in this
// process: the context must be released, or the process ended.
var ErrContextLost = errors.New("the CUDA context is lost")

// A Code is a CUresult of the driver. As an error, it is a target for errors.Is on an Error.
type Code int

// The codes that callers distinguish.
const (
	ErrInvalidValue        Code = 1
	ErrOutOfMemory         Code = 2
	ErrDeviceUnavailable   Code = 46 // another process has exclusive use (compute mode), or use is prohibited
	ErrNoDevice            Code = 100
	ErrInvalidDevice       Code = 101
	ErrInvalidContext      Code = 201
	ErrNoBinary            Code = 209 // an image has no code for the device
	ErrPeerUnsupported     Code = 217
	ErrUnsupportedPTX      Code = 222 // PTX is newer than the driver
	ErrInvalidHandle       Code = 400
	ErrNotFound            Code = 500
	ErrNotReady            Code = 600 // work on the stream, or before the event, is not done
	ErrPeerEnabled         Code = 704
	ErrAlreadyRegistered   Code = 712
	ErrNotRegistered       Code = 713
	ErrNotSupported        Code = 801
	codeContextDestroyed   Code = 709
	codeECC                Code = 214
	codeNVLink             Code = 220
	codeIllegalAddress     Code = 700
	codeLaunchTimeout      Code = 702
	codeAssert             Code = 710
	codeHardwareStackError Code = 714
	codeLaunchFailed       Code = 719
)

// Error returns the number; the driver's text is in an Error.
func (c Code) Error() string { return fmt.Sprintf("CUDA error %d", int(c)) }

// lost reports whether a context is no longer usable after the code: failures on the device, and use of a destroyed
// context.
func (c Code) lost() bool {
	switch c {
	case codeContextDestroyed, codeECC, codeNVLink, codeIllegalAddress, codeLaunchTimeout, codeAssert:
		return true
	default:
		return c >= codeHardwareStackError && c <= codeLaunchFailed
	}
}

// An Error is a failed call of the driver.
type Error struct {
	Call string // the driver's function, without its version: "cuMemAlloc"
	Code Code
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"; "" if the driver doesn't know the code
	Text string // the driver's text
}

// Error returns the function that failed, and the driver's text, name and number.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: error %d, which the driver doesn't know", e.Call, int(e.Code))
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, int(e.Code))
}

// Is compares the error with a Code, and with ErrContextLost.
func (e *Error) Is(target error) bool {
	if target == ErrContextLost {
		return e.Code.lost()
	}
	code, ok := target.(Code)
	return ok && code == e.Code
}
