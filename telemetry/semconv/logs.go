package semconv

import "go.opentelemetry.io/otel/attribute"

// The keys of log lines: short, because people read them. Exported log records have the attributes of LogAttribute in
// their place, which are the spans'.
const (
	LogRank      = "rank"       // the process's rank in the job. Stable.
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
	LogCommNodes = "nodes"      // distinct hosts of the communicator. Stable.
	LogNormal    = "normally"   // what such an operation normally takes. Stable.
)

// Messages of log lines that tell of no span.
const (
	LogMessageVersion = "Carillon version" // which one runs, once in a process. Stable.
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
	// ProcessRank is the rank, in the job, of the process that logged. Stable.
	ProcessRank = attribute.Key("ccl.process.rank")
	// Subsystem is one of the Subsystem values. Stable.
	Subsystem = attribute.Key("ccl.subsystem")
	// Duration is how long it took, in nanoseconds. Stable.
	Duration = attribute.Key("ccl.duration_ns")
	// Age is how long it has lasted, in nanoseconds. Stable.
	Age = attribute.Key("ccl.age_ns")
	// ErrorMessage is the error in words. Stable.
	ErrorMessage = attribute.Key("error.message")
	// CallSite is where the call was made: function, file and line. Stable.
	CallSite = attribute.Key("ccl.call.site")
	// FirstSite is where the call was made that makes this one a mistake. Stable.
	FirstSite = attribute.Key("ccl.first.site")
)

// LogAttribute is the attribute that an exported record has for a key of log lines; the key itself where there is none.
func LogAttribute(key string) string {
	switch key {
	case LogRank:
		return string(ProcessRank)
	case LogSubsystem:
		return string(Subsystem)
	case LogComm:
		return string(CommName)
	case LogCommRank:
		return string(Rank)
	case LogCommSize:
		return string(CommSize)
	case LogCommNodes:
		return string(CommNodes)
	case LogCommID:
		return string(CommID)
	case LogCommState:
		return string(CommState)
	case LogChild:
		return string(SplitChildID)
	case LogCall:
		return string(Call)
	case LogSeq:
		return string(OpSeq)
	case LogOps:
		return string(GroupOps)
	case LogTook:
		return string(Duration)
	case LogAge:
		return string(Age)
	case LogBytes:
		return string(OpBytes)
	case LogDataType:
		return string(OpDataType)
	case LogReduction:
		return string(OpReduction)
	case LogRoot:
		return string(OpRoot)
	case LogPeer:
		return string(PeerRank)
	case LogAlgorithm:
		return string(OpAlgorithm)
	case LogPhase:
		return string(Phase)
	case LogWait:
		return string(WaitRank)
	case LogErrorType:
		return string(ErrorType)
	case LogError:
		return string(ErrorMessage)
	case LogSite:
		return string(CallSite)
	case LogFirst:
		return string(FirstSite)
	default:
		return key
	}
}
