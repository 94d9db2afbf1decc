package semconv

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// ActName is the short name of an act ("init"), as metrics and sentences have it; "use" for none.
func ActName(act tape.Act) string {
	switch act {
	case tape.ActInit:
		return "init"
	case tape.ActSplit:
		return "split"
	case tape.ActShrink:
		return "shrink"
	case tape.ActGrow:
		return "grow"
	case tape.ActRevoke:
		return "revoke"
	case tape.ActFinalize:
		return "finalize"
	case tape.ActDestroy:
		return "destroy"
	case tape.ActAbort:
		return "abort"
	case tape.ActGroup:
		return "group"
	case tape.ActLeak:
		return "leak"
	default:
		return "use"
	}
}

// ActSpan is the name of an act's span.
func ActSpan(act tape.Act) string {
	switch act {
	case tape.ActInit:
		return SpanInit
	case tape.ActSplit:
		return SpanSplit
	case tape.ActShrink:
		return SpanShrink
	case tape.ActGrow:
		return SpanGrow
	case tape.ActRevoke:
		return SpanRevoke
	case tape.ActFinalize:
		return SpanFinalize
	case tape.ActDestroy:
		return SpanDestroy
	case tape.ActAbort:
		return SpanAbort
	case tape.ActGroup:
		return SpanGroup
	case tape.ActLeak:
		return SpanLeak
	default:
		return SpanUse
	}
}

// CallSpan is the name of the span of an operation, or of a refused call that belongs to no act.
func CallSpan(call lifecycle.Call) string {
	if Collective(call) || PointToPoint(call) {
		return SpanOpPrefix + call.String()
	}
	return SpanUse
}

// PhaseName is the name of a phase, as the last part of a span's name.
func PhaseName(phase tape.Phase) string {
	switch phase {
	case tape.PhaseRendezvous:
		return "rendezvous"
	case tape.PhaseTopology:
		return "topology"
	case tape.PhaseConnect:
		return "connect"
	case tape.PhaseQueued:
		return "queued"
	case tape.PhaseAgree:
		return "agree"
	case tape.PhaseTransfer:
		return "transfer"
	case tape.PhaseFinish:
		return "finish"
	default:
		return "unknown"
	}
}

// Collective tells whether all ranks of the communicator make the call together.
func Collective(call lifecycle.Call) bool {
	switch call {
	case lifecycle.CallAllReduce, lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallAllGather,
		lifecycle.CallReduceScatter,
		lifecycle.CallAllToAll, lifecycle.CallGather, lifecycle.CallScatter, lifecycle.CallBarrier:
		return true
	default:
		return false
	}
}

// PointToPoint tells whether the call moves data between two ranks.
func PointToPoint(call lifecycle.Call) bool {
	switch call {
	case lifecycle.CallSend, lifecycle.CallRecv, lifecycle.CallSendRecv:
		return true
	default:
		return false
	}
}
