package nccl

import (
	"errors"
	"fmt"
)

// ErrUnavailable is why Open fails where there is no NCCL, or one that is too old.
var ErrUnavailable = errors.New("no NCCL")

// A Result is an ncclResult_t. As an error it is what errors.Is looks for in an Error.
type Result int

// The results that a caller tells apart.
const (
	ErrRemote     Result = 6 // a peer has failed, or the network
	ErrInProgress Result = 7 // the last call on a communicator is not done
)

// Error says the number; NCCL's text is in an Error.
func (r Result) Error() string { return fmt.Sprintf("NCCL result %d", int(r)) }

// An Error is a call of NCCL's that failed.
type Error struct {
	Call   string // NCCL's function: "ncclAllReduce"
	Result Result
	Text   string // NCCL's, of the result
	Last   string // what ncclGetLastError says; may be empty
}

// Error says which function failed, and NCCL's texts.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, int(e.Result))
	if e.Last != "" {
		text += ": " + e.Last
	}
	return text
}

// Is compares with a Result.
func (e *Error) Is(target error) bool {
	r, ok := target.(Result)
	return ok && r == e.Result
}
