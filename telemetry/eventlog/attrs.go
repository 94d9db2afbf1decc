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

// commAttrs tell whose line it is, as far as that is known.
func commAttrs(attrs []slog.Attr, c *tape.CommInfo) []slog.Attr {
	if c.Name != "" {
		attrs = append(attrs, slog.String(semconv.LogComm, c.Name))
	}
	if c.Rank >= 0 {
		attrs = append(attrs, slog.Int(semconv.LogCommRank, c.Rank))
	}
	if c.Size > 0 {
		attrs = append(attrs, slog.Int(semconv.LogCommSize, c.Size))
	}
	if !c.ID.IsZero() {
		attrs = append(attrs, slog.String(semconv.LogCommID, c.ID.String()))
	}
	return attrs
}

// lifeAttrs tells of an act.
func lifeAttrs(attrs []slog.Attr, s *model.Step) []slog.Attr {
	r := &s.Life
	ended, refused := r.Stage == tape.StageEnd, r.Stage == tape.StageMisuse
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActGroup:
		if !refused {
			attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.Seq))
		}
	case tape.ActNone:
		attrs = append(attrs, slog.String(semconv.LogCall, r.Call.String()))
		if ended {
			attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.Seq))
		}
	default:
	}
	if r.Act == tape.ActGroup && ended {
		attrs = append(attrs, slog.Uint64(semconv.LogOps, uint64(r.Ops)))
	}
	if !r.Child.IsZero() {
		attrs = append(attrs, slog.String(semconv.LogChild, r.Child.String()))
	}
	if ended && s.Act != nil {
		attrs = append(attrs, slog.Duration(semconv.LogTook, words.Round(time.Duration(s.Act.End-s.Act.Start))))
	}
	if (ended || refused) && r.State != lifecycle.StateNone {
		attrs = append(attrs, slog.String(semconv.LogCommState, r.State.String()))
	}
	if r.Code == lifecycle.CodeOK {
		return attrs
	}
	attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
	if r.Text != "" {
		attrs = append(attrs, slog.String(semconv.LogError, r.Text))
	}
	if r.Peer >= 0 {
		attrs = append(attrs, slog.Int(semconv.LogPeer, int(r.Peer)))
	}
	attrs = site(attrs, semconv.LogSite, r.Site)
	return site(attrs, semconv.LogFirst, r.First)
}

func site(attrs []slog.Attr, key string, s lifecycle.Site) []slog.Attr {
	if s.IsZero() {
		return attrs
	}
	return append(attrs, slog.String(key, s.String()))
}

// opAttrs tells of an operation that ended.
func (l *Log) opAttrs(attrs []slog.Attr, r *tape.OpRecord) []slog.Attr {
	sig := &r.Signature
	attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.Seq))
	attrs = signature(attrs, sig)
	if l.cfg.AlgorithmName != nil {
		if name := l.cfg.AlgorithmName(r.Algorithm); name != "" {
			attrs = append(attrs, slog.String(semconv.LogAlgorithm, name))
		}
	}
	if r.Start > 0 && r.Start <= r.Time {
		attrs = append(attrs, slog.Duration(semconv.LogTook, words.Round(time.Duration(r.Time-r.Start))))
	}
	if r.Code != lifecycle.CodeOK {
		attrs = append(attrs, slog.String(semconv.LogErrorType, r.Code.String()))
		if r.Phase != tape.PhaseNone {
			attrs = append(attrs, slog.String(semconv.LogPhase, semconv.PhaseName(r.Phase)))
		}
	}
	return attrs
}

// signature tells what moves.
func signature(attrs []slog.Attr, sig *tape.Signature) []slog.Attr {
	if sig.Call != lifecycle.CallBarrier {
		attrs = append(attrs, slog.Uint64(semconv.LogBytes, sig.Bytes),
			slog.String(semconv.LogDataType, kernels.DataType(sig.DataType).String()))
	}
	switch sig.Call {
	case lifecycle.CallAllReduce, lifecycle.CallReduce, lifecycle.CallReduceScatter:
		attrs = append(attrs, slog.String(semconv.LogReduction, kernels.Reduction(sig.Reduction).String()))
	default:
	}
	if sig.Peer >= 0 {
		switch sig.Call {
		case lifecycle.CallSend, lifecycle.CallRecv:
			attrs = append(attrs, slog.Int(semconv.LogPeer, int(sig.Peer)))
		case lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallGather, lifecycle.CallScatter:
			attrs = append(attrs, slog.Int(semconv.LogRoot, int(sig.Peer)))
		default:
		}
	}
	return attrs
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
	switch r.Act {
	case tape.ActInit, tape.ActSplit, tape.ActShrink, tape.ActGrow:
		return semconv.SubsystemInit
	case tape.ActFinalize, tape.ActRevoke, tape.ActAbort, tape.ActDestroy, tape.ActLeak:
		return semconv.SubsystemDestroy
	default:
		return semconv.SubsystemColl
	}
}
