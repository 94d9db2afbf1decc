// Package engine is what the engines of a communicator have in common: the calls that they get, and how ranks find out
// that they disagree, or that one has stopped. An engine carries out calls on one kind of memory; package host does on
// that of the CPU.
//
//	ccl.Comm     whose turn is it? may it? its number, its record on the tape
//	   │ Op: checked, numbered
//	   ▼
//	Engine       plan, data, waiting ──── Signature: does the peer make the same call?
//	   │ Begin, WaitsFor, Passed, End, Fail
//	   ▼
//	Comm         current call, last word, Links: notices of those that stopped
//
// The communicator, ccl's Comm, has what must not depend on where buffers lie. It orders calls, asks the table of the
// lifecycle, checks operations (Op.Check, CheckToSelf), gives collectives and messages their numbers, on which the
// ranks agree, records starts and ends on the tape, and moves to failed when a call returns an error.
//
// An Engine has the way of the data: by which algorithm, over what, and how it waits. It alone looks into the memory of
// an Op's Send and Recv. Ranks that make different calls must all get an error, and no garbage: they tell each other
// their Signature, or as much of it as the engine's protocol has room for, and MessageMismatch and Claims say what they
// differ in. An engine says for whom it waits, and leaves when the communicator has stopped.
//
// A Device is an engine, too, for the memory of a GPU: it puts calls on a stream, and they go on when it has returned.
//
// A Comm is between the two: one rank as its engines see it. It has the call that is run, the Links to the other ranks,
// which go between their CPUs wherever the buffers are, and the communicator's last word: the first error that stopped
// it. Whichever way it stops, the other ranks are told, and every later call returns that error.
package engine
