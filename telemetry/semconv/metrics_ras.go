package semconv

// Metrics of RAS: what the processes of a job know of each other.
const (
	// MetricRASPeers is the number of the job's processes that this one knows, itself included, by state: "alive",
	// "suspect", "dead", "stopped" or "left" (gauge). Stable.
	MetricRASPeers = "ccl_ras_peers"
	// MetricRASVerdicts is the number of open verdicts, by reason and culprit, which is a rank of the job or "" where
	// no rank is at fault (gauge). Stable.
	MetricRASVerdicts = "ccl_ras_verdicts"
	// MetricRASVerdictsTotal counts verdicts that were reached, by reason (counter). Stable.
	MetricRASVerdictsTotal = "ccl_ras_verdicts_total"
	// MetricRASEvents counts events by sink and what became of them: "pushed", "dropped" (queue full) or "failed"
	// (counter). Stable.
	MetricRASEvents = "ccl_ras_events_total"
	// MetricRASPacketsRefused counts what came to the mesh's port and was not taken, by reason (counter): "stranger" (not
	// of this job: garbage, another key, cut short), "replay", "oversized", "crowded" (too many streams at once),
	// "malformed", "limited" (questions that came too fast). Stable.
	MetricRASPacketsRefused = "ccl_ras_packets_refused_total"
	// MetricRASQueriesRefused counts queries that were answered with 429 because they came too often (counter). Stable.
	MetricRASQueriesRefused = "ccl_ras_queries_refused_total"
)

// Metrics of the GPUs that a process uses.
const (
	// MetricGPUDevices is the number of GPUs that a process watches, by state: "ok", "lost" or "unread", if the driver
	// doesn't answer; all are 0 where there is no GPU (gauge). Stable.
	MetricGPUDevices = "ccl_gpu_devices"
	// MetricGPUXidErrors counts Xid errors that the driver reported, by GPU and Xid number (counter). Stable.
	MetricGPUXidErrors = "ccl_gpu_xid_errors_total"
	// MetricGPUECCErrors counts ECC errors, by GPU and type: "corrected" or "uncorrected" (counter). Stable.
	MetricGPUECCErrors = "ccl_gpu_ecc_errors_total"
	// MetricGPUNVLinkErrors counts errors of a GPU's NVLinks: replays, recoveries and CRC errors (counter). Stable.
	MetricGPUNVLinkErrors = "ccl_gpu_nvlink_errors_total"
	// MetricGPUThrottled is 1 while a GPU runs slower than it could, by reason, else 0 (gauge). Stable.
	MetricGPUThrottled = "ccl_gpu_throttled"
	// MetricGPUMemoryUsed is the GPU memory in use, by whomever, in bytes (gauge). Stable.
	MetricGPUMemoryUsed = "ccl_gpu_memory_used_bytes"
	// MetricGPUMemoryTotal is the GPU memory that there is, in bytes (gauge). Stable.
	MetricGPUMemoryTotal = "ccl_gpu_memory_total_bytes"
)

// Labels of these metrics; LabelState and LabelResult are used as well.
const (
	LabelReason = "reason" // a verdict's reason ("not_entered"), or a throttle's ("thermal"). Stable.
	// LabelCulprit is the rank at fault, as a rank of the job; "" if none is. It isn't called "rank": that is the label
	// of the target, the rank that tells. Stable.
	LabelCulprit = "culprit"
	LabelSink    = "sink" // where events are pushed to: "webhook". Stable.
	LabelGPU     = "gpu"  // a GPU: its index on the host; "3:1" is GPU instance 1 of it. Stable.
	LabelXid     = "xid"  // the number of an Xid error. Stable.
	LabelType    = "type" // a type of ECC error. Stable.
)
