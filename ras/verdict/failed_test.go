package verdict_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const (
	initStart = int64(time.Hour)
	second    = int64(time.Second)
)

// initOf is an event of the init of a communicator by one of its ranks.
func initOf(rank, size int, generation byte, stage tape.Stage, at int64, code lifecycle.Code, text string) tape.Event {
	state := lifecycle.StateInitializing
	if code != lifecycle.CodeOK {
		state = lifecycle.StateFailed
	}
	return tape.Event{
		IsLife: true, Generation: uint32(generation), Root: uint32(generation),
		Comm: tape.CommInfo{ID: lifecycle.CommID{generation}, Rank: rank, Size: size},
		Life: tape.LifeRecord{
			Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: stage, Time: at, Start: initStart, Code: code,
			State: state, Text: text, Peer: -1,
		},
	}
}

func initBegun(rank, size int) tape.Event {
	return initOf(rank, size, 1, tape.StageStart, initStart, lifecycle.CodeOK, "")
}

func initFailed(rank, size int, after int64, code lifecycle.Code, text string) []tape.Event {
	return []tape.Event{initBegun(rank, size), initOf(rank, size, 1, tape.StageEnd, initStart+after, code, text)}
}

// initNote is the note of a process, ten seconds after the inits began. A communicator whose init failed is not in the
// table.
func initNote(name string, events ...tape.Event) verdict.Note {
	p := model.New(model.Limits{})
	for i := range events {
		p.Apply(&events[i])
	}
	if events[len(events)-1].Life.Stage == tape.StageEnd {
		p.Look(nil, nil)
		p.Forget(nil)
	}
	n := verdict.Note{Member: name, Host: "h", Rank: -1}
	n.Fold(p, initStart+9*second)
	for i := range n.Slots {
		for k := range n.Slots[i].Acts {
			n.Slots[i].Acts[k].Stalled = true
		}
	}
	return n.After(time.Second)
}

func died(n verdict.Note, ago time.Duration, cause string) verdict.Note {
	n.Fate, n.FateAge, n.Cause = verdict.Dead, ago, cause
	return n
}

