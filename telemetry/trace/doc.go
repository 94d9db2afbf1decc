// Package trace turns a tape into OpenTelemetry spans.
//
// One trace holds one collective act (an init, a split, a destroy …) or one operation, with a span from every rank. The
// ranks never talk about tracing: each computes the same trace id from what the act is, so their spans meet in one
// trace, even when rank 0, whose span is the root, is the rank that died.
//
//	trace id = hash(communicator, act, number)
//
//	rank 0   ccl.comm.init                    root
//	           ├ ccl.comm.init (started)      exported at once: a hang is seen before it ends
//	           ├ ccl.comm.init.rendezvous
//	           ├ ccl.comm.init.topology
//	           └ ccl.comm.init.connect
//	rank 1     └ ccl.comm.init                remote parent: rank 0's span, by its computed id
//	               ├ …
//
// A hang is in Jaeger while it lasts: an operation that becomes slow has a started span as an act has, and one that
// stalls has a span from its start until now, with status Error, again and again. Its own span is made when it ends,
// with its true start.
//
//	rank 1     ccl.all_reduce                  made when it ends; its children come before it
//	           ├ ccl.all_reduce (started)
//	           ├ ccl.stall                     5 s: waiting for rank 3
//	           └ ccl.stall                     10 s
//
// Of operations that end well and in time, a sample has a span. The communicator's id and the operation's number
// decide, so that all ranks choose alike; not the trace id, whose hash would be most of what an operation costs a
// reader.
//
// A world gets its final id when its ranks have met. Until then the started span of its init has an id that other runs
// of the job may share; then it is made once more.
//
// The acts of a communicator are connected by links, not by nesting, as a communicator lives for days. A split links to
// its parent's init, a destroy to its own, and every act to the caller's span if the caller's context had one. A
// refused call is a span with status Error in the trace of the act that made it a mistake. A call that a non-blocking
// communicator postponed is a span without an error in the trace of the act that it must wait for.
//
// A Projector is fed events by a follower of the tape. Behind it a pipeline keeps the last traces in a bounded Store
// and, if the OTEL_* variables ask for it, exports them; a collector that is slow or away costs drops that are counted,
// never the job's time. Errors are exported at once, other spans in batches. A variable that can't be used is a
// warning, not an error. The package touches no global state of OpenTelemetry.
package trace
