// Package trace turns a tape into OpenTelemetry spans.
//
// One trace has one collective act (an init, a split, a destroy …) or one operation, with a span from every rank. The
// ranks exchange nothing for tracing: each computes the same trace id from the communicator, act and number, so that
// their spans form one trace, even if rank 0, whose span is the root, has died.
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
// A hang is visible in Jaeger while it lasts: an operation that becomes slow gets a started span, as an act does, and
// one that stalls gets a span from its start until now, with status Error, at each report. Its own span is made when it
// ends.
//
//	rank 1     ccl.all_reduce                  made when it ends; its children come before it
//	           ├ ccl.all_reduce (started)
//	           ├ ccl.proxy.operation           what it sent to a rank of another node
//	           │   └ ccl.proxy.step            in steps, the longest of them
//	           ├ ccl.stall                     5 s: waiting for rank 3
//	           └ ccl.stall                     10 s
//
// Of operations that end well and in time, a sample has spans. It is chosen by the communicator's id and the
// operation's number, so that all ranks choose the same, and not by the trace id, whose hash would cost a reader the
// most.
//
// A world gets its final id when its ranks have met. Until then the started span of its init has an id that other runs
// of the job may share; then the span is made again.
//
// The acts of a communicator are connected by links, not by nesting, as a communicator lives for days. A split links to
// its parent's init, a destroy to its own, and every act to the caller's span if the caller's context had one. A
// refused call is a span with status Error in the trace of the act that made it a mistake; of many such calls, the 1st,
// 2nd, 4th and so on. A call that a non-blocking communicator postponed is a span without an error in the trace of the
// act that it must wait for.
//
// A follower of the tape feeds events to a Projector. It stores the last traces in a bounded Store and, if the OTEL_*
// variables ask for it, exports them. If a collector is slow or unreachable, spans are dropped and counted, and the job
// doesn't wait. Errors are exported at once, other spans in batches. An invalid variable is a warning, not an error.
// The package uses no global state of OpenTelemetry.
package trace
