package ccl_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// between returns the states in which a communicator may have been while it changed from one state to another: those
// that some calls and events lead to from the first, and that some lead from to the last.
func between(from, to lifecycle.State) []lifecycle.State {
	var states []lifecycle.State
	for _, s := range lifecycle.States() {
		if reachable(from)[s] && reachable(s)[to] {
			states = append(states, s)
		}
	}
	return states
}

// reachable returns the states after any calls and events, and the state itself.
func reachable(from lifecycle.State) map[lifecycle.State]bool {
	seen := map[lifecycle.State]bool{from: true}
	for todo := []lifecycle.State{from}; len(todo) > 0; {
		s := todo[0]
		todo = todo[1:]
		visit := func(next lifecycle.State) {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
		for _, c := range lifecycle.Calls() {
			if next, code := lifecycle.Next(s, c); code == lifecycle.CodeOK {
				visit(next)
			}
		}
		for _, e := range lifecycle.Events() {
			visit(lifecycle.After(s, e))
		}
	}
	return seen
}

// judge checks the result of a call against the table. before and after are the states around it; expired says that its
// context ended.
//
//   - No error needs a state in which the call is legal.
//   - A code of the table needs a state in which the table gives that code.
//   - ErrInProgress needs a non-blocking communicator.
//   - The fault of a peer, and an expired context, need a state in which the call is legal, and make the communicator
//     fail: it is not ready afterwards. A query of the communicator (AsyncError, Wait) may return an error that made it
//     fail before.
//   - ErrRevoked may also be the result of a call that would be legal on a revoked communicator, but was in flight when
//     it was revoked.
//   - A call that makes a child may also fail with only the child: the parent is unchanged. A Grow with no id, or two,
//     among its ranks is an invalid argument on all of them.
//   - ErrUnfinished is for a Destroy or Finalize whose context ended, and for the operations that it interrupted.
func judge(call lifecycle.Call, before, after lifecycle.State, nonBlocking, expired bool, err error) error {
	code := lifecycle.CodeOf(err)
	if call == lifecycle.CallGroupEnd { // here, of a group with operations: as legal as those
		call = lifecycle.CallAllReduce
	}
	legal, answered, revoked := false, false, false
	for _, s := range between(before, after) {
		_, answer := lifecycle.Next(s, call)
		revoked = revoked || s == lifecycle.StateRevoked
		legal = legal || answer == lifecycle.CodeOK
		answered = answered || answer == code || answer == lifecycle.CodeInitializing && nonBlocking &&
			code == lifecycle.CodeInProgress
	}
	ended := code == lifecycle.CodeTimeout || code == lifecycle.CodeCanceled // a context ended
	looks := call == lifecycle.CallAsyncError || call == lifecycle.CallWait
	bears := call == lifecycle.CallSplit || call == lifecycle.CallShrink || call == lifecycle.CallGrow
	var usage *ccl.UsageError
	var peer *ccl.PeerError
	var system *ccl.SystemError
	switch {
	case answered:
		return nil
	case !legal:
	case code == lifecycle.CodeInProgress && nonBlocking, code == lifecycle.CodeRevoked && revoked &&
		before != lifecycle.StateRevoked:
		return nil
	case code == lifecycle.CodeUnfinished && (call == lifecycle.CallDestroy || call == lifecycle.CallFinalize) &&
		expired:
		return nil
	case code == lifecycle.CodeUnfinished && after != lifecycle.StateReady: // another call's context ended
		return nil
	case ended && expired && (looks || after != lifecycle.StateReady):
		return nil
	// Another call's context ended.
	case ended && errors.As(err, &system) && after != lifecycle.StateReady:
		return nil
	case bears && (errors.As(err, &peer) || ended && expired):
		return nil
	case call == lifecycle.CallGrow && code == lifecycle.CodeInvalidArgument:
		return nil
	case looks && errors.As(err, &usage): // why an operation in the background was interrupted
		return nil
	case errors.As(err, &peer) && after != lifecycle.StateReady && after != lifecycle.StateInitializing:
		return nil
	}
	return fmt.Errorf("the table does not allow %v: %w", code, err)
}

// The model itself must be able to reject.
func TestJudgeRefuses(t *testing.T) {
	const (
		ready, failed, destroyed = lifecycle.StateReady, lifecycle.StateFailed, lifecycle.StateDestroyed
		barrier, destroy         = lifecycle.CallBarrier, lifecycle.CallDestroy
	)
	refused := func(code lifecycle.Code) error { return &ccl.UsageError{Code: code} }
	for name, tc := range map[string]struct {
		call          lifecycle.Call
		before, after lifecycle.State
		err           error
		allowed       bool
	}{
		"an operation":               {barrier, ready, ready, nil, true},
		"an operation on a dead one": {barrier, destroyed, destroyed, nil, false},
		"its refusal":                {barrier, destroyed, destroyed, refused(lifecycle.CodeDestroyed), true},
		"the refusal of a live one":  {barrier, ready, ready, refused(lifecycle.CodeDestroyed), false},
		"one that was raced":         {barrier, ready, destroyed, refused(lifecycle.CodeDestroyed), true},
		"a child's fault": {
			lifecycle.CallShrink, ready, ready,
			&ccl.PeerError{Code: lifecycle.CodeNotJoined}, true,
		},
		"a child of a dead one": {lifecycle.CallShrink, destroyed, destroyed, nil, false},
		"a bad argument that nobody made": {
			lifecycle.CallShrink, ready, ready, refused(lifecycle.CodeInvalidArgument),
			false,
		},
		"a group on a dead one":     {lifecycle.CallGroupEnd, destroyed, destroyed, nil, false},
		"an answer from the future": {barrier, ready, failed, refused(lifecycle.CodeDestroyed), false},
		"a second winner":           {destroy, destroyed, destroyed, nil, false},
		"in progress, and blocking": {destroy, ready, ready, ccl.ErrInProgress, false},
		"a peer's fault without a failure": {
			barrier, ready, ready, &ccl.PeerError{Code: lifecycle.CodePeerAborted}, false,
		},
		"a peer's fault": {
			barrier, ready, failed, &ccl.PeerError{Code: lifecycle.CodePeerAborted}, true,
		},
		"a timeout without one":             {barrier, ready, failed, ccl.ErrTimeout, false},
		"an error that nobody has heard of": {barrier, ready, failed, errBroken, false},
	} {
		if got := judge(tc.call, tc.before, tc.after, false, false, tc.err); (got == nil) != tc.allowed {
			t.Errorf("%s: %v", name, got)
		}
	}
}