// TestInitFailed: the init of a rank failed, and others wait for it in theirs. The verdict has its error, whether the
// process has ended since or goes on. If the init may have failed because of another rank, the verdict is on that rank.
func TestInitFailed(t *testing.T) {
	waits := func(rank, size int) verdict.Note { return initNote(string(rune('a'+rank)), initBegun(rank, size)) }
	blames := func(events []tape.Event, peer int32) verdict.Note {
		events[len(events)-1].Life.Peer = peer
		return initNote(string(rune('a'+events[0].Comm.Rank)), events...)
	}
	const device = "invalid device"
	invalid := initFailed(1, 2, second, lifecycle.CodeInvalidArgument, device)
	goesOn := append(slices.Clone(invalid),
		initOf(1, 2, 2, tape.StageEnd, initStart+2*second, lifecycle.CodeOK, ""))
	for name, c := range map[string]struct {
		notes []verdict.Note
		want  string
		has   []string // of the evidence
	}{
		"the process waits": {
			[]verdict.Note{waits(0, 2), initNote("b", invalid...)},
			"not_joined: the init of 0100000000000000 failed on rank 1 (h) 9s ago: invalid device; rank 0 waits", nil,
		},
		"it goes on": {
			[]verdict.Note{waits(0, 2), initNote("b", goesOn...)},
			"not_joined: the init of 0100000000000000 failed on rank 1 (h) 9s ago: invalid device; rank 0 waits", nil,
		},
		"it has ended": {
			[]verdict.Note{waits(0, 2), died(initNote("b", invalid...), 8*time.Second, "it exited with 1")},
			"not_joined: the init of 0100000000000000 failed on rank 1 (h) 9s ago: invalid device; rank 0 waits",
			[]string{"the process of rank 1 ended 8s ago: it exited with 1"},
		},
		"because a process ended": {
			[]verdict.Note{
				waits(0, 3), initNote("b", initFailed(1, 3, 2*second, lifecycle.CodeInternal, "remote error")...),
				died(waits(2, 3), 9*time.Second, "it was ended by SIGKILL"),
			},
			"rank_dead: rank 2 (h) ended 9s ago: it was ended by SIGKILL; rank 0 waits", nil,
		},
		"because a rank never came": {
			[]verdict.Note{waits(0, 3), initNote("b", initFailed(1, 3, second, lifecycle.CodeTimeout, "timeout")...)},
			"not_joined: rank 2 has not joined the init of 0100000000000000; rank 0 waits", nil,
		},
		"because of another size": {
			[]verdict.Note{
				waits(0, 3), waits(1, 3),
				initNote("c", initFailed(2, 4, second, lifecycle.CodeInvalidUsage, "there are 3 ranks, not 4")...),
			},
			"mismatch: rank 2 (h) gave 4 as the size of 0100000000000000, and the others 3; ranks 0 and 1 wait",
			[]string{"the init of 0100000000000000 on rank 2 failed: there are 3 ranks, not 4"},
		},
		"because of another size, and one only knows that another failed": {
			[]verdict.Note{
				blames(initFailed(0, 4, second, lifecycle.CodeMismatch, "4 and 5"), 4),
				blames(initFailed(1, 4, second, lifecycle.CodeMismatch, "4 and 5"), 4),
				blames(initFailed(2, 4, 2*second, lifecycle.CodeRankDead, "rank 0 left"), 0),
				blames(initFailed(4, 5, second, lifecycle.CodeMismatch, "4 and 5"), 0),
			},
			"mismatch: rank 4 (h) gave 5 as the size of 0100000000000000, and the others 4; ranks 0 to 2 wait", nil,
		},
		"because of the same rank": {
			[]verdict.Note{
				waits(0, 3), waits(1, 3),
				died(initNote("c", initFailed(1, 3, second, lifecycle.CodeInvalidUsage, "there are two ranks 1")...),
					8*time.Second, "it exited with 1"),
			},
			"mismatch: processes b and c took one rank of 0100000000000000, number 1; rank 0 waits",
			[]string{
				"the init of 0100000000000000 on c failed: there are two ranks 1",
				"process c ended 8s ago: it exited with 1",
			},
		},
	} {
		verdicts, _ := verdict.Diagnose(c.notes)
		if len(verdicts) != 1 || verdicts[0].String() != c.want {
			t.Errorf("%s: the verdicts are %v, want %q", name, verdicts, c.want)
			continue
		}
		for _, want := range c.has {
			if !slices.ContainsFunc(verdicts[0].Evidence, func(e verdict.Text) bool { return e.String() == want }) {
				t.Errorf("%s: the evidence %q lacks %q", name, verdicts[0].Evidence, want)
			}
		}
	}
}

// TestLastActFailed: the verdict says that the last act of a rank that others wait for elsewhere failed.
func TestLastActFailed(t *testing.T) {
	failed := initOf(1, 2, 2, tape.StageEnd, initStart+second, lifecycle.CodeInvalidArgument, "invalid device")
	notes := []verdict.Note{initNote("a", initBegun(0, 2)), initNote("b", failed)}
	for i := range notes {
		notes[i].Rank, notes[i].JobSize = i, 2
	}
	verdicts, _ := verdict.Diagnose(notes)
	const (
		want = "not_joined: rank 1 (h) has not joined the init of 0100000000000000; its last, the init of " +
			"0200000000000000, failed 9s ago; rank 0 waits"
		why = "the init of 0200000000000000 on rank 1 failed: invalid device"
	)
	if len(verdicts) != 1 || verdicts[0].String() != want || verdicts[0].Evidence[0].String() != why {
		t.Errorf("the verdicts are %v, want %q, with %q", verdicts, want, why)
	}
}
