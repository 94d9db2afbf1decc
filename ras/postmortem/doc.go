// Package postmortem tells what a job did and why it stopped, from the tapes of its processes: dead, alive or in
// between, of any number of hosts, copied together into one folder or lying where they were written. It reads tapes and
// nothing else, and writes nothing.
//
//	tapes ─▶ processes ─▶ one clock ─▶ the moments that matter ─▶ notes ─▶ verdict.Diagnose ─▶ findings
//	             │            │                                                                timeline
//	             │            └─ offsets between machines, from what their ranks did together
//	             └─ tallies ─▶ what was done
//
// # One clock
//
// All tapes of one boot of a machine have one CLOCK_MONOTONIC. Between machines, every collective is a message in all
// directions: it can't end on one rank before every other has begun it. So each bounds how far one machine's clock can
// be ahead of another's, from both sides, and the bounds together are a system of differences; the middle of what they
// leave is the offset, and half its width the uncertainty, which is about the time of the quickest collective. Clocks
// drift apart, so old collectives count for less. The time of day of hosts is believed only where their ranks did
// nothing together, and where it can't be right a Problem says so. Times are the first host's time of day.
//
// # What was wrong
//
// The judge is that of a running job, and its sentences are the same: each tape becomes the note that its process would
// have given at a moment. The moments are just before the first trouble (a process ended, a communicator failed, the
// job was ended from outside), right after it, and the end, until one of them says what was wrong. What happens to a
// job that is ended from outside is no cause of anything. Calls that stalled and ended well make moments of their own;
// what is said of those is in Report.Held. Options.At asks for any other moment that the tapes cover.
//
// # What was done
//
// Rings keep the latest; what a tape's tallies count is all that ended well since its process began, by the
// communicator's name, the call and the class of sizes. Report.Done has it for all ranks, and what each did of it. It
// has no times.
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
// A process that is killed takes along the spans that it had not exported, and those of what it was in, which would
// have come at the end. One that ends by SIGTERM has sent them, and its tape says so; every tape says what its
// collector had taken. Export sends them with the ids that the process itself would have given them, so that they stand
// beside those of the other ranks.
package postmortem
