// Package engine holds what all engines of a communicator share: the operations passed to them, and the means by which
// ranks detect that their calls differ or that a rank has stopped. An engine carries out calls on one kind of memory;
// package host does so on CPU memory.
//
//	ccl.Comm     whose turn is it? may it? its number, its record on the tape
//	   │ Op: checked, numbered
//	   ▼
//	Engine       plan, data, waiting ──── Signature: does the peer make the same call?
//	   │ Begin, WaitsFor, Passed, End, Fail
//	   ▼
//	Comm         current call, last word, Links: notices of those that stopped
//
// The communicator, ccl.Comm, does everything that doesn't depend on where buffers are. It orders calls, consults the
// lifecycle table, checks operations (Op.Check, CheckToSelf), assigns the numbers of collectives and messages, on which
// the ranks agree, records starts and ends on the tape, and moves to the failed state when a call returns an error.
//
// An Engine moves the data: it chooses the algorithm and the transport, and how to wait. Only an Engine looks into the
// memory of an Op's Send and Recv. Ranks that make different calls must all get an error, and no garbage: they exchange
// their Signatures, or as much of them as the engine's protocol has room for, and MessageMismatch and Claims describe
// the difference. An engine reports which rank it waits for, and returns early when the communicator has stopped.
//
// A Device is an engine for GPU memory: it enqueues calls on a stream, and they continue after it has returned.
//
// A Comm connects the two: it is one rank as its engines see it. It holds the current call, the Links to the other
// ranks, which connect their CPUs wherever the buffers are, and the communicator's last word: the first error that
// stopped it. However it stops, the other ranks are told, and every later call returns that error.
package engine
