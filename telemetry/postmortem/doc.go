// Package postmortem tells what a job did and why it stopped, from the tapes of its processes: dead, alive or in between, of any number of
// hosts, copied together into one folder or lying where they were written. It reads tapes and nothing else, and writes nothing.
//
//	tapes ─▶ processes ─▶ one clock ─▶ communicators, ranks side by side ─▶ who waits for whom ─▶ findings
//	             │            │                                                                   timeline
//	             │            └─ offsets between machines, from what their ranks did together
//	             └─ tallies ─▶ what was done, and who was waited for
//
// # One clock
//
// All tapes of one boot of a machine have one CLOCK_MONOTONIC. Between machines, every collective is a message in all directions: it
// can't end on one rank before every other has begun it. So each bounds how far one machine's clock can be ahead of another's, from both sides,
// and the bounds together are a system of differences; the middle of what they leave is the offset, and half its width the uncertainty,
// which is about the time of the quickest collective. Clocks drift apart, so old collectives count for less. The time of day of hosts is
// believed only where their ranks did nothing together, and where it can't be right a Problem says so. Times are the first
// host's time of day.
//
// # Who waits for whom
//
// A rank in a collective waits for those that are not in it: they are in another call, in none, or dead, or left no tape. If all are in
// it, it waits for the one that its tape names. Where such chains end there is a cause; where they go in a circle, a deadlock. A process
// that ended without closing its tape is a cause if other ranks said so or went on without it, and only then: who kills a job that hangs kills
// all of it, and that is not why it hung.
//
// # What was done
//
// Rings keep the latest; what a tape's tallies count is all that ended well since its process began, by the
// communicator's name, the call and the class of sizes. Report.Done has it for all ranks, and what each did of it. It
// has no times.
//
// All ranks leave a collective such as an all-reduce together, and who comes last has spent least in it: so the rank
// that spends by far the least time there is the one that the others wait for, again and again. Report.Waited names it
// only where that is clear: all ranks of the communicator left whole tapes, and made as many operations; what was lost
// is at least a twentieth of their time, was not lost in the few operations that made up for a late start, and was not
// spent in other operations, where a rank that is late may itself have waited. A rank that is stopped within its
// operations can't be told by this.
//
// An operation that took far longer than others like it, and ended well, is in Report.Held: a second or more, and at least eight times what
// half of those of its communicator's name, call and class of sizes took. Where there are too few to tell, it is there if a rank came late to
// it. Rings keep the slow ones, with whom each rank waited for.
//
// # Bad input
//
// Tapes that were cut short are read as far as they go. What can't be read at all (another format, corrupt, no tape, a
// link) is in Report.Problems, beside tallies that are damaged or count what can't be, ranks that two processes claim,
// clocks that were set, and copies. Texts of a tape may hold anything; Write shows them without what would make a
// terminal do something.
//
// # Spans
//
// A process that is killed takes along the spans that it had not exported, and those of what it was in, which would have come at the end.
// One that ends by SIGTERM has sent them, and its tape says so; every tape says what its collector had taken.
// Export sends them with the ids that the process itself would have given them, so that they stand beside those of the other ranks.
package postmortem
