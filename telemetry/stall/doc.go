// Package stall finds what takes too long while it still goes on: operations, and acts such as an init or a split.
//
// A Watch is a pure machine, without clock or goroutine. Its owner shows it the tape's events, from which it learns what takes how long
// here and which acts are open, and from time to time the in-flight table; it answers with what changed:
//
//	                  older than               older than
//	in flight ──▶ the slow threshold ──▶ the stall threshold ──▶ again, at growing intervals
//	                   Slow                    Stalled               Stalled, Count 2, 3, …
//	                     └─────────────┬──────────┴─────────────────────┘
//	                                   ▼
//	                       it ended, or went on to the next: Cleared
//
// The table is the truth for operations, so that a Watch that missed events finds every stall all the same. Thresholds grow with
// what an operation of its kind and size normally takes, so that a job whose all-reduce takes a minute gets no report for each.
package stall
