package lifecycle

//go:generate go test -run ^(TestTableDocument|TestCHeaderIsCurrent)$ . -rewrite

// cell is an entry of a table: the next State, or stay, or the Code of the error. Codes of errors start at 100, above
// all states. Zero is a missing entry: it refuses the call, and fails the tests.
type cell uint16

// The entries. All names have four letters, so that gofmt keeps the tables aligned.
const (
	stay cell = 99 // legal, and the state remains

	goIn = cell(StateInitializing)
	goRd = cell(StateReady)
	goFg = cell(StateFinalizing)
	goFd = cell(StateFinalized)
	goDg = cell(StateDestroying)
	goDd = cell(StateDestroyed)
	goAg = cell(StateAborting)
	goAd = cell(StateAborted)
	goFl = cell(StateFailed)
	goRv = cell(StateRevoked)

	null = cell(CodeInvalidArgument) // there is no communicator
	used = cell(CodeInvalidUsage)    // there is one already
	soon = cell(CodeInitializing)
	late = cell(CodeFinalized)
	dead = cell(CodeDestroyed)
	gone = cell(CodeAborted)
	fail = cell(CodeFailed)
	rvkd = cell(CodeRevoked)
)

// calls has the result of a user's call (row) on a communicator in a state (column).
//
// Destroy and Abort have states of their own, in which the runtime waits for operations or cancels them, so that a
// Destroy that hangs can be seen, and can be aborted. For all other calls the communicator is gone.
//
// After a failure, Shrink (without the dead ranks) and Revoke are legal; Split and Grow would need the failed ranks.
var calls = [numCalls][numStates]cell{
	//                     none  initi ready fing  fized destg dead  abtg  aborted fail revoked
	CallInitRank:         {goIn, used, used, used, used, used, used, used, used, used, used},
	CallInitRankConfig:   {goIn, used, used, used, used, used, used, used, used, used, used},
	CallInitRankScalable: {goIn, used, used, used, used, used, used, used, used, used, used},
	CallInitAll:          {goIn, used, used, used, used, used, used, used, used, used, used},
	CallSplit:            {null, soon, stay, late, late, dead, dead, gone, gone, fail, stay},
	CallShrink:           {null, soon, stay, late, late, dead, dead, gone, gone, stay, stay},
	CallGrow:             {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallRevoke:           {null, soon, goRv, late, late, dead, dead, gone, gone, goRv, rvkd},
	CallFinalize:         {null, soon, goFg, late, late, dead, dead, gone, gone, fail, rvkd},
	CallDestroy:          {null, soon, goDg, goDg, goDg, dead, dead, gone, gone, goDg, goDg},
	CallAbort:            {null, goAg, goAg, goAg, goAg, goAg, dead, gone, gone, goAg, goAg},
	CallAsyncError:       {null, stay, stay, stay, stay, dead, dead, gone, gone, stay, stay},
	CallWait:             {null, stay, stay, stay, stay, dead, dead, gone, gone, stay, stay},
	CallGroupStart:       {stay, stay, stay, late, late, dead, dead, gone, gone, fail, rvkd}, // null: of Inits
	CallGroupEnd:         {stay, stay, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallAllReduce:        {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallBroadcast:        {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallReduce:           {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallAllGather:        {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallReduceScatter:    {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallAllToAll:         {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallGather:           {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallScatter:          {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallSend:             {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallRecv:             {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallSendRecv:         {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
	CallBarrier:          {null, soon, stay, late, late, dead, dead, gone, gone, fail, rvkd},
}

// events has the result of an event (row) for a communicator in a state (column). An event is never an error: an event
// that comes too late, because of a call meanwhile, changes nothing.
var events = [numEvents][numStates]cell{
	//                 none  initi ready fing  fized destg dead  abtg  aborted fail revoked
	EventInitDone:     {stay, goRd, stay, stay, stay, stay, stay, stay, stay, stay, stay},
	EventInitFailed:   {stay, goFl, stay, stay, stay, stay, stay, stay, stay, stay, stay},
	EventFinalizeDone: {stay, stay, stay, goFd, stay, stay, stay, stay, stay, stay, stay},
	EventDestroyDone:  {stay, stay, stay, stay, stay, goDd, stay, stay, stay, stay, stay},
	EventAbortDone:    {stay, stay, stay, stay, stay, stay, stay, goAd, stay, stay, stay},
	EventAsyncFailure: {stay, goFl, goFl, goFl, stay, stay, stay, stay, stay, stay, stay},
}

// Next is the rule for calls: the state after call c in state s, and CodeOK; or s and the code of the mistake. For an
// unknown state or call the code is CodeInvalidArgument.
func Next(s State, c Call) (State, Code) {
	if s >= numStates || c >= numCalls {
		return s, CodeInvalidArgument
	}
	switch to := calls[c][s]; {
	case to == stay:
		return s, CodeOK
	case to == 0:
		return s, CodeInvalidArgument
	case to < cell(numStates):
		return State(to), CodeOK
	default:
		return s, Code(to)
	}
}

// After is the rule for events: the state after event e in state s, which is s if the event changes nothing.
func After(s State, e Event) State {
	if s >= numStates || e >= numEvents {
		return s
	}
	if to := events[e][s]; to != stay && to != 0 {
		return State(to)
	}
	return s
}
