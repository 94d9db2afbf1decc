package node

import (
	"maps"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// did is the model of a process that has the given rank in the two-rank communicators of its acts; an act's number is
// its time.
func did(rank int, acts ...tape.Event) *model.Process {
	p := model.New(model.Limits{})
	for i := range acts {
		acts[i].Comm.Rank = rank
		p.Apply(&acts[i])
	}
	return p
}

func act(comm byte, kind tape.Act, stage tape.Stage, at int64) tape.Event {
	return tape.Event{
		IsLife: true, Generation: uint32(comm),
		Comm: tape.CommInfo{ID: lifecycle.CommID{comm}, Engine: "nccl 2.31.2", Size: 2},
		Life: tape.LifeRecord{Act: kind, Stage: stage, Time: at, Seq: 1},
	}
}

// TestWhenNCCLIsAsked: NCCL is queried about communicators that have ranks without a tape, while none is made or ended.
func TestWhenNCCLIsAsked(t *testing.T) {
	begins := func(comm byte) tape.Event { return act(comm, tape.ActInit, tape.StageStart, 1) }
	made := func(comm byte) tape.Event { return act(comm, tape.ActInit, tape.StageEnd, 2) }
	group := act(1, tape.ActGroup, tape.StageStart, 9)
	destroyed := act(1, tape.ActDestroy, tape.StageEnd, 8)
	const nccl = "nccl 2.31.2"
	for name, test := range map[string]struct {
		processes map[*model.Process]bool // whether they run
		untaped   string
		quiet     bool // since 5
	}{
		"nothing yet":    {map[*model.Process]bool{did(0): true}, "", true},
		"all have tapes": {map[*model.Process]bool{did(0, made(1)): true, did(1, made(1)): true}, "", true},
		"one has none":   {map[*model.Process]bool{did(0, made(1)): true, did(1): true}, nccl, true},
		"one has ended":  {map[*model.Process]bool{did(0, made(1)): true, did(1, made(1)): false}, "", true},
		"one left it": {
			map[*model.Process]bool{did(0, made(1)): true, did(1, made(1), destroyed): true}, "", false,
		},
		"of two communicators": {
			map[*model.Process]bool{did(0, made(1), made(2)): true, did(1, made(1)): true}, nccl, true,
		},
		"nobody has it still": {map[*model.Process]bool{did(0, made(1), destroyed): true}, "", false},
		"all have ended":      {map[*model.Process]bool{did(0, made(1), begins(2)): false}, "", true},
		"another begins":      {map[*model.Process]bool{did(0, made(1), begins(2)): true}, nccl, false},
		"in a group of calls": {map[*model.Process]bool{did(0, made(1), group): true}, nccl, true},
		"a split": {
			map[*model.Process]bool{did(0, made(1), act(1, tape.ActSplit, tape.StageEnd, 6)): true}, nccl, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untaped(maps.All(test.processes)); got != test.untaped {
				t.Errorf("ranks of %q have no tape, want %q", got, test.untaped)
			}
			if got := quietSince(5, maps.All(test.processes)); got != test.quiet {
				t.Errorf("it is quiet: %v", got)
			}
		})
	}
}
