package semconv

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"
)

// The keys of log lines: short, for people. Exported log records have the attributes of LogAttribute instead, which are
// those of spans.
const (
	LogRank      = "rank"       // the process's rank in the job. Stable.
	LogProcess   = "process"    // its name in the job, if its environment gives it no rank. Stable.
	LogSubsystem = "subsys"     // one of the Subsystem values. Stable.
	LogComm      = "comm"       // the communicator's name. Stable.
	LogCommRank  = "comm_rank"  // the rank in it. Stable.
	LogCommSize  = "size"       // its number of ranks. Stable.
	LogCommID    = "id"         // its id. Stable.
	LogCommState = "state"      // its state afterwards. Stable.
	LogChild     = "child"      // the id of the communicator that the act made. Stable.
	LogCall      = "call"       // the user's call. Stable.
	LogSeq       = "seq"        // which split, group or operation it was. Stable.
	LogOps       = "ops"        // how many operations a group has. Stable.
	LogTook      = "took"       // from its start to its end. Stable.
	LogAge       = "age"        // from its start until now. Stable.
	LogBytes     = "bytes"      // the size of an operation's buffer. Stable.
	LogDataType  = "dtype"      // the type of one element. Stable.
	LogReduction = "reduction"  // how elements are combined. Stable.
	LogRoot      = "root"       // the root of a rooted collective. Stable.
	LogPeer      = "peer"       // the other rank of a send or receive, or the rank at fault. Stable.
	LogAlgorithm = "algorithm"  // the algorithm that ran. Stable.
	LogPhase     = "phase"      // the phase that it is in, or was in when it failed. Stable.
	LogReason    = "reason"     // why it is in that phase, if that is unusual. Stable.
	LogWait      = "wait"       // the rank that it waits for. Stable.
	LogErrorType = "error_type" // the stable name of the error's code. Stable.
	LogError     = "error"      // the error in words. Stable.
	LogSite      = "at"         // where the call was made: function, file and line. Stable.
	LogFirst     = "first"      // where the call was made that makes this one a mistake. Stable.
	LogVersion   = "version"    // Carillon's version. Stable.
	LogGoVersion = "go"         // the Go release that built it. Stable.
	LogTraceID   = "trace_id"   // the trace that the line belongs to. Stable.
	LogSpanID    = "span_id"    // the span in it. Stable.
	LogEnvName   = "name"       // an environment variable that was obeyed. Stable.
	LogEnvValue  = "value"      // its value. Stable.
	LogNormal    = "normally"   // what such an operation normally takes. Stable.
	LogTimes     = "times"      // how often such a call was refused, this one included. Stable.
)

// Messages of log lines that are about no span.
const (
	LogMessageVersion = "Carillon version" // the running version, once per process. Stable.
	LogMessageEnv     = "ccl.env"          // an environment variable that was obeyed. Stable.
)

// The subsystems, NCCL's names for where a line comes from.
const (
	SubsystemInit      = "INIT"      // communicators' births: init, split, shrink, grow. Stable.
	SubsystemBootstrap = "BOOTSTRAP" // how ranks find each other. Stable.
	SubsystemGraph     = "GRAPH"     // which rank is where. Stable.
	SubsystemNet       = "NET"       // connections. Stable.
	SubsystemColl      = "COLL"      // operations and groups. Stable.
	SubsystemDestroy   = "DESTROY"   // communicators' ends: finalize, revoke, abort, destroy, leak. Stable.
	SubsystemEnv       = "ENV"       // variables that were obeyed. Stable.
	SubsystemRAS       = "RAS"       // stalls and verdicts. Stable.
)

// Attributes of exported log records that no span has.
const (
	ProcessRank  = attribute.Key("ccl.process.rank")  // the rank, in the job, of the process that logged. Stable.
	ProcessName  = attribute.Key("ccl.process.name")  // its name in the job, if it has no rank by itself. Stable.
	Subsystem    = attribute.Key("ccl.subsystem")     // one of the Subsystem values. Stable.
	Duration     = attribute.Key("ccl.duration_ns")   // how long it took, in nanoseconds. Stable.
	Age          = attribute.Key("ccl.age_ns")        // how long it has lasted, in nanoseconds. Stable.
	ErrorMessage = attribute.Key("error.message")     // the error in words. Stable.
	CallSite     = attribute.Key("ccl.call.site")     // where the call was made: function, file and line. Stable.
	FirstSite    = attribute.Key("ccl.first.site")    // where the call was made that makes this one a mistake. Stable.
	RefusedTimes = attribute.Key("ccl.refused.times") // how often such a call was refused, this one included. Stable.
)

// logAttributes are the attributes that exported records have for keys of log lines.
var logAttributes = map[string]attribute.Key{
	LogRank:      ProcessRank,
	LogProcess:   ProcessName,
	LogSubsystem: Subsystem,
	LogComm:      CommName,
	LogCommRank:  Rank,
	LogCommSize:  CommSize,
	LogCommID:    CommID,
	LogCommState: CommState,
	LogChild:     SplitChildID,
	LogCall:      Call,
	LogSeq:       OpSeq,
	LogOps:       GroupOps,
	LogTook:      Duration,
	LogAge:       Age,
	LogBytes:     OpBytes,
	LogDataType:  OpDataType,
	LogReduction: OpReduction,
	LogRoot:      OpRoot,
	LogPeer:      PeerRank,
	LogAlgorithm: OpAlgorithm,
	LogPhase:     Phase,
	LogReason:    PhaseReason,
	LogWait:      WaitRank,
	LogErrorType: ErrorType,
	LogError:     ErrorMessage,
	LogSite:      CallSite,
	LogFirst:     FirstSite,
	LogTimes:     RefusedTimes,
}

// LogAttribute is the attribute that an exported record has for a key of log lines; the key itself if there is none.
func LogAttribute(key string) string {
	return cmp.Or(string(logAttributes[key]), key)
}
