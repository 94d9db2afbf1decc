package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// nccl gives a process an all-reduce of an NCCL communicator.
func (p process) nccl(at int64, stage tape.Stage, seq uint64, start int64, phase tape.Phase, code lifecycle.Code) {
	comm := world
	comm.Engine = "nccl 2.28.9"
	p.Apply(&tape.Event{Comm: comm, Generation: 1, Op: tape.OpRecord{
		Time: at * ms, Stage: stage, Seq: seq, Start: start * ms, Signature: allReduce, Wait: -1, Phase: phase,
		Code: code,
	}})
}

func (p process) comm() *model.Comm {
	for c := range p.Comms() {
		return c
	}
	return nil
}

// An operation that NCCL refuses has no number that the other ranks know.
func TestRefused(t *testing.T) {
	p := newProcess(model.Limits{})
	refuse := func(at int64, seq uint64, start int64) {
		p.nccl(at, tape.StageEnd, seq, start, tape.PhaseRefused, lifecycle.CodeInvalidArgument)
	}
	p.nccl(2, tape.StageEnd, 7, 1, tape.PhaseNone, lifecycle.CodeOK)
	refuse(4, 8, 3)
	p.expect(t, "after a call", "1 none: begun 7 done 7\n")
	p.nccl(5, tape.StageStart, 8, 5, tape.PhaseNone, lifecycle.CodeOK)
	p.nccl(6, tape.StageStart, 9, 6, tape.PhaseNone, lifecycle.CodeOK)
	refuse(7, 8, 5)
	refuse(7, 9, 6)
	p.expect(t, "after a group", "1 none: begun 7 done 7\n")
	if !p.comm().Last.Refused() {
		t.Error("the last call was not refused")
	}
	// A table may be from the middle of the call.
	table := slot(1, 9, 6, true)
	for _, begun := range []uint64{9, 7} {
		table.Begun, table.Done = begun, 7
		p.Look([]tape.Slot{table}, nil)
	}
	if c := p.comm(); c.Begun != 7 {
		t.Errorf("begun %d after the call, want 7", c.Begun)
	}
	later := slot(1, 20, 30, false)
	later.Begun, later.Done = 20, 20
	p.Look([]tape.Slot{later}, nil)
	refuse(25, 12, 24) // its record was read late
	p.expect(t, "later", "1 ready: begun 20 done 20\n")
}

// An operation for which NCCL returned ncclInProgress may be done, as long as nobody polls.
func TestUnasked(t *testing.T) {
	p := newProcess(model.Limits{Floor: 100 * time.Millisecond})
	p.nccl(10, tape.StageStart, 1, 10, tape.PhaseNone, lifecycle.CodeOK)
	p.nccl(10, tape.StagePhase, 1, 10, tape.PhaseInProgress, lifecycle.CodeOK)
	c := p.comm()
	if c.Unasked() == nil || p.Unproven(c, 100*ms) || !p.Unproven(c, 120*ms) {
		t.Errorf("unasked %v, unproven before it stalls %t and after %t", c.Unasked(),
			p.Unproven(c, 100*ms), p.Unproven(c, 120*ms))
	}
	if slices.Collect(c.Activities()) != nil {
		t.Error("it counts as slow, or stalled")
	}
	p.nccl(130, tape.StagePhase, 1, 10, tape.PhaseNone, lifecycle.CodeOK)
	if c.Unasked() != nil || p.Unproven(c, 140*ms) {
		t.Error("when it was asked, it is as if nobody had")
	}
}
