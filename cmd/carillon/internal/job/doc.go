// Package job runs the ranks of one job on this machine: it starts them with the environment by which they find each
// other, shows their output, and makes sure that they end together.
//
//	          Config
//	            │
//	Run ── reserve a port, start every rank in a process group of its own
//	 │
//	 ├─ readers   a rank's output, line by line → console ("[2] …") and a log per rank
//	 ├─ console   writes to its stream, and alone waits for a reader
//	 ├─ watch     deaths in batches: a cause is always in the first batch
//	 └─ the loop  deaths, signals and timers → linger → SIGTERM → SIGKILL
//	            │
//	          Result     which rank failed first and how, and how the others ended
//
// With Config.MinRanks, the job goes on after failures that leave enough ranks. The first one that leaves too few ends
// it.
//
// Ranks wait for the reader of their output, as with a pipe, and what a rank had written when it ended is shown,
// however late that is read. What ends the ranks never waits: after a signal, output that nobody reads is dropped.
//
// Ranks never outlive the job. When one fails, the others get some time to report what they saw and to end by
// themselves; then they get SIGTERM, and then SIGKILL. Processes that a rank started end with the rank. When the
// launcher itself is killed, the kernel kills the ranks.
//
// The package knows nothing of communicators. It deals with a rank through its environment, its output and signals, so
// it can start any program, in any language, that reads torchrun's variables.
package job
