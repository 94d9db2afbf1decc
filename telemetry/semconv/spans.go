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
	SpanStall    = "ccl.stall"         // an operation or act that takes too long; repeated while it lasts. Stable.
	SpanUse      = "ccl.comm.use"      // a refused call that has no span name of its own. Stable.
)

// The prefixes of an act's name, "ccl.comm.init", and of an operation's, "ccl.all_reduce".
const (
	SpanActPrefix = "ccl.comm." // Stable.
	SpanOpPrefix  = "ccl."      // Stable.
)

// StartedSuffix follows a span's name: "ccl.comm.init (started)" is a span of 1 ns that is exported when the act
// starts, or when an operation becomes slow, so that a hang can be seen before it ends. Stable.
const StartedSuffix = " (started)"

// DeviceSuffix follows an operation's span name: "ccl.all_reduce (device)" has the duration of the operation on its
// device, which is measured now and then for calls that only launch an operation. The span begins with the call, as the
// start on the device is unknown. Development.
const DeviceSuffix = " (device)"

// KernelSuffix follows an operation's span name: "ccl.all_reduce (kernel)" is the time that an operation's kernel ran
// on the device, if that is known. "ccl.all_reduce (kernel).agree" is its beginning, in which it waited for the other
// ranks' kernels. Development.
const KernelSuffix = " (kernel)"

// Child spans of an operation that is sampled, slow, stalled or failed: the data sent to a rank of another node, for
// the slowest of those ranks, and its longest steps. Both end when the proxy no longer needs the caller's memory.
// Development.
const (
	SpanProxied   = "ccl.proxy.operation"
	SpanProxyStep = "ccl.proxy.step"
)

// PhaseSeparator stands between an act's span name and the name of one of its phases: "ccl.comm.init.rendezvous".
// Stable.
const PhaseSeparator = "."

// LifeSpan is the name of the span of a life record: of its act or, without one, of its call.
func LifeSpan(r *tape.LifeRecord) string {
	if r.Act == tape.ActNone {
		return CallSpan(r.Call)
	}
	return ActSpan(r.Act)
}

// ActSpan is the name of an act's span.
func ActSpan(act tape.Act) string {
	if act == tape.ActGroup {
		return SpanGroup
	}
	return SpanActPrefix + act.String()
}

// CallSpan is the name of the span of an operation, or of a refused call that belongs to no act.
func CallSpan(call lifecycle.Call) string {
	if call.IsOperation() {
		return SpanOpPrefix + call.String()
	}
	return SpanUse
}
