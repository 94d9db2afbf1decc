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
// All tapes of one boot of a machine have one CLOCK_MONOTONIC. Between machines, no rank can end a collective before
// every other has begun it: that bounds how far one machine's clock can be ahead of another's, from both sides. The
// middle of what all bounds leave is the offset, and half its width the uncertainty. Clocks drift apart, so old
// collectives count for less. The time of day of hosts is believed only where their ranks did nothing together.
//
// # What was wrong
//
// The judge is that of a running job: each tape becomes the note that its process would have given at a moment. The
// moments are just before the first trouble (a process ended, a communicator failed, the job was ended from outside),
// right after it, and the end, until one of them says what was wrong. Calls that stalled and ended well make moments of
// their own, see Report.Held. Options.At asks for any other.
//
// # Bad input
//
// Tapes that were cut short are read as far as they go. What can't be read or believed is in Report.Problems. Texts of
// a tape may hold anything; Write shows them without what would make a terminal do something.
package postmortem
