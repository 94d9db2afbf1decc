// Package job runs the ranks of one job on this machine: it starts them with the environment they find each other
// by, shows what they print, and sees to it that they end together.
//
//	          Config
//	            │
//	Run ── reserve a port, start every rank in a process group of its own
//	 │
//	 ├─ readers   a rank's output, line by line → console ("[2] …") and a log per rank
//	 ├─ watch     deaths in batches: a cause is always in the first batch
//	 └─ the loop  deaths, signals and timers → linger → SIGTERM → SIGKILL
//	            │
//	          Result     which rank failed first and how, and what became of the others
//
// With Config.MinRanks, failures that leave enough ranks are said and remembered; only the one that leaves too few
// begins the end.
//
// Ranks never outlive the job. When one fails, the others are given a moment to say what they saw of it and to end by
// themselves; then they are asked to end; then they are killed. What a rank started ends with the rank. When the
// launcher itself is killed, the kernel kills the ranks.
//
// The package knows nothing of communicators: it speaks to a rank through its environment, its output and signals, so
// that it can start any program, in any language, that reads torchrun's variables.
package job
