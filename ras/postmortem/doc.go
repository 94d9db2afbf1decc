// Package postmortem tells what a job did and why it stopped, from the tapes of its processes, dead or alive, of any
// number of hosts, in one folder or where they were written. It reads tapes and their launcher's ledger, and writes
// nothing.
//
//	tapes ─▶ processes ─▶ one clock ─▶ the moments that matter ─▶ notes ─▶ verdict.Diagnose ─▶ findings
//	             │            │                                                                timeline
//	             │            └─ offsets between machines, from what their ranks did together
//	             └─ tallies ─▶ what was done
//
// # One clock
//
// All tapes of one boot of a machine share a CLOCK_MONOTONIC. Between machines, no rank can end a collective before
// every other has begun it: that bounds, from both sides, how far one machine's clock can be ahead of another's. The
// middle of the interval that all bounds leave is the offset, and half its width the uncertainty. Clocks drift apart,
// so old collectives count for less. Hosts' times of day are used only if their ranks did nothing together.
//
// # What was wrong
//
// The judge is that of a running job, verdict.Diagnose: each tape becomes the note that its process would have given at
// a moment. The moments are just before the first trouble (a process ended, a communicator failed, a hung operation was
// given up, the job was ended from outside), right after it, and the end; the first at which there is a verdict counts.
// Calls that stalled and ended well have moments of their own, see Report.Held. Options.At asks for any other.
//
// # Bad input
//
// Tapes that were cut short are read as far as they go. What can't be read or trusted is in Report.Problems. Texts of
// a tape may hold anything; Write makes them safe for a terminal.
package postmortem
