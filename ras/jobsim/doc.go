// Package jobsim simulates what the ranks of a job do: programs of calls, communicators that behave as the runtime's
// do, and what can go wrong with both. It has a clock of its own and no goroutines, so that a job of a thousand ranks
// runs through hours of training in seconds, and does the same each time.
//
//	Program ──▶ Thread ──▶ call ──▶ meeting: all have come? agree? somebody dead, gone, late?
//	                                   │
//	faults: stop, kill, cut, freeze ───┤
//	                                   ▼
//	                   Process: tape.Event … tape.Slot …       what its tape would tell
//
// What really went wrong is known to the caller, which made it so.
package jobsim
