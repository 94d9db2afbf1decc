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
// A call that is refused repeatedly is logged the 1st, 2nd, 4th, 8th time and so on, with the number of refusals: a
// loop writes only a few lines, which cover at least half of its calls. So are the leaks of a rank's communicators that
// one line of the program made.
//
// An error that a call returned is no warning, as its caller handles or reports it. NCCL's callers get a number: for
// them a refused call is one (Config.RefusedLevel).
package eventlog
