package semconv

import (
	"go.opentelemetry.io/otel/attribute"
	otelconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The schema of OpenTelemetry's names, and the instrumentation scope of every span.
const (
	SchemaURL = otelconv.SchemaURL
	ScopeName = "github.com/carillon-rt/carillon/telemetry/trace"
)

// Attributes of the resource: the process that a span comes from.
const (
	ServiceName       = otelconv.ServiceNameKey       // the job's service name; OTEL_SERVICE_NAME wins. Stable.
	ServiceVersion    = otelconv.ServiceVersionKey    // the version of the program, if it is known. Stable.
	ServiceInstanceID = otelconv.ServiceInstanceIDKey // its rank in the job; host-pid where that is not known. Stable.
	HostName          = otelconv.HostNameKey          // the host's name. Stable.
	ProcessPID        = otelconv.ProcessPIDKey        // the process's number on its host. Stable.
	Job               = attribute.Key("ccl.job")      // names the job, the same on all its processes. Stable.
)

// Attributes of a communicator, on every span.
const (
	CommID       = attribute.Key("ccl.comm.id")        // its id, 32 hexadecimal digits, the same on all ranks. Stable.
	CommName     = attribute.Key("ccl.comm.name")      // the name that its user gave it. Stable.
	CommParentID = attribute.Key("ccl.comm.parent.id") // the id of its parent; absent if it has none. Stable.
	CommSize     = attribute.Key("ccl.comm.size")      // its number of ranks. Stable.
	CommNodes    = attribute.Key("ccl.comm.nodes")     // distinct hosts of its ranks; absent until it is known. Stable.
	CommState    = attribute.Key("ccl.comm.state")     // its state after the act: "ready", "destroyed", … Stable.
	Rank         = attribute.Key("ccl.rank")           // the rank in it that the span is about. Stable.
	Engine       = attribute.Key("ccl.engine")         // what moves the data ("host"). Stable.
)

// Attributes of an act in a communicator's life.
const (
	Call         = attribute.Key("ccl.call")           // the user's call that was the cause: "split", … Stable.
	ActSeq       = attribute.Key("ccl.act.seq")        // which split or group of its communicator it was. Stable.
	SplitChildID = attribute.Key("ccl.split.child.id") // what a split made; absent if this rank got none. Stable.
	GroupOps     = attribute.Key("ccl.group.ops")      // the number of operations in a group. Stable.
	// Postponed says why a call was put off: it changed nothing, and is to be made again when the communicator's
	// unfinished call is complete. Absent on calls that were made. It is no error. Stable.
	Postponed = attribute.Key("ccl.call.postponed")
	// SharedGoroutines is true when calls on the communicator had come from other goroutines (of a C program: threads)
	// than the one that made it; absent otherwise. Development.
	SharedGoroutines = attribute.Key("ccl.comm.shared_goroutines")
	PeerRank         = attribute.Key("ccl.peer.rank") // the rank at fault. Stable.
	Phase            = attribute.Key("ccl.phase")     // the phase in which it failed, or was seen last. Development.
	// PhaseReason says, on the span of a phase, why the act was in it, if that is unusual: what a workaround for an
	// NCCL bug has waited for. Development.
	PhaseReason = attribute.Key("ccl.phase.reason")
	ErrorType   = otelconv.ErrorTypeKey // the error's code: "rank_dead", …; absent if none. Stable.
)

// Attributes that say where a call was made.
const (
	CodeFunction = otelconv.CodeFunctionNameKey      // the function that made the call. Stable.
	CodeFile     = otelconv.CodeFilePathKey          // the source file. Stable.
	CodeLine     = otelconv.CodeLineNumberKey        // the line in it; absent for C. Stable.
	Goroutine    = attribute.Key("ccl.goroutine.id") // the number of the goroutine that made it. Development.
	Thread       = otelconv.ThreadIDKey              // in other languages than Go: the thread. Stable.
)

// Attributes of a misuse: where the earlier call was made that makes this one a mistake.
const (
	FirstFunction  = attribute.Key("ccl.first.function")     // the function that made the first call. Stable.
	FirstFile      = attribute.Key("ccl.first.file")         // its source file. Stable.
	FirstLine      = attribute.Key("ccl.first.line")         // its line; absent for C. Stable.
	FirstGoroutine = attribute.Key("ccl.first.goroutine.id") // its goroutine's number. Development.
	FirstThread    = attribute.Key("ccl.first.thread.id")    // in other languages than Go: its thread. Development.
	FirstTime      = attribute.Key("ccl.first.time")         // when it was made, RFC 3339, nanoseconds, UTC. Stable.
)

// Attributes of an operation (a collective, a send or a receive).
const (
	OpSeq       = attribute.Key("ccl.op.seq")       // its number on its communicator and rank, from 1. Stable.
	OpBytes     = attribute.Key("ccl.op.bytes")     // the size of the buffer that the call's count speaks of. Stable.
	OpDataType  = attribute.Key("ccl.op.dtype")     // the type of one element ("float32"). Stable.
	OpReduction = attribute.Key("ccl.op.reduction") // how elements are combined ("sum"); absent if they aren't. Stable.
	OpRoot      = attribute.Key("ccl.op.root")      // the root of a rooted collective. Stable.
	OpPeer      = attribute.Key("ccl.op.peer")      // the other rank of a send or receive. Stable.
	OpAlgorithm = attribute.Key("ccl.op.algorithm") // the algorithm that ran ("ring"). Stable.
	OpPhase     = attribute.Key("ccl.op.phase")     // the phase that a failed operation was in last. Stable.
	OpDepth     = attribute.Key("ccl.op.depth")     // Depth…: how it was seen; absent: as its call went. Development.
	// OpCaptured is true when the call captured the operation in a CUDA graph: it was not launched, and the span is the
	// call's. The graph's launches have no spans. Absent otherwise. Development.
	OpCaptured = attribute.Key("ccl.op.captured")
	WaitRank   = attribute.Key("ccl.wait.rank") // the rank that it waited for last; absent if none. Stable.
)

// Attributes of the data that an operation sent to a rank of another node. Development.
const (
	ProxyPeer    = attribute.Key("ccl.proxy.peer")    // the receiver. Development.
	ProxyCarrier = attribute.Key("ccl.proxy.carrier") // the rank of this node that sends it there. Development.
	ProxyBytes   = attribute.Key("ccl.proxy.bytes")   // the number of bytes sent. Development.
	ProxyWait    = attribute.Key("ccl.proxy.wait")    // what the data waited for: "credit", … Development.
)

// Attributes of slow and stalled operations and acts. Durations are in seconds.
const (
	OpSlow         = attribute.Key("ccl.op.slow")         // true beyond the slow threshold; else absent. Stable.
	StallNumber    = attribute.Key("ccl.stall.number")    // the report's number; at the end, the last number. Stable.
	StallAge       = attribute.Key("ccl.stall.age")       // how long it had taken at the time of the report. Stable.
	StallThreshold = attribute.Key("ccl.stall.threshold") // the age from which it counts as stalled. Stable.
	StallNormal    = attribute.Key("ccl.stall.normal")    // what such calls take normally; absent until known. Stable.
	StallReason    = attribute.Key("ccl.stall.reason")    // what is known about the cause, a sentence. Stable.
	WaitDuration   = attribute.Key("ccl.wait.duration")   // how long it has waited for WaitRank. Stable.
	VerdictRank    = attribute.Key("ccl.verdict.rank")    // the rank that is the cause; absent if unknown. Development.
	VerdictReason  = attribute.Key("ccl.verdict.reason")  // the stable name of the cause. Development.
)

// LinkKind says, on a link, how the linked span is related to this one: one of the Link values. Stable.
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

// Values of OpDepth: seen by its duration on the device, by its kernel, and by its proxies. Development.
const (
	DepthDevice = "device"
	DepthKernel = "kernel"
	DepthProxy  = "proxy"
)

// Values of ErrorType beside the codes of errors.
const (
	ErrorStalled    = "stalled"    // an operation or act did not end when it should have. Stable.
	ErrorUnfinished = "unfinished" // an act or operation had not ended when the tape did. Stable.
)
