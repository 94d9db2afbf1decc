package semconv

// Metrics of the in-flight table, read when they are scraped.
const (
	// MetricCommunicators is the number of live communicators, by state (gauge). Stable.
	MetricCommunicators = "ccl_communicators"
	// MetricInFlight is the number of operations launched and not completed, by communicator name (gauge). Stable.
	MetricInFlight = "ccl_operations_in_flight"
	// MetricOldestAge is the age of the oldest operation in flight, in seconds, 0 if there is none, by communicator
	// name (gauge). Stable.
	MetricOldestAge = "ccl_operation_oldest_age_seconds"
	// MetricLaunchedSeq is the highest sequence number launched, over the communicators of one name (gauge). Stable.
	MetricLaunchedSeq = "ccl_operation_launched_seq"
	// MetricCompletedSeq is the lowest sequence number completed, over the communicators of one name (gauge). Stable.
	MetricCompletedSeq = "ccl_operation_completed_seq"
)

// Metrics of what happened, counted as it is read from the tape.
const (
	// MetricOperations counts operations that ended, by kind and error type (counter). Stable.
	MetricOperations = "ccl_operations_total"
	// MetricBytes counts the bytes of the buffers of operations that ended well, by kind (counter). Stable.
	MetricBytes = "ccl_operation_bytes_total"
	// MetricDuration is how long operations took that ended well, in seconds (histogram). Stable.
	MetricDuration = "ccl_operation_duration_seconds"
	// MetricBusBandwidth is their bus bandwidth as nccl-tests defines it, in bytes per second (histogram). Stable.
	MetricBusBandwidth = "ccl_operation_bus_bandwidth_bytes_per_second"
	// MetricActDuration is how long acts in communicators' lives took, in seconds, by act (histogram). Stable.
	MetricActDuration = "ccl_lifecycle_duration_seconds"
	// MetricLifecycleErrors counts failed acts, failed communicators and refused calls, by call and error type
	// (counter). A double destroy is call "destroy" with error type "destroyed". Stable.
	MetricLifecycleErrors = "ccl_lifecycle_errors_total"
	// MetricPostponed counts calls that a non-blocking communicator put off because one before them was unfinished, by
	// call (counter). They are no errors: ErrInProgress is an answer. Stable.
	MetricPostponed = "ccl_lifecycle_postponed_total"
	// MetricPeerErrors counts acts and communicators that failed by another rank's fault, by communicator name, that rank
	// and error type (counter). Stable.
	MetricPeerErrors = "ccl_peer_errors_total"
)

// Metrics of what takes too long, while it does.
const (
	// MetricStalled is the number of operations and acts that are stalled, by communicator name and kind; 0 when they have
	// gone on (gauge). Stable.
	MetricStalled = "ccl_stalled_operations"
	// MetricStallAge is how long the oldest of them has taken until now, in seconds, by communicator name, kind and the
	// rank that it waits for; absent while nothing is stalled (gauge). Stable.
	MetricStallAge = "ccl_stall_age_seconds"
	// MetricStalls counts operations and acts that stalled, each once, by kind (counter). Stable.
	MetricStalls = "ccl_stalls_total"
)

// Metrics of the telemetry itself.
const (
	// MetricTapeMissed counts tape records that were overwritten before they were read (counter). Stable.
	MetricTapeMissed = "ccl_tape_records_missed_total"
	// MetricTapeFree is how many places of the tape are free, by part: communicators (slots of the in-flight table) and
	// tallies (kinds of operations of communicators of one name). Without one, a communicator is in the rings alone, or
	// its operations are read one by one (gauge). Stable.
	MetricTapeFree = "ccl_tape_places_free"
	// MetricSpans counts spans by what became of them: exported, dropped (queue full), failed (exporter) (counter).
	// Stable.
	MetricSpans = "ccl_spans_total"
	// MetricLogDropped counts log records that were lost, because a queue was full or the receiver didn't take them, by
	// sink: local or otlp (counter). Stable.
	MetricLogDropped = "ccl_log_records_dropped_total"
	// MetricBuildInfo is 1; its labels say what is running (gauge). Stable.
	MetricBuildInfo = "ccl_build_info"
)

// Labels of metrics.
const (
	LabelComm      = "comm"       // a communicator's name, LabelValueOther beyond the cap. Stable.
	LabelState     = "state"      // a communicator's state. Stable.
	LabelKind      = "kind"       // an operation's kind, "all_reduce"; of what stalls also an act's, "init". Stable.
	LabelSize      = "size"       // an operation's size bucket: "le_64KiB". Stable.
	LabelEngine    = "engine"     // what moves the data. Stable.
	LabelAct       = "act"        // an act in a communicator's life: "init". Stable.
	LabelCall      = "call"       // a user's call: "destroy". Stable.
	LabelErrorType = "error_type" // the stable name of an error's code, "" if there was none. Stable.
	LabelPeer      = "peer"       // another rank of the communicator, LabelValueOther beyond the cap. Stable.
	LabelResult    = "result"     // what became of a span. Stable.
	LabelWaitRank  = "wait_rank"  // the rank that is waited for, LabelValueNone if none. Stable.
	LabelRing      = "ring"       // a ring of the tape: "life" or "op". Stable.
	LabelPart      = "part"       // of the tape: "communicators" or "tallies". Stable.
	LabelVersion   = "version"    // Carillon's version. Stable.
	LabelGoVersion = "goversion"  // the Go release that built it. Stable.
)

// LabelValueOther is the communicator name under which all those beyond the cap are counted. Stable.
const LabelValueOther = "other"

// LabelValueUnnamed is the communicator name of those that have none. Stable.
const LabelValueUnnamed = "unnamed"

// LabelValueNone is the waited-for rank of what waits for none. Stable.
const LabelValueNone = "none"

// LabelValueUnknown is the value of a label that the tape doesn't tell. Stable.
const LabelValueUnknown = "unknown"
