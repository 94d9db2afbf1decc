package semconv

// Metrics of the in-flight table, read when they are scraped; all but the first by communicator name.
const (
	MetricCommunicators = "ccl_communicators"                // live ones, by state (gauge). Stable.
	MetricInFlight      = "ccl_operations_in_flight"         // launched and not completed (gauge). Stable.
	MetricOldestAge     = "ccl_operation_oldest_age_seconds" // of those in flight, 0 if there is none (gauge). Stable.
	MetricLaunchedSeq   = "ccl_operation_launched_seq"       // the highest number launched (gauge). Stable.
	MetricCompletedSeq  = "ccl_operation_completed_seq"      // the lowest number completed (gauge). Stable.
	// MetricCaptured is the number of operations that were captured in CUDA graphs, whose launches are not seen, and
	// are in no other metric (gauge). Development.
	MetricCaptured = "ccl_operations_captured"
)

// Metrics of operations that ended. The last three count only those that ended well.
const (
	MetricOperations   = "ccl_operations_total"                         // by kind and error type (counter). Stable.
	MetricBytes        = "ccl_operation_bytes_total"                    // of their buffers, by kind (counter). Stable.
	MetricDuration     = "ccl_operation_duration_seconds"               // from launch to end (histogram). Stable.
	MetricBusBandwidth = "ccl_operation_bus_bandwidth_bytes_per_second" // as nccl-tests defines it (histogram). Stable.
)

// Metrics of communicators' lives.
const (
	MetricActDuration = "ccl_lifecycle_duration_seconds" // how long acts took, by act (histogram). Stable.
	// MetricLifecycleErrors counts failed acts, failed communicators and refused calls, by call and error type
	// (counter). A double destroy is call "destroy" with error type "destroyed". Stable.
	MetricLifecycleErrors = "ccl_lifecycle_errors_total"
	// MetricPostponed counts calls that a non-blocking communicator put off because one before them was unfinished, by
	// call (counter). They are no errors: ErrInProgress is a regular result. Stable.
	MetricPostponed = "ccl_lifecycle_postponed_total"
	// MetricPeerErrors counts acts and communicators that failed by another rank's fault, by communicator name, that
	// rank and error type (counter). Stable.
	MetricPeerErrors = "ccl_peer_errors_total"
)

// Metrics of operations and acts that take too long.
const (
	MetricStalled = "ccl_stalled_operations" // those stalled now, by communicator name and kind (gauge). Stable.
	// MetricStallAge is how long the oldest of them has taken until now, by communicator name, kind and the rank that
	// it waits for; absent while nothing is stalled (gauge). Stable.
	MetricStallAge = "ccl_stall_age_seconds"
	MetricStalls   = "ccl_stalls_total" // each stall once, by kind (counter). Stable.
)

// Metrics of the telemetry itself.
const (
	MetricTapeMissed = "ccl_tape_records_missed_total" // overwritten before they were read, by ring (counter). Stable.
	MetricTapeFree   = "ccl_tape_places_free"          // see LabelPart (gauge). Stable.
	MetricSpans      = "ccl_spans_total"               // by result: exported, dropped or failed (counter). Stable.
	MetricLogDropped = "ccl_log_records_dropped_total" // by sink: local or otlp (counter). Stable.
	MetricBuildInfo  = "ccl_build_info"                // 1; its labels say what is running (gauge). Stable.
)

// Metrics of the process's proxy, which sends to other nodes for its own ranks and for others of its node.
const (
	// MetricProxyOperations is the number of operations in use, by pool: "own" for the process's, "shared" for the one
	// in memory that the node's ranks share (gauge). Stable.
	MetricProxyOperations = "ccl_proxy_operations"
	MetricProxyWaiting    = "ccl_proxy_waiting"     // streams that wait for a free operation (gauge). Stable.
	MetricProxyWaits      = "ccl_proxy_waits_total" // times that no operation was free (counter). Stable.
	MetricProxySteps      = "ccl_proxy_steps_total" // of operations, sent to other nodes (counter). Stable.
	// MetricProxyRefused counts the operations that were refused because their token did not fit (counter). Stable.
	MetricProxyRefused = "ccl_proxy_operations_refused_total"
)

// Metrics of the health endpoint, and of what it shows.
const (
	MetricHealthConditions     = "ccl_health_conditions"            // open and not silent, by severity (gauge). Stable.
	MetricHealthRequests       = "ccl_health_requests_total"        // by path and status code (counter). Stable.
	MetricHealthConnections    = "ccl_health_connections"           // those that are open (gauge). Stable.
	MetricHealthConnectionsCut = "ccl_health_connections_cut_total" // cut to let others in (counter). Stable.
)

