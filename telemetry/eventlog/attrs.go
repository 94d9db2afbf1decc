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

// some appends an attribute if it says something.
func some(attrs []slog.Attr, says bool, a slog.Attr) []slog.Attr {
	if says {
		attrs = append(attrs, a)
	}
	return attrs
}

// commAttrs tell whose line it is, as far as that is known.
func commAttrs(attrs []slog.Attr, c *tape.CommInfo) []slog.Attr {
	attrs = some(attrs, c.Name != "", slog.String(semconv.LogComm, c.Name))
	attrs = some(attrs, c.Rank >= 0, slog.Int(semconv.LogCommRank, c.Rank))
	attrs = some(attrs, c.Size > 0, slog.Int(semconv.LogCommSize, c.Size))
	return some(attrs, !c.ID.IsZero(), slog.String(semconv.LogCommID, c.ID.String()))
}

// lifeAttrs tells of an act.
func lifeAttrs(attrs []slog.Attr, s *model.Step) []slog.Attr {
	r := &s.Life
	ended, refused := r.Stage == tape.StageEnd, r.Stage == tape.StageMisuse
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActGroup:
		attrs = some(attrs, !refused, slog.Uint64(semconv.LogSeq, r.Seq))
	case tape.ActNone:
		attrs = append(attrs, slog.String(semconv.LogCall, r.Call.String()))
		attrs = some(attrs, ended, slog.Uint64(semconv.LogSeq, r.Seq))
	default:
	}
	attrs = some(attrs, r.Act == tape.ActGroup && ended, slog.Uint64(semconv.LogOps, uint64(r.Ops)))
	attrs = some(attrs, !r.Child.IsZero(), slog.String(semconv.LogChild, r.Child.String()))
	if ended && s.Act != nil {
		attrs = append(attrs, slog.Duration(semconv.LogTook, words.Round(time.Duration(s.Act.End-s.Act.Start))))
	}
	attrs = some(attrs, (ended || refused) && r.State != lifecycle.StateNone,
		slog.String(semconv.LogCommState, r.State.String()))
	if r.Code == lifecycle.CodeOK {
		return attrs
	}
	attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
	attrs = some(attrs, r.Text != "", slog.String(semconv.LogError, r.Text))
	attrs = some(attrs, r.Peer >= 0, slog.Int(semconv.LogPeer, int(r.Peer)))
	attrs = some(attrs, !r.Site.IsZero(), slog.String(semconv.LogSite, r.Site.String()))
	return some(attrs, !r.First.IsZero(), slog.String(semconv.LogFirst, r.First.String()))
}

// opAttrs tells of an operation that ended.
func (l *Log) opAttrs(attrs []slog.Attr, r *tape.OpRecord) []slog.Attr {
	attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.Seq))
	attrs = signature(attrs, &r.Signature)
	if l.cfg.AlgorithmName != nil {
		name := l.cfg.AlgorithmName(r.Algorithm)
		attrs = some(attrs, name != "", slog.String(semconv.LogAlgorithm, name))
	}
	attrs = some(attrs, r.Start > 0 && r.Start <= r.Time,
		slog.Duration(semconv.LogTook, words.Round(time.Duration(r.Time-r.Start))))
	if r.Code != lifecycle.CodeOK {
		attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
		attrs = phase(attrs, r.Phase)
	}
	return attrs
}

func phase(attrs []slog.Attr, p tape.Phase) []slog.Attr {
	return some(attrs, p != tape.PhaseNone, slog.String(semconv.LogPhase, p.String()))
}

// signature tells what moves.
func signature(attrs []slog.Attr, sig *tape.Signature) []slog.Attr {
	if sig.Call != lifecycle.CallBarrier {
		attrs = append(attrs, slog.Uint64(semconv.LogBytes, sig.Bytes),
			slog.String(semconv.LogDataType, kernels.DataType(sig.DataType).String()))
	}
	attrs = some(attrs, sig.Call.Reduces(),
		slog.String(semconv.LogReduction, kernels.Reduction(sig.Reduction).String()))
	message := sig.Call == lifecycle.CallSend || sig.Call == lifecycle.CallRecv
	attrs = some(attrs, message && sig.Peer >= 0, slog.Int(semconv.LogPeer, int(sig.Peer)))
	return some(attrs, sig.Call.IsRooted() && sig.Peer >= 0, slog.Int(semconv.LogRoot, int(sig.Peer)))
}

// subsystem is where NCCL's users look for it.
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
