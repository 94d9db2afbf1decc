package lifecycle

import "github.com/carillon-rt/carillon/lifecycle/words"

// State is where a communicator is in its life. Its number and its name (String) are stable.
type State uint8

// The states. A communicator that does not exist (yet) is in StateNone.
const (
	StateNone         State = iota
	StateInitializing       // its ranks are finding each other
	StateReady              // every call but Init is legal
	StateFinalizing         // no new operations are accepted; those in flight continue
	StateFinalized          // nothing is in flight; waits for Destroy
	StateDestroying         // Destroy waits for the operations in flight; only Abort is legal
	StateDestroyed          // Destroy has ended
	StateAborting           // Abort is cancelling the operations in flight; no call is legal
	StateAborted            // Abort has ended
	StateFailed             // broken by an event; see Life.Cause
	StateRevoked            // operations were cancelled; it can be split, shrunk or destroyed
	numStates
)

// The names, by number.
var (
	stateNames = [numStates]string{
		"none", "initializing", "ready", "finalizing", "finalized", "destroying", "destroyed", "aborting", "aborted",
		"failed", "revoked",
	}
	callNames = [numCalls]string{
		"none", "init_rank", "init_rank_config", "init_rank_scalable", "init_all", "split", "shrink", "grow", "revoke",
		"finalize", "destroy", "abort", "async_error", "wait", "group_start", "group_end", "all_reduce", "broadcast",
		"reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "send", "recv", "send_recv",
		"barrier",
	}
	eventNames = [numEvents]string{
		"none", "init_done", "init_failed", "finalize_done", "destroy_done", "abort_done", "async_failure",
	}
)

// States lists the states in order, StateNone included.
func States() []State { return list(StateNone, numStates) }

// Calls lists the calls in order, without CallNone.
func Calls() []Call { return list(CallNone+1, numCalls) }

// Events lists the events in order, without EventNone.
func Events() []Event { return list(EventNone+1, numEvents) }

func list[T ~uint8](from, to T) []T {
	all := make([]T, 0, to-from)
	for v := from; v < to; v++ {
		all = append(all, v)
	}
	return all
}

// String is the state's stable name: "ready".
func (s State) String() string { return words.Name("state", stateNames[:], s) }

// Live reports whether the communicator exists and its user has called neither Destroy nor Abort.
func (s State) Live() bool {
	return s >= StateInitializing && s <= StateFinalized || s == StateFailed || s == StateRevoked
}

// Gone reports whether the communicator is Destroyed or Aborted.
func (s State) Gone() bool { return s == StateDestroyed || s == StateAborted }

// Call is something that a user does to a communicator. Its number and its name (String) are stable.
type Call uint8

// The calls: lifecycle first, then the operations (collectives and point-to-point calls).
const (
	CallNone Call = iota
	CallInitRank
	CallInitRankConfig
	CallInitRankScalable
	CallInitAll
	CallSplit
	CallShrink
	CallGrow
	CallRevoke
	CallFinalize
	CallDestroy
	CallAbort
	CallAsyncError
	CallWait
	CallGroupStart
	CallGroupEnd
	CallAllReduce
	CallBroadcast
	CallReduce
	CallAllGather
	CallReduceScatter
	CallAllToAll
	CallGather
	CallScatter
	CallSend
	CallRecv
	CallSendRecv
	CallBarrier
	numCalls
)

// String is the call's stable name: "all_reduce".
func (c Call) String() string { return words.Name("call", callNames[:], c) }

// IsOperation reports whether the call moves data or synchronises: a collective, or a point-to-point call.
func (c Call) IsOperation() bool { return c >= CallAllReduce && c < numCalls }

// IsCollective reports whether all ranks of a communicator make the call together, in one order: the collectives, and
// Split, Shrink and Grow.
func (c Call) IsCollective() bool { return collectives>>c&1 != 0 }

const collectives = 1<<CallAllReduce | 1<<CallBroadcast | 1<<CallReduce | 1<<CallAllGather | 1<<CallReduceScatter |
	1<<CallAllToAll | 1<<CallGather | 1<<CallScatter | 1<<CallBarrier | 1<<CallSplit | 1<<CallShrink | 1<<CallGrow

// Reduces reports whether the call combines elements.
func (c Call) Reduces() bool { return c == CallAllReduce || c == CallReduce || c == CallReduceScatter }

// IsRooted reports whether the call has a root.
func (c Call) IsRooted() bool {
	return c == CallBroadcast || c == CallReduce || c == CallGather || c == CallScatter
}

// Event is a change of a communicator by the runtime, not by a call of the user: the end of a call that takes time, or
// a failure in the background. Its number and its name (String) are stable.
type Event uint8

// The events.
const (
	EventNone Event = iota
	EventInitDone
	EventInitFailed
	EventFinalizeDone
	EventDestroyDone
	EventAbortDone
	EventAsyncFailure // a peer died, a transport broke, an operation was abandoned
	numEvents
)

// String is the event's stable name: "init_done".
func (e Event) String() string { return words.Name("event", eventNames[:], e) }
