package semconv

import (
	"go.opentelemetry.io/otel/attribute"
	otelconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// SchemaURL names the version of OpenTelemetry's conventions that the borrowed names come from.
const SchemaURL = otelconv.SchemaURL

// ScopeName is the instrumentation scope of every span.
const ScopeName = "github.com/carillon-rt/carillon/telemetry/trace"

// Attributes of the resource: the process that a span comes from.
const (
	// ServiceName is the job's service name; OTEL_SERVICE_NAME wins. Stable.
	ServiceName = otelconv.ServiceNameKey
	// ServiceVersion is the version of the program, if it is known. Stable.
	ServiceVersion = otelconv.ServiceVersionKey
	// ServiceInstanceID is the process's rank in the job, in decimal; host-pid where the rank is not known. Stable.
	ServiceInstanceID = otelconv.ServiceInstanceIDKey
	// HostName is the host's name. Stable.
	HostName = otelconv.HostNameKey
	// ProcessPID is the process's number on its host. Stable.
	ProcessPID = otelconv.ProcessPIDKey
	// Job names the job, the same on all its processes. Stable.
	Job = attribute.Key("ccl.job")
)

// Attributes of a communicator, on every span.
const (
	// CommID is the communicator's id, 32 hexadecimal digits, the same on all its ranks. Stable.
	CommID = attribute.Key("ccl.comm.id")
	// CommName is the name its user gave it. Stable.
	CommName = attribute.Key("ccl.comm.name")
	// CommParentID is the id of the communicator it was split from; absent on a root communicator. Stable.
	CommParentID = attribute.Key("ccl.comm.parent.id")
	// CommSize is its number of ranks. Stable.
	CommSize = attribute.Key("ccl.comm.size")
	// CommNodes is the number of distinct hosts its ranks run on; absent until it is known. Stable.
	CommNodes = attribute.Key("ccl.comm.nodes")
	// CommState is the state it is in after the act ("ready", "destroyed", …). Stable.
	CommState = attribute.Key("ccl.comm.state")
	// Rank is the rank, in this communicator, that the span tells of. Stable.
	Rank = attribute.Key("ccl.rank")
	// Engine is what moves the data ("host"). Stable.
	Engine = attribute.Key("ccl.engine")
)

// Attributes of an act in a communicator's life.
const (
	// Call is the user's call that was the cause ("init_rank", "split", "all_reduce", …). Stable.
	Call = attribute.Key("ccl.call")
	// ActSeq tells which split or group of its communicator it was. Stable.
	ActSeq = attribute.Key("ccl.act.seq")
	// SplitChildID is the id of the communicator that a split made; absent for a rank that got none. Stable.
	SplitChildID = attribute.Key("ccl.split.child.id")
	// GroupOps is the number of operations in a group. Stable.
	GroupOps = attribute.Key("ccl.group.ops")
	// Postponed says why a call was put off: it changed nothing, and is to be made again when the communicator's
	// unfinished call is complete. Absent on calls that were made. It is no error. Stable.
	Postponed = attribute.Key("ccl.call.postponed")
	// SharedGoroutines is true when calls on the communicator had come from other goroutines (of a C program: threads)
	// than the one that made it; absent otherwise. Development.
	SharedGoroutines = attribute.Key("ccl.comm.shared_goroutines")
	// PeerRank is the rank at fault. Stable.
	PeerRank = attribute.Key("ccl.peer.rank")
	// Phase is the phase that an act was in when it ended badly or was seen last. Development.
	Phase = attribute.Key("ccl.phase")
	// ErrorType is the stable name of the error's code ("destroyed", "rank_dead", …); absent when there was no error.
	// Stable.
	ErrorType = otelconv.ErrorTypeKey
)

// Attributes that say where a call was made.
const (
	// CodeFunction is the function that made the call. Stable.
	CodeFunction = otelconv.CodeFunctionNameKey
	// CodeFile is the source file. Stable.
	CodeFile = otelconv.CodeFilePathKey
	// CodeLine is the line in it. Stable.
	CodeLine = otelconv.CodeLineNumberKey
	// Goroutine is the number of the goroutine that made it. Development.
	Goroutine = attribute.Key("ccl.goroutine.id")
)

// Attributes of a misuse: where the first such call was made, the one that makes this one a mistake.
const (
	// FirstFunction is the function that made the first call. Stable.
	FirstFunction = attribute.Key("ccl.first.function")
	// FirstFile is its source file. Stable.
	FirstFile = attribute.Key("ccl.first.file")
	// FirstLine is its line. Stable.
	FirstLine = attribute.Key("ccl.first.line")
	// FirstGoroutine is its goroutine's number. Development.
	FirstGoroutine = attribute.Key("ccl.first.goroutine.id")
	// FirstTime is when it was made, RFC 3339 with nanoseconds, UTC. Stable.
	FirstTime = attribute.Key("ccl.first.time")
)

// Attributes of an operation (a collective, a send or a receive).
const (
	// OpSeq is its number on its communicator and rank, from 1. Stable.
	OpSeq = attribute.Key("ccl.op.seq")
	// OpBytes is the size of the buffer that the call's count speaks of, in bytes. Stable.
	OpBytes = attribute.Key("ccl.op.bytes")
	// OpDataType is the type of one element ("float32"). Stable.
	OpDataType = attribute.Key("ccl.op.dtype")
	// OpReduction is how elements are combined ("sum"); absent where nothing is reduced. Stable.
	OpReduction = attribute.Key("ccl.op.reduction")
	// OpRoot is the root of a rooted collective. Stable.
	OpRoot = attribute.Key("ccl.op.root")
	// OpPeer is the other rank of a send or receive. Stable.
	OpPeer = attribute.Key("ccl.op.peer")
	// OpAlgorithm is the algorithm that ran ("ring"). Stable.
	OpAlgorithm = attribute.Key("ccl.op.algorithm")
	// OpPhase is the phase that a failed operation was in last. Stable.
	OpPhase = attribute.Key("ccl.op.phase")
	// WaitRank is the rank that it waited for last; absent if none. Stable.
	WaitRank = attribute.Key("ccl.wait.rank")
)

// Attributes of what takes too long. Durations are in seconds.
const (
	// OpSlow is true on an operation that took longer than the slow threshold; absent otherwise. Stable.
	OpSlow = attribute.Key("ccl.op.slow")
	// StallNumber tells a stall's reports apart: 1 is the first. On an operation that has ended it is how many there were.
	// Stable.
	StallNumber = attribute.Key("ccl.stall.number")
	// StallAge is how long it had taken at the time of the report. Stable.
	StallAge = attribute.Key("ccl.stall.age")
	// StallThreshold is the age from which it counts as stalled. Stable.
	StallThreshold = attribute.Key("ccl.stall.threshold")
	// StallNormal is what its like normally takes in this process; absent until it is known. Stable.
	StallNormal = attribute.Key("ccl.stall.normal")
	// StallReason says in a sentence what is known of why. Stable.
	StallReason = attribute.Key("ccl.stall.reason")
	// WaitDuration is how long it has waited for WaitRank. Stable.
	WaitDuration = attribute.Key("ccl.wait.duration")
	// VerdictRank is the rank that was found to be the cause, in this communicator; absent until one was found.
	// Development.
	VerdictRank = attribute.Key("ccl.verdict.rank")
	// VerdictReason is the stable name of the cause. Development.
	VerdictReason = attribute.Key("ccl.verdict.reason")
	// VerdictChain is which rank waits for which, from this rank to the cause. Development.
	VerdictChain = attribute.Key("ccl.verdict.chain")
)

// LinkKind says, on a link, what the span at its other end is to this one: one of the Link values. Stable.
const LinkKind = attribute.Key("ccl.link")

// The values of LinkKind.
const (
	LinkBirth  = "birth"  // the init (or split) that made this span's communicator
	LinkParent = "parent" // the birth of the communicator that this one was made from
	LinkChild  = "child"  // the birth of the communicator that this split made
	LinkFirst  = "first"  // the first call, which makes this one a misuse
	LinkCaller = "caller" // the caller's own span, for instance its training step
	LinkBehind = "behind" // the act that this call was postponed for
)

// ErrorStalled is the ErrorType of an operation or act that has not ended when it should have. Stable.
const ErrorStalled = "stalled"

// ErrorUnfinished is the ErrorType of an act that had not ended when the tape did. Stable.
const ErrorUnfinished = "unfinished"
