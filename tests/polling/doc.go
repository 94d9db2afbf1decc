// Package polling asks the health endpoints of a job's processes far more often than anybody should, and throws garbage
// at their ports, while the job creates and destroys communicators: nothing of it may reach the job.
//
//	100 clients, each with an address of its own ── 1,000 queries a second ──▶ 8 ranks, or 8 unrelated servers
//	                                                                               │
//	      split ─▶ barrier ─▶ all-reduce, checked ─▶ destroy ─▶ split ─▶ …  ◀──────┘ how many rounds a second?
//
// Each window in which the ranks are asked has one beside it in which as many processes that have nothing to do with
// Carillon get the same load: what the clients and the answers take from the processors is in both. The ratio of the
// two rates is printed, with its spread, and beside it that of windows of one kind. What is asserted doesn't depend on
// how fast the machine is: no error in the job, right results, each query that came too soon refused with 429, and each
// other one answered.
//
// Under the race detector, answers cost ten times as much, and the ratio says little. A minute without it:
//
//	go test ./polling -v -count=1 -pairs 30 -window 2s
package polling
