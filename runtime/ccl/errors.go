package ccl

import (
	"errors"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The errors of this package. They are lifecycle's.
type (
	// UsageError is a mistake of the caller.
	UsageError = lifecycle.UsageError
	// PeerError is the fault of another rank.
	PeerError = lifecycle.PeerError
	// SystemError is the fault of a socket, a file or memory.
	SystemError = lifecycle.SystemError
	// UniqueID names a communicator before it exists.
	UniqueID = lifecycle.UniqueID
	// CommID names a communicator, the same on all its ranks.
	CommID = lifecycle.CommID
)

// What errors.Is finds, one for each code that a caller may branch on.
var (
	ErrInProgress  = lifecycle.ErrInProgress
	ErrDestroyed   = lifecycle.ErrDestroyed
	ErrFinalized   = lifecycle.ErrFinalized
	ErrAborted     = lifecycle.ErrAborted
	ErrRevoked     = lifecycle.ErrRevoked
	ErrUnfinished  = lifecycle.ErrUnfinished
	ErrFailed      = lifecycle.ErrFailed
	ErrRankDead    = lifecycle.ErrRankDead
	ErrNotJoined   = lifecycle.ErrNotJoined
	ErrMismatch    = lifecycle.ErrMismatch
	ErrAbandoned   = lifecycle.ErrAbandoned
	ErrPeerAborted = lifecycle.ErrPeerAborted
	ErrTimeout     = lifecycle.ErrTimeout
)

// Why the runtime itself ends a communicator.
var (
	errClosed   = errors.New("it was closed before it was ready")
	errLeaked   = errors.New("it was leaked")
	errPanicked = errors.New("it panicked")
)

// ErrRuntimeClosed is the error of a call on a Runtime after its Close.
var ErrRuntimeClosed = errors.New("the runtime is closed: no communicator can be made any more")

// errNoRuntime is the error of a call on a Runtime that New did not make.
func errNoRuntime(call lifecycle.Call) error {
	return &UsageError{
		Call: call, Code: lifecycle.CodeInvalidArgument, Rank: -1,
		Detail: "there is no runtime: it is nil or zero; make one with New, and see whether that returned an error",
	}
}
