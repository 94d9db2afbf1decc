package semconv

import (
	"go.opentelemetry.io/otel/attribute"
	otelconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Types of the events that RAS pushes, as CloudEvents has them.
const (
	// EventPrefix begins every type. Stable.
	EventPrefix = "dev.carillon."
	// EventVerdictOpened says that a cause was found; its key stays until it is withdrawn. Stable.
	EventVerdictOpened = "dev.carillon.verdict.opened"
	// EventVerdictChanged says that more, or something else, is known of it. Stable.
	EventVerdictChanged = "dev.carillon.verdict.changed"
	// EventVerdictWithdrawn says that what it explained has ended. Stable.
	EventVerdictWithdrawn = "dev.carillon.verdict.withdrawn"
	// EventRankJoined says that a process of the job is known from now on. Stable.
	EventRankJoined = "dev.carillon.rank.joined"
	// EventRankLeft says that a process left the job in order. Stable.
	EventRankLeft = "dev.carillon.rank.left"
	// EventRankDead says that a process ended without saying so. Stable.
	EventRankDead = "dev.carillon.rank.dead"
	// EventRankStopped says that a process exists and doesn't run. Stable.
	EventRankStopped = "dev.carillon.rank.stopped"
	// EventRankUnreachable says that a process doesn't answer, and that nobody on its host does either. Stable.
	EventRankUnreachable = "dev.carillon.rank.unreachable"
	// EventRankResumed says that a process that was stopped or unreachable runs or answers again. Stable.
	EventRankResumed = "dev.carillon.rank.resumed"
	// EventCommFailed says that a communicator can't be used any more. Stable.
	EventCommFailed = "dev.carillon.comm.failed"
	// EventGPUXid says that the driver reported an Xid. Stable.
	EventGPUXid = "dev.carillon.gpu.xid"
	// EventGPUECC says that a GPU's memory had an error. Stable.
	EventGPUECC = "dev.carillon.gpu.ecc"
	// EventGPUNVLink says that an NVLink had errors or was lost. Stable.
	EventGPUNVLink = "dev.carillon.gpu.nvlink"
	// EventGPUThrottled says that a GPU runs slower than it could. Stable.
	EventGPUThrottled = "dev.carillon.gpu.throttled"
	// EventGPULost says that a GPU doesn't answer any more, or that the driver doesn't. Stable.
	EventGPULost = "dev.carillon.gpu.lost"
	// EventGPURecovered says that a GPU runs as it should again. Stable.
	EventGPURecovered = "dev.carillon.gpu.recovered"
	// EventMissed says to one subscriber how many events it was too slow for. Stable.
	EventMissed = "dev.carillon.events.missed"
	// EventGap says to one subscriber that what it asked to resume from is not remembered. Stable.
	EventGap = "dev.carillon.events.gap"
)

// Attributes of log records that tell of an event.
const (
	// EventID is the event's id. Development.
	EventID = otelconv.CloudEventsEventIDKey
	// EventSource is the process that published it. Development.
	EventSource = otelconv.CloudEventsEventSourceKey
	// EventType is its type. Development.
	EventType = otelconv.CloudEventsEventTypeKey
	// EventSubject is what it is about. Development.
	EventSubject = otelconv.CloudEventsEventSubjectKey
	// EventStage is "opened", "changed", "closed", or "once" for what has no duration. Stable.
	EventStage = attribute.Key("ccl.event.stage")
	// EventKey is what the events of one condition have in common. Stable.
	EventKey = attribute.Key("ccl.event.key")
	// EventCause is the key of the condition that explains it; absent if none is known. Stable.
	EventCause = attribute.Key("ccl.event.cause")
	// EventReason is the stable name of why ("not_entered"); absent if it has none. Stable.
	EventReason = attribute.Key("ccl.event.reason")
	// EventRank is the rank at fault, as a rank of the job; absent if none is. Stable.
	EventRank = attribute.Key("ccl.event.rank")
	// EventRepeats counts the events like it that were folded into it; absent if none was. Stable.
	EventRepeats = attribute.Key("ccl.event.repeats")
	// EventSuppressed counts the symptoms that were held back for it; absent if none was. Stable.
	EventSuppressed = attribute.Key("ccl.event.suppressed")
	// EventData is the event's data, JSON. Stable.
	EventData = attribute.Key("ccl.event.data")
)
