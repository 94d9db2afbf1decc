// Package eventlog writes the tape as log lines: one for each act in a communicator's life, each refused call, each
// failure and, with Config.Operations, each operation.
//
//	tape ── follower ── model ── Log.Observe(step) ── slog.Handler
//
// The data path logs none of that: a reader of the tape derives the lines, as it does spans and metrics, with the times
// of the events. Each line is logged in a context that holds the event's span, so that a handler can add the trace id.
//
//	WARN   leaks, groups that were never ended, stalls and their ends
//	INFO   acts and operations that failed, refused calls; acts that ended; operations, if Config.Operations; slow
//	       operations, and their ends
//	DEBUG  acts that started, their phases, and postponed calls
//
// A call that is refused again and again is logged the first time, the second, the fourth, the eighth and so on, with
// their number: a loop writes a few lines, and they tell at least half of what it did.
//
// An error that a call returned is no warning, as its caller handles or reports it. NCCL's callers get a number: for
// them a refused call is one (Config.RefusedLevel).
package eventlog
