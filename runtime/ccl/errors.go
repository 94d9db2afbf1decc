package ccl

import (
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
)

// The errors of this package, from package lifecycle.
type (
	// UsageError is a mistake of the caller.
	UsageError = lifecycle.UsageError
	// PeerError is the fault of another rank.
	PeerError = lifecycle.PeerError
	// SystemError is the fault of a socket, a file or memory.
	SystemError = lifecycle.SystemError
	// UniqueID identifies a communicator before it exists.
	UniqueID = lifecycle.UniqueID
	// CommID identifies a communicator, the same on all its ranks.
	CommID = lifecycle.CommID
)

// Targets for errors.Is, one for each code that a caller may branch on.
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
	ErrCanceled    = lifecycle.ErrCanceled
)

// ErrRuntimeClosed is the error of a call on a Runtime after its Close.
var ErrRuntimeClosed = meet.ErrClosed

func errNoRuntime(call lifecycle.Call) error {
	return noHandle(call,
		"there is no runtime: it is nil or zero; make one with New, and see whether that returned an error")
}

func nilComm(call lifecycle.Call) error {
	return noHandle(call,
		"the communicator is nil: a rank that passed NoColor to Split has none, and does not make its calls")
}

func noHandle(call lifecycle.Call, detail string) error {
	return &UsageError{Call: call, Code: lifecycle.CodeInvalidArgument, Rank: -1, Detail: detail}
}

func (c *core) usage(call lifecycle.Call, code lifecycle.Code, format string, args ...any) *UsageError {
	i := c.life.Info()
	return &UsageError{
		Call: call, Code: code, State: c.life.State(), Comm: i.ID, Name: i.Name, Rank: i.Rank,
		Detail: fmt.Sprintf(format, args...),
	}
}

// plainly returns err's text without the parts that the wrapping error repeats.
func plainly(err error) string {
	if usage, ok := errors.AsType[*UsageError](err); ok && usage.Detail != "" {
		return usage.Detail
	}
	return err.Error()
}

func culprit(err error) int32 {
	if p, ok := errors.AsType[*PeerError](err); ok {
		return int32(p.Rank)
	}
	return -1
}
