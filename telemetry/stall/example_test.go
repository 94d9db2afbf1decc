package stall_test

import (
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func Example() {
	process := model.New(model.Limits{Slow: time.Second, Floor: 5 * time.Second})
	watch := stall.New(process)
	// What the in-flight table says: an all-reduce began at 0 s and waits for rank 3.
	slots := []tape.Slot{{
		CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 4}, Generation: 1, Launched: 7,
		Completed: 6, Seq: 7,
		Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 4096}, OpStart: 0, Phase: tape.PhaseTransfer,
		Wait: 3,
	}}
	for second := range int64(12) {
		process.Look(slots, nil)
		for _, r := range watch.Check(second * int64(time.Second)) {
			fmt.Println(r.Kind(), r.Seq, "of", r.Comm.Name, "is", r.Stage, "after", r.Age(), "and waits for rank",
				r.Wait)
		}
	}
	// Output:
	// all_reduce 7 of world is slow after 1s and waits for rank 3
	// all_reduce 7 of world is stalled after 5s and waits for rank 3
	// all_reduce 7 of world is stalled after 10s and waits for rank 3
}
