package cuda

import (
	"errors"
	"fmt"
)

// ErrUnavailable is why Open fails on a machine, or in a program, that has no CUDA driver.
var ErrUnavailable = errors.New("no CUDA driver")

// ErrContextLost is, for errors.Is, every Error after which nothing in its context works any more, in this process: it
// must be released, or the process ended.
var ErrContextLost = errors.New("the CUDA context is lost")

// A Code is a CUresult of the driver's. As an error it is what errors.Is looks for in an Error.
type Code int

// The codes that a caller tells apart.
const (
	ErrInvalidValue        Code = 1
	ErrOutOfMemory         Code = 2
	ErrDeviceUnavailable   Code = 46 // in use by another process (compute mode exclusive), or prohibited
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

// Error says the number; the driver's text is in an Error.
func (c Code) Error() string { return fmt.Sprintf("CUDA error %d", int(c)) }

// lost says whether a context is of no more use after the code: what failed on the device, and what outlived it.
func (c Code) lost() bool {
	switch c {
	case codeContextDestroyed, codeECC, codeNVLink, codeIllegalAddress, codeLaunchTimeout, codeAssert:
		return true
	default:
		return c >= codeHardwareStackError && c <= codeLaunchFailed
	}
}

// An Error is a call of the driver's that failed.
type Error struct {
	Call string // the driver's function, without its version: "cuMemAlloc"
	Code Code
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"; "" if the driver doesn't know the code
	Text string // the driver's own
}

// Error says which function failed, the driver's text, name and number.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: error %d, which the driver doesn't know", e.Call, int(e.Code))
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, int(e.Code))
}

// Is compares with a Code, and with ErrContextLost.
func (e *Error) Is(target error) bool {
	if target == ErrContextLost {
		return e.Code.lost()
	}
	code, ok := target.(Code)
	return ok && code == e.Code
}
