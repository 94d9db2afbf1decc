// Package polling queries the health endpoints of a job's processes far more often than anybody should, and sends
// garbage to their ports, while the job creates and destroys communicators: none of this may affect the job.
//
//	100 clients, each with an address of its own ── 1,000 queries a second ──▶ 8 ranks, or 8 unrelated servers
//	                                                                               │
//	      split ─▶ barrier ─▶ all-reduce, checked ─▶ destroy ─▶ split ─▶ …  ◀──────┘ how many rounds a second?
//
// Beside each window in which the ranks are queried there is one in which as many processes that have nothing to do
// with Carillon get the same load, so that both windows include the processor time of the clients and the answers. The
// test prints the ratio of the two rates with its spread, and that of windows of the same kind. What it asserts doesn't
// depend on the speed of the machine: there is no error in the job, the results are correct, each query that came too
// soon is refused with 429, and every other query is answered.
//
// Under the race detector, answers cost ten times as much, and the ratio says little. A minute without it:
//
//	go test ./polling -v -count=1 -pairs 30 -window 2s
package polling
