// Package stall finds operations, and acts such as an init or a split, that take too long, while they last.
//
// A Watch reads a model.Process; it has no clock, goroutine or events of its own. From time to time its owner shows the
// model the in-flight table, and then asks the Watch for reports:
//
//	      older than               older than
//	──▶ the slow threshold ──▶ the stall threshold ──▶ again, at growing intervals
//	         Slow                    Stalled               Stalled, Count 2, 3, …
//	           └─────────────┬──────────┴─────────────────────┘
//	                         ▼
//	             ended, or the next one began: Cleared
//
// The thresholds are those of model.Limits, for operations and acts alike. They grow with the normal duration of
// operations of the same kind and size, or of such acts, so that a job whose all-reduce takes a minute gets no reports.
package stall
