// Package eventlog is the tape as log lines: one for each act in a communicator's life, each refused call, each
// failure, and, where that is asked for, each operation.
//
//	tape ── follower ── model ── Log.Observe(step) ── slog.Handler
//
// Nothing on the data path logs what the tape tells: the lines are computed by a reader, as spans and metrics are, and
// carry the event's own time. Each is logged in a context that holds the event's span, so that a handler can add the
// trace id, and a line leads to its trace.
//
//	level  what
//	WARN   leaks, groups that were never ended, stalls and their ends
//	INFO   acts and operations that failed, refused calls; acts that ended; operations, if Config.Operations; what is
//	       slow, and its end
//	DEBUG  acts that started, their phases, and calls that were put off
//
// An error that a call returned is no warning: its caller has it, and handles or tells it.
package eventlog
