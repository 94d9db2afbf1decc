package trace

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// attributes are the attributes of a span that is not made yet.
type attributes []attribute.KeyValue

// when adds kv if the condition holds.
func (a *attributes) when(condition bool, kv attribute.KeyValue) {
	if condition {
		*a = append(*a, kv)
	}
}

// attributesOf describes the communicator and the rank of a span, as far as they are known.
func attributesOf(c *model.Comm) attributes {
	a := make(attributes, 0, 24)
	a = append(a, semconv.CommID.String(c.ID.String()))
	a.when(c.Name != "", semconv.CommName.String(c.Name))
	a.when(!c.Parent.IsZero(), semconv.CommParentID.String(c.Parent.String()))
	a.when(c.Size > 0, semconv.CommSize.Int(c.Size))
	a.when(c.Rank >= 0, semconv.Rank.Int(c.Rank))
	a.when(c.Nodes > 0, semconv.CommNodes.Int(c.Nodes))
	a.when(c.Engine != "", semconv.Engine.String(c.Engine))
	return a
}

// call adds the user's call and, if it failed because of a peer, that peer.
func (a *attributes) call(r *tape.LifeRecord) {
	a.when(r.Call != lifecycle.CallNone, semconv.Call.String(r.Call.String()))
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActGroup:
		made := r.Stage != tape.StageMisuse // a refused call has no number
		a.when(made, semconv.ActSeq.Int64(int64(r.Seq)))
		counted := r.Call != lifecycle.CallGroupStart || r.Stage == tape.StageEnd // it may still get calls
		a.when(made && r.Act == tape.ActGroup && counted, semconv.GroupOps.Int64(int64(r.Ops)))
	case tape.ActNone:
		a.when(r.Stage == tape.StageEnd || r.Seq > 0, semconv.OpSeq.Int64(int64(r.Seq)))
	default:
	}
	a.when(r.Shared, semconv.SharedGoroutines.Bool(true))
	a.when(r.Peer >= 0 && r.Code != lifecycle.CodeOK, semconv.PeerRank.Int(int(r.Peer)))
}

// site adds the call's place in the user's code.
func (a *attributes) site(s lifecycle.Site) {
	if s.Func == "" && s.File == "" {
		return
	}
	*a = append(*a, semconv.CodeFunction.String(s.Func), semconv.CodeFile.String(s.File))
	a.when(s.Line > 0, semconv.CodeLine.Int(s.Line))
	a.runner(&s, semconv.Goroutine, semconv.Thread)
}

// runner adds the goroutine or thread that made a call.
func (a *attributes) runner(s *lifecycle.Site, goroutine, thread attribute.Key) {
	key := thread
	if s.InGo() {
		key = goroutine
	}
	a.when(s.Goroutine != 0, key.Int64(int64(s.Goroutine)))
}

// first adds the place of the earlier call that makes this one a mistake.
func (a *attributes) first(s lifecycle.Site) {
	if s.Func != "" || s.File != "" {
		*a = append(*a, semconv.FirstFunction.String(s.Func), semconv.FirstFile.String(s.File))
		a.when(s.Line > 0, semconv.FirstLine.Int(s.Line))
	}
	a.runner(&s, semconv.FirstGoroutine, semconv.FirstThread)
	a.when(!s.Time.IsZero(), semconv.FirstTime.String(s.Time.UTC().Format(time.RFC3339Nano)))
}

// op describes an operation.
func (a *attributes) op(c *Config, sig *tape.Signature, seq uint64, algorithm uint8) {
	*a = append(*a, semconv.OpSeq.Int64(int64(seq)), semconv.OpBytes.Int64(int64(sig.Bytes)))
	a.when(sig.Call != lifecycle.CallBarrier, semconv.OpDataType.String(kernels.DataType(sig.DataType).String()))
	a.when(sig.Call.Reduces(), semconv.OpReduction.String(kernels.Reduction(sig.Reduction).String()))
	message := sig.Call == lifecycle.CallSend || sig.Call == lifecycle.CallRecv
	a.when(message && sig.Peer >= 0, semconv.OpPeer.Int(int(sig.Peer)))
	a.when(sig.Call.IsRooted() && sig.Peer >= 0, semconv.OpRoot.Int(int(sig.Peer)))
	if c.AlgorithmName != nil {
		name := c.AlgorithmName(algorithm)
		a.when(name != "", semconv.OpAlgorithm.String(name))
	}
}

// wait adds the phase in which an operation was last seen, and the rank that it waited for.
func (a *attributes) wait(phase tape.Phase, wait int32) {
	a.when(phase != tape.PhaseNone, semconv.OpPhase.String(phase.String()))
	a.when(wait >= 0, semconv.WaitRank.Int(int(wait)))
}
