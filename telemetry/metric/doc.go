// Package metric shows a process's communicators to Prometheus.
//
// The present state (states, operations in flight, the age of the oldest) is read from the tape's in-flight table at
// each scrape, so that it costs the data path nothing and is right even without a follower. The tape's tallies, which
// have the counts, durations and bandwidths of operations that ended well, are read likewise. The tape's follower adds
// the rest: acts, errors, exemplars, and the operations for which there was no tally left:
//
//	in-flight table, tallies ── at scrape time ──┐
//	                                             ├─ Collector ── /metrics
//	rings ── follower ── model ── Observe(step) ─┘
//
// The number of series is bounded: labels are kinds, size buckets, engines, states and the names of communicators,
// never ids or sequence numbers. Only the first maxNames names have series of their own, the others share one.
//
// The durations of operations and acts with a span have its trace id as an exemplar, so that a slow bucket leads to a
// trace. Push sends the same metrics by OTLP.
//
// Bus bandwidth is defined as in nccl-tests: the rate at which data crosses a rank's link, which can be compared with
// the hardware's for every collective and number of ranks. For operations that are enqueued on a stream, such as
// NCCL's, durations are those of the calls, and only the operations whose time on the device is measured have a bus
// bandwidth.
package metric
