package semconv

import (
	"go.opentelemetry.io/otel/attribute"
	otelconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Types of the events that RAS pushes, as CloudEvents has them.
const (
	EventPrefix           = "dev.carillon."                  // begins every type. Stable.
	EventVerdictOpened    = "dev.carillon.verdict.opened"    // a cause was found. Stable.
	EventVerdictChanged   = "dev.carillon.verdict.changed"   // more, or something else, is known about it. Stable.
	EventVerdictWithdrawn = "dev.carillon.verdict.withdrawn" // what the verdict explained has ended. Stable.
	EventRankJoined       = "dev.carillon.rank.joined"       // a process is known from now on. Stable.
	EventRankLeft         = "dev.carillon.rank.left"         // a process left the job cleanly. Stable.
	EventRankDead         = "dev.carillon.rank.dead"         // a process ended without saying so. Stable.
	EventRankStopped      = "dev.carillon.rank.stopped"      // a process exists and doesn't run. Stable.
	EventRankUnreachable  = "dev.carillon.rank.unreachable"  // neither it nor another on its host answers. Stable.
	EventRankResumed      = "dev.carillon.rank.resumed"      // it runs or answers again. Stable.
	EventCommFailed       = "dev.carillon.comm.failed"       // a communicator can't be used any more. Stable.
	EventGPUXid           = "dev.carillon.gpu.xid"           // the driver reported an Xid. Stable.
	EventGPUECC           = "dev.carillon.gpu.ecc"           // a GPU's memory had an error. Stable.
	EventGPUNVLink        = "dev.carillon.gpu.nvlink"        // an NVLink had errors or was lost. Stable.
	EventGPUThrottled     = "dev.carillon.gpu.throttled"     // a GPU runs slower than it could. Stable.
	EventGPULost          = "dev.carillon.gpu.lost"          // a GPU, or the driver, doesn't answer. Stable.
	EventGPURecovered     = "dev.carillon.gpu.recovered"     // a GPU runs as it should again. Stable.
	EventMissed           = "dev.carillon.events.missed"     // to one subscriber: how many events it missed. Stable.
	EventGap              = "dev.carillon.events.gap"        // to one subscriber: it can't resume from there. Stable.
)

// Attributes of log records about an event.
const (
	EventID         = otelconv.CloudEventsEventIDKey        // the event's id. Development.
	EventSource     = otelconv.CloudEventsEventSourceKey    // the process that published it. Development.
	EventType       = otelconv.CloudEventsEventTypeKey      // its type. Development.
	EventSubject    = otelconv.CloudEventsEventSubjectKey   // what it is about. Development.
	EventStage      = attribute.Key("ccl.event.stage")      // "opened", "changed", "closed", or "once". Stable.
	EventKey        = attribute.Key("ccl.event.key")        // the same for all events of one condition. Stable.
	EventCause      = attribute.Key("ccl.event.cause")      // the explaining event's key; absent if unknown. Stable.
	EventReason     = attribute.Key("ccl.event.reason")     // the name of why: "not_entered"; absent if none. Stable.
	EventRank       = attribute.Key("ccl.event.rank")       // the job's ranks at fault: "3", "2 and 5". Stable.
	EventRepeats    = attribute.Key("ccl.event.repeats")    // how many were folded into it; absent if none. Stable.
	EventSuppressed = attribute.Key("ccl.event.suppressed") // how many symptoms it held back; absent if none. Stable.
	EventData       = attribute.Key("ccl.event.data")       // the event's data, JSON. Stable.
)
