// Package model folds the events of a tape into the state of its process. Traces, stalls, RAS's notes and the
// post-mortem all use it, so that they agree on which acts are open, which operations are in flight, and why a
// communicator failed.
//
//	tape.Event ──▶ Apply ──▶ Step: the event, with the communicator, act or operation that it is about
//	tape.Slot  ──▶ Look      the in-flight table at a moment, which overrides what the events say is in flight
//	                 │
//	                 └─▶ Comm ─┬─ Acts     begun and not ended   Failure   why the communicator first failed
//	                           ├─ Ops      in flight             End       how and where this rank ended it
//	                           └─ Waits    for which ranks       History   the calls, and which usually comes next
//
// A Process has no clock, file or goroutine: all times are those of the tape, CLOCK_MONOTONIC in nanoseconds. Its
// memory is bounded, whatever the tape says. It is not safe for concurrent use.
package model
