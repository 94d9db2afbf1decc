// Package model folds the events of a tape into what its process did and does. Traces, stalls, RAS's notes and the
// post-mortem all ask it, so that they agree on which acts are open, which operations are in flight, and why a
// communicator failed.
//
//	tape.Event ──▶ Apply ──▶ Step: the event, with the communicator, act or operation that it is about
//	tape.Slot  ──▶ Look      what is in flight at a moment: the table is the truth about that
//	                 │
//	                 └─▶ Comm ─┬─ Acts     begun and not ended   Failure   why the communicator failed, at first
//	                           ├─ Ops      in flight             End       how and where this rank ended it
//	                           └─ Waits    for which ranks       History   the calls, and what usually comes next
//
// A Process has no clock, file or goroutine: all times are those of the tape, CLOCK_MONOTONIC in nanoseconds. Its
// memory is bounded, whatever the tape says. It is not safe for concurrent use.
package model
