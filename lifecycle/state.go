package lifecycle

// State is where a communicator is in its life.
type State uint8

// The states. A zero State is no state: a communicator is born Initializing.
const (
	StateNone State = iota
	StateInitializing
	StateReady
	StateFinalizing
	StateFinalized
	StateDestroyed
	StateAborting
	StateAborted
	StateFailed
	StateRevoked
	numStates
)

// Call is something that a user does to a communicator.
type Call uint8

// The calls: lifecycle first, then the collectives and point-to-point calls.
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

// Event is something that the runtime, not the user, makes happen to a communicator: the end of a call that takes
// time, or a failure in the background.
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