// Metrics of RAS: what the processes of a job know of each other.
const (
	// MetricRASPeers is the number of the job's processes that this one knows, itself included, by state: "alive",
	// "suspect", "dead", "stopped" or "left" (gauge). Stable.
	MetricRASPeers = "ccl_ras_peers"
	// MetricRASVerdicts is the number of open verdicts, by reason, culprit and severity, "critical" or "warning"
	// (gauge). Stable.
	MetricRASVerdicts      = "ccl_ras_verdicts"
	MetricRASVerdictsTotal = "ccl_ras_verdicts_total" // verdicts reached, by reason (counter). Stable.
	MetricRASEvents        = "ccl_ras_events_total"   // by sink, and pushed, dropped or failed (counter). Stable.
	// MetricRASPacketsRefused counts packets that the mesh's port refused, by reason (counter): "stranger" (not of this
	// job: garbage, another key, cut short), "replay", "crowded" (a stream that was closed because too many had not yet
	// proved that they belong to this job), "malformed", "limited" (questions that came too fast). Stable.
	MetricRASPacketsRefused = "ccl_ras_packets_refused_total"
	MetricRASQueriesRefused = "ccl_ras_queries_refused_total" // answered with 429 (counter). Stable.
)

// MetricProfilerOff counts the profiler plug-ins that were switched off, by plug-in (counter). Stable.
const MetricProfilerOff = "ccl_profiler_plugins_switched_off_total"

// MetricProfilerUnexpected counts NCCL's calls to the profiler plug-in that break its interface, by the reasons of
// tape.Unexpected: "foreign" is another process's event, as with PXN (counter). Development.
const MetricProfilerUnexpected = "ccl_profiler_unexpected_calls_total"

// Metrics of the GPUs that a process uses, by its index.
const (
	// MetricGPUDevices is the number of GPUs that a process watches, by state: "ok", "lost" or "unread", if the driver
	// doesn't answer; all are 0 where there is no GPU (gauge). Stable.
	MetricGPUDevices      = "ccl_gpu_devices"
	MetricGPUXidErrors    = "ccl_gpu_xid_errors_total"    // by GPU and number of the Xid (counter). Stable.
	MetricGPUECCErrors    = "ccl_gpu_ecc_errors_total"    // by type (counter). Stable.
	MetricGPUNVLinkErrors = "ccl_gpu_nvlink_errors_total" // replays, recoveries and CRC errors (counter). Stable.
	MetricGPUThrottled    = "ccl_gpu_throttled"           // 1 while slower than it could be, by reason (gauge). Stable.
	MetricGPUMemoryUsed   = "ccl_gpu_memory_used_bytes"   // in use by any process (gauge). Stable.
	MetricGPUMemoryTotal  = "ccl_gpu_memory_total_bytes"  // installed (gauge). Stable.
)

// Labels of metrics.
const (
	LabelComm      = "comm"       // a communicator's name, LabelValueOther beyond the cap. Stable.
	LabelState     = "state"      // a communicator's state. Stable.
	LabelKind      = "kind"       // an operation's kind, "all_reduce"; for stalls also an act's, "init". Stable.
	LabelSize      = "size"       // an operation's size bucket: "le_64KiB". Stable.
	LabelEngine    = "engine"     // what moves the data. Stable.
	LabelAct       = "act"        // an act in a communicator's life: "init". Stable.
	LabelCall      = "call"       // a user's call: "destroy". Stable.
	LabelErrorType = "error_type" // the stable name of an error's code, "" if there was none. Stable.
	LabelPeer      = "peer"       // another rank of the communicator, LabelValueOther beyond the cap. Stable.
	LabelResult    = "result"     // what became of a span. Stable.
	LabelWaitRank  = "wait_rank"  // the rank that is waited for, LabelValueNone if none. Stable.
	LabelRing      = "ring"       // a ring of the tape: "life" or "op". Stable.
	LabelPart      = "part"       // of the tape: "communicators" (slots for them) or "tallies" (of operations). Stable.
	LabelPool      = "pool"       // of a proxy's operations: "own" or "shared". Stable.
	LabelVersion   = "version"    // Carillon's version. Stable.
	LabelGoVersion = "goversion"  // the Go release that built it. Stable.
	LabelSeverity  = "severity"   // of a condition or a verdict: "info", "warning" or "critical". Stable.
	LabelPath      = "path"       // "/readyz", "/readyz/{check}"; LabelValueOther for unknown paths. Stable.
	LabelStatus    = "code"       // an HTTP status: "200". Stable.
	LabelReason    = "reason"     // a verdict's ("not_entered"), a throttle's, a profiler call's ("foreign"). Stable.
	// LabelCulprit is the rank at fault, as a rank of the job: "3", "2 and 5" for several ranks, "" if none is. It
	// isn't called "rank": that is the label of the scrape target, the rank that reports. Stable.
	LabelCulprit = "culprit"
	LabelSink    = "sink"   // where events are pushed to: "webhook". Stable.
	LabelPlugin  = "plugin" // a profiler plug-in's name. Stable.
	LabelGPU     = "gpu"    // a GPU: its index on the host; "3:1" is GPU instance 1 of it. Stable.
	LabelXid     = "xid"    // the number of an Xid error. Stable.
	LabelType    = "type"   // of ECC errors: "corrected" or "uncorrected". Stable.
)

// Values of labels.
const (
	LabelValueOther   = "other"   // the names, or peers, beyond the cap, counted together. Stable.
	LabelValueUnnamed = "unnamed" // the communicators without a name. Stable.
	LabelValueNone    = "none"    // the rank waited for where there is none. Stable.
	LabelValueUnknown = "unknown" // unknown from the tape. Stable.
)
