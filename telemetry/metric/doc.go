// Package metric shows a process's communicators to Prometheus.
//
// What is the case now (states, operations in flight, the age of the oldest) is read from the tape's in-flight table at
// the moment of a scrape, so that it costs the data path nothing and is true even when nobody follows the tape. So are
// the tape's tallies, which have the counts, durations and bandwidths of operations that ended well. The tape's
// follower feeds what is left: acts, errors, exemplars, and the operations for which there was no room in a tally:
//
//	in-flight table, tallies ── at scrape time ──┐
//	                                             ├─ Collector ── /metrics
//	rings ── follower ── model ── Observe(step) ─┘
//
// The number of series is bounded: labels are kinds, size buckets, engines, states and the names of communicators,
// never ids or sequence numbers; and of the names only the first so many, the others are counted together.
//
// The durations of what has a span carry its trace id as an exemplar, so that a slow bucket leads to the trace of an
// operation in it. Push sends the same metrics by OTLP where nobody pulls.
//
// Bus bandwidth is what nccl-tests means by it: the rate at which data crosses a rank's link, which can be compared
// with the hardware's, whatever the collective and the number of ranks.
package metric
