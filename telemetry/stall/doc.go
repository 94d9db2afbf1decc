// Package stall finds what takes too long while it still goes on: operations, and acts such as an init or a split.
//
// A Watch asks a model.Process what goes on and what normally takes how long; it has no clock, goroutine or events of
// its own. From time to time its owner shows the model the in-flight table, and then asks the Watch what changed:
//
//	            older than               older than
//	it goes ──▶ the slow threshold ──▶ the stall threshold ──▶ again, at growing intervals
//	  on           Slow                    Stalled               Stalled, Count 2, 3, …
//	                 └─────────────┬──────────┴─────────────────────┘
//	                               ▼
//	                   it ended, or went on to the next: Cleared
//
// The thresholds are those of model.Limits, for operations and acts alike. They grow with what an operation of its kind
// and size, or such an act, normally takes, so that a job whose all-reduce takes a minute gets no report for each.
package stall
