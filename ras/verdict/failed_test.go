package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The init of a rank that others wait for in theirs has failed, and its communicator is gone: that is told, unless it
// has done something since.
func TestLastActFailed(t *testing.T) {
	const start, second = int64(time.Hour), int64(time.Second)
	init := func(rank int, generation byte, stage tape.Stage, at int64, code lifecycle.Code) tape.Event {
		return tape.Event{
			IsLife: true, Generation: uint32(generation), Root: uint32(generation),
			Comm: tape.CommInfo{ID: lifecycle.CommID{generation}, Rank: rank, Size: 2},
			Life: tape.LifeRecord{
				Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: stage, Time: at, Start: start, Code: code,
				State: lifecycle.StateInitializing, Text: "invalid device", Peer: -1,
			},
		}
	}
	note := func(rank int, events ...tape.Event) verdict.Note {
		p := model.New(model.Limits{})
		for i := range events {
			p.Apply(&events[i])
		}
		if rank == 1 {
			for range 2 {
				p.Look(nil, nil)
			}
		}
		n := verdict.Note{Member: string(rune('a' + rank)), Host: "h", Rank: rank, JobSize: 2}
		n.Fold(p, start+9*second)
		return n.After(time.Second)
	}
	waits := note(0, init(0, 1, tape.StageStart, start, lifecycle.CodeOK))
	fails := []tape.Event{
		init(1, 1, tape.StageStart, start, lifecycle.CodeOK),
		init(1, 1, tape.StageEnd, start+second, lifecycle.CodeInvalidArgument),
	}
	const failure = `on rank 1 failed: invalid device`
	for _, c := range []struct {
		events []tape.Event
		last   string
		told   bool
	}{
		{fails, "; its last, the init of 0100000000000000, failed 9s ago; rank 0 waits", true},
		{
			append(fails, init(1, 2, tape.StageEnd, start+2*second, lifecycle.CodeOK)),
			"; it has made no call on any communicator yet; rank 0 waits", false,
		},
	} {
		waits.Slots[0].Acts[0].Stalled = true
		verdicts, _ := verdict.Diagnose([]verdict.Note{waits, note(1, c.events...)})
		if len(verdicts) != 1 {
			t.Fatalf("verdicts are %v", verdicts)
		}
		v := verdicts[0]
		told := false
		for _, e := range v.Evidence {
			told = told || strings.HasSuffix(e.String(), failure)
		}
		if !strings.HasSuffix(v.Text.String(), c.last) || told != c.told {
			t.Errorf("it is %q, with %q; want %q, and the failure told: %v", v.Text, v.Evidence, c.last, c.told)
		}
	}
}
