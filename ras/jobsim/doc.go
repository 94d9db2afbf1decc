// Package jobsim simulates the ranks of a job: programs of calls, communicators that behave as the runtime's do, and
// faults of both. It runs in virtual time without goroutines, so that a job of a thousand ranks trains for hours in
// seconds, with the same result each time.
//
//	Program ──▶ Thread ──▶ call ──▶ meeting: have all entered? do they agree? is a rank dead, gone, late?
//	                                   │
//	faults: stop, kill, cut, freeze ───┤
//	                                   ▼
//	                   Process: tape.Event … tape.Slot …       the contents of its tape
//
// The caller injects the faults, and so knows what a diagnosis must say.
package jobsim
