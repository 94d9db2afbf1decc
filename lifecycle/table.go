package lifecycle

//go:generate go test -run ^TestTableDocument$ . -rewrite
//go:generate go run ./internal/cheader . carillon_lifecycle.h

// cell is one answer of a table: the State to go to, or stay, or the Code of the error. Codes of errors start at 100,
// above all states. Zero is no answer: a forgotten cell refuses, and fails the tests.
type cell uint16

// What can stand in a cell. All names have four letters, so that the tables stay tables under gofmt.
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

// calls is what becomes of a communicator that is in a state (column) when its user makes a call (row).
//
// Destroy and Abort go through a state of their own, in which the runtime waits for operations or cancels them, so that
// a Destroy that hangs is seen to hang, and can still be aborted. To all else the communicator is gone.
//
// After a failure the way on is Shrink (without the dead ranks) or Revoke; Split and Grow would need the ranks that
// failed.
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

// events is what becomes of a communicator that is in a state (column) when something happens (row). An event is never
// an error: one that comes too late, because the user has moved on meanwhile, changes nothing.
var events = [numEvents][numStates]cell{
	//                 none  initi ready fing  fized destg dead  abtg  aborted fail revoked
	EventInitDone:     {stay, goRd, stay, stay, stay, stay, stay, stay, stay, stay, stay},
	EventInitFailed:   {stay, goFl, stay, stay, stay, stay, stay, stay, stay, stay, stay},
	EventFinalizeDone: {stay, stay, stay, goFd, stay, stay, stay, stay, stay, stay, stay},
	EventDestroyDone:  {stay, stay, stay, stay, stay, goDd, stay, stay, stay, stay, stay},
	EventAbortDone:    {stay, stay, stay, stay, stay, stay, stay, goAd, stay, stay, stay},
	EventAsyncFailure: {stay, goFl, goFl, goFl, stay, stay, stay, stay, stay, stay, stay},
}

// Next is the rule for calls: what state a communicator in state s is in after call c, and CodeOK; or s and the code of
// the mistake. A state or call that does not exist is CodeInvalidArgument.
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

// After is the rule for events: what state a communicator in state s is in after event e. An event that does not
// concern s leaves it as it is.
func After(s State, e Event) State {
	if s >= numStates || e >= numEvents {
		return s
	}
	if to := events[e][s]; to != stay && to != 0 {
		return State(to)
	}
	return s
}
