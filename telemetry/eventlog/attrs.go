package eventlog

import (
	"log/slog"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// appendIf appends an attribute if it is known or applies.
func appendIf(attrs []slog.Attr, applies bool, a slog.Attr) []slog.Attr {
	if applies {
		attrs = append(attrs, a)
	}
	return attrs
}

// commAttrs describe the communicator, which the model may not know, and the rank, if they are known.
func (l *Log) commAttrs(attrs []slog.Attr, known *model.Comm, c *tape.CommInfo) []slog.Attr {
	if l.cfg.JobRank && known != nil && known.Of != nil && known.Of.Number >= 0 {
		attrs = append(attrs, slog.Int(semconv.LogRank, known.Of.Number))
	}
	attrs = appendIf(attrs, c.Name != "", slog.String(semconv.LogComm, c.Name))
	attrs = appendIf(attrs, c.Rank >= 0, slog.Int(semconv.LogCommRank, c.Rank))
	attrs = appendIf(attrs, c.Size > 0, slog.Int(semconv.LogCommSize, c.Size))
	return appendIf(attrs, !c.ID.IsZero(), slog.String(semconv.LogCommID, c.ID.String()))
}

// lifeAttrs describe an act, a refused call or a failure.
func lifeAttrs(attrs []slog.Attr, s *model.Step) []slog.Attr {
	r := &s.Life
	ended, refused := r.Stage == tape.StageEnd, r.Stage == tape.StageMisuse
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActGroup:
		attrs = appendIf(attrs, !refused, slog.Uint64(semconv.LogSeq, r.Seq))
	case tape.ActNone:
		attrs = append(attrs, slog.String(semconv.LogCall, r.Call.String()))
		attrs = appendIf(attrs, ended, slog.Uint64(semconv.LogSeq, r.Seq))
	default:
	}
	attrs = appendIf(attrs, r.Act == tape.ActGroup && ended, slog.Uint64(semconv.LogOps, uint64(r.Ops)))
	attrs = appendIf(attrs, r.Stage == tape.StagePhase && r.Text != "", slog.String(semconv.LogReason, r.Text))
	attrs = appendIf(attrs, !r.Child.IsZero(), slog.String(semconv.LogChild, r.Child.String()))
	if ended && s.Act != nil {
		attrs = append(attrs, slog.Duration(semconv.LogTook, words.Round(time.Duration(s.Act.End-s.Act.Start))))
	}
	attrs = appendIf(attrs, (ended || refused) && r.State != lifecycle.StateNone,
		slog.String(semconv.LogCommState, r.State.String()))
	if r.Code == lifecycle.CodeOK {
		return attrs
	}
	attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
	attrs = appendIf(attrs, r.Text != "", slog.String(semconv.LogError, r.Text))
	attrs = appendIf(attrs, r.Peer >= 0, slog.Int(semconv.LogPeer, int(r.Peer)))
	attrs = appendIf(attrs, !r.Site.IsZero(), slog.String(semconv.LogSite, r.Site.String()))
	return appendIf(attrs, !r.First.IsZero(), slog.String(semconv.LogFirst, r.First.String()))
}

// opAttrs describe an operation that ended.
func (l *Log) opAttrs(attrs []slog.Attr, r *tape.OpRecord) []slog.Attr {
	attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.Seq))
	attrs = signature(attrs, &r.Signature)
	if l.cfg.AlgorithmName != nil {
		name := l.cfg.AlgorithmName(r.Algorithm)
		attrs = appendIf(attrs, name != "", slog.String(semconv.LogAlgorithm, name))
	}
	attrs = appendIf(attrs, r.Start > 0 && r.Start <= r.Time,
		slog.Duration(semconv.LogTook, words.Round(time.Duration(r.Time-r.Start))))
	if r.Code != lifecycle.CodeOK {
		attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
		attrs = phase(attrs, r.Phase)
	}
	return attrs
}

func phase(attrs []slog.Attr, p tape.Phase) []slog.Attr {
	return appendIf(attrs, p != tape.PhaseNone, slog.String(semconv.LogPhase, p.String()))
}

// signature describes the data and the other ranks of an operation.
func signature(attrs []slog.Attr, sig *tape.Signature) []slog.Attr {
	if sig.Call != lifecycle.CallBarrier {
		attrs = append(attrs, slog.Uint64(semconv.LogBytes, sig.Bytes),
			slog.String(semconv.LogDataType, kernels.DataType(sig.DataType).String()))
	}
	attrs = appendIf(attrs, sig.Call.Reduces(),
		slog.String(semconv.LogReduction, kernels.Reduction(sig.Reduction).String()))
	message := sig.Call == lifecycle.CallSend || sig.Call == lifecycle.CallRecv
	attrs = appendIf(attrs, message && sig.Peer >= 0, slog.Int(semconv.LogPeer, int(sig.Peer)))
	return appendIf(attrs, sig.Call.IsRooted() && sig.Peer >= 0, slog.Int(semconv.LogRoot, int(sig.Peer)))
}

// subsystem is NCCL's subsystem for a life record.
func subsystem(r *tape.LifeRecord) string {
	if r.Stage == tape.StagePhase {
		switch r.Phase {
		case tape.PhaseRendezvous:
			return semconv.SubsystemBootstrap
		case tape.PhaseTopology:
			return semconv.SubsystemGraph
		case tape.PhaseConnect:
			return semconv.SubsystemNet
		default:
		}
	}
	if r.Act == tape.ActNone && r.Stage == tape.StageEnd { // a communicator failed
		return semconv.SubsystemRAS
	}
	switch r.Act {
	case tape.ActInit, tape.ActSplit, tape.ActShrink, tape.ActGrow:
		return semconv.SubsystemInit
	case tape.ActFinalize, tape.ActRevoke, tape.ActAbort, tape.ActDestroy, tape.ActLeak:
		return semconv.SubsystemDestroy
	default:
		return semconv.SubsystemColl
	}
}
