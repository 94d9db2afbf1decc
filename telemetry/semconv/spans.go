package semconv

// Span names of the acts in a communicator's life. One trace holds one act, with a span from every rank.
const (
	// SpanInit is a communicator's birth, on one rank. Stable.
	SpanInit = "ccl.comm.init"
	// SpanSplit is a split; its trace belongs to the parent communicator. Stable.
	SpanSplit = "ccl.comm.split"
	// SpanShrink is the making of a smaller communicator without some ranks. Stable.
	SpanShrink = "ccl.comm.shrink"
	// SpanGrow is the making of a larger communicator. Stable.
	SpanGrow = "ccl.comm.grow"
	// SpanRevoke is the cancelling of all work in flight. Stable.
	SpanRevoke = "ccl.comm.revoke"
	// SpanFinalize is the wait for all work to end. Stable.
	SpanFinalize = "ccl.comm.finalize"
	// SpanDestroy is the giving back of a communicator, or a refused attempt at it. Stable.
	SpanDestroy = "ccl.comm.destroy"
	// SpanAbort is the tearing down of a communicator without waiting. Stable.
	SpanAbort = "ccl.comm.abort"
	// SpanLeak reports a communicator that was never destroyed. Stable.
	SpanLeak = "ccl.comm.leak"
	// SpanGroup is a group job: the operations between group start and group end. Stable.
	SpanGroup = "ccl.group"
	// SpanFailure says that a communicator failed, with the error in full. Stable.
	SpanFailure = "ccl.comm.failure"
	// SpanStall says that an operation or act has not ended when it should have; it is told again while it lasts. Stable.
	SpanStall = "ccl.stall"
	// SpanUse is a refused call that has no span name of its own. Stable.
	SpanUse = "ccl.comm.use"
)

// SpanOpPrefix comes before an operation's name: "ccl.all_reduce". Stable.
const SpanOpPrefix = "ccl."

// StartedSuffix comes behind a span's name: "ccl.comm.init (started)" is a moment's span (1 ns) that is exported when
// the act starts, or when an operation becomes slow, so that one that hangs can be seen before it ends. Stable.
const StartedSuffix = " (started)"

// PhaseSeparator stands between an act's span name and the name of one of its phases: "ccl.comm.init.rendezvous".
// Stable.
const PhaseSeparator = "."
