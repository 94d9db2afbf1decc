package model_test

import (
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A split begins and doesn't end: the example shows what its rank does after six seconds.
func Example() {
	process := model.New(model.Limits{Floor: 5 * time.Second})
	step := process.Apply(&tape.Event{ // a follower's
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}, Generation: 1, IsLife: true,
		Life: tape.LifeRecord{Act: tape.ActSplit, Seq: 2, Stage: tape.StageStart, Time: int64(time.Second), Peer: -1},
	})
	fmt.Println(step.Comm.Name, "is in", step.Act.Kind, step.Act.Seq)

	now := 7 * int64(time.Second)
	for _, act := range process.OpenActs() {
		fmt.Println(act.Kind, "takes", time.Duration(process.Age(act.Start, now)), "stalled:",
			process.Stalled(act, now))
	}
	// Output:
	// world is in split 2
	// split takes 6s stalled: true
}
