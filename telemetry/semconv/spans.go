package semconv

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Span names of the acts in a communicator's life. One trace holds one act, with a span from every rank.
const (
	SpanInit     = "ccl.comm.init"     // the making of a communicator, on one rank. Stable.
	SpanSplit    = "ccl.comm.split"    // a split; its trace belongs to the parent communicator. Stable.
	SpanShrink   = "ccl.comm.shrink"   // the making of a smaller communicator without some ranks. Stable.
	SpanGrow     = "ccl.comm.grow"     // the making of a larger communicator. Stable.
	SpanRevoke   = "ccl.comm.revoke"   // the cancelling of all work in flight. Stable.
	SpanFinalize = "ccl.comm.finalize" // the wait for all work to end. Stable.
	SpanDestroy  = "ccl.comm.destroy"  // the end of a communicator, or a refused attempt at it. Stable.
	SpanAbort    = "ccl.comm.abort"    // the tearing down of a communicator without waiting. Stable.
	SpanLeak     = "ccl.comm.leak"     // a communicator was never destroyed. Stable.
	SpanGroup    = "ccl.group"         // a group job: the operations between group start and group end. Stable.
	SpanFailure  = "ccl.comm.failure"  // a communicator failed; with the error in full. Stable.
	SpanStall    = "ccl.stall"         // what has not ended when it should have; again while it lasts. Stable.
	SpanUse      = "ccl.comm.use"      // a refused call that has no span name of its own. Stable.
)

// The prefixes of an act's name, "ccl.comm.init", and of an operation's, "ccl.all_reduce".
const (
	SpanActPrefix = "ccl.comm." // Stable.
	SpanOpPrefix  = "ccl."      // Stable.
)

// StartedSuffix comes behind a span's name: "ccl.comm.init (started)" is a moment's span (1 ns) that is exported when
// the act starts, or when an operation becomes slow, so that one that hangs can be seen before it ends. Stable.
const StartedSuffix = " (started)"

// DeviceSuffix comes behind an operation's span name: "ccl.all_reduce (device)" is a span of an operation that was
// measured on its device, as one now and then is of those that a call only launches. It takes as long as the operation
// took there, and begins with the call: when it began there is not known. Development.
const DeviceSuffix = " (device)"

// Spans below that of an operation which is sampled, slow, stalled or failed: what one rank sent to one of another node
// for it, for the ranks for which that took longest, and the longest steps of it. Both end when the proxy needed the
// caller's memory no more. Development.
const (
	SpanProxied   = "ccl.proxy.operation"
	SpanProxyStep = "ccl.proxy.step"
)

// PhaseSeparator stands between an act's span name and the name of one of its phases: "ccl.comm.init.rendezvous".
// Stable.
const PhaseSeparator = "."

// ActSpan is the name of an act's span.
func ActSpan(act tape.Act) string {
	switch act {
	case tape.ActNone:
		return SpanUse
	case tape.ActGroup:
		return SpanGroup
	default:
		return SpanActPrefix + act.String()
	}
}

// CallSpan is the name of the span of an operation, or of a refused call that belongs to no act.
func CallSpan(call lifecycle.Call) string {
	if call.IsOperation() {
		return SpanOpPrefix + call.String()
	}
	return SpanUse
}
