package verdict_test

import (
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Three of four ranks have waited in a barrier for six seconds; the fourth does something else.
func Example() {
	var notes []verdict.Note
	for rank := range 4 {
		slot := verdict.Slot{
			Comm: lifecycle.CommID{1}, Name: "world", Rank: rank, Size: 4, Job: -1, Wait: -1,
			Seq: 7, InFlight: 1, Op: tape.Signature{Call: lifecycle.CallBarrier}, Age: 6 * time.Second, Stalled: true,
		}
		if rank == 2 {
			slot.Seq, slot.InFlight, slot.Age, slot.Stalled = 6, 0, 7*time.Second, false
		}
		notes = append(notes, verdict.Note{
			Member: fmt.Sprint("process", rank), Rank: rank, Slots: []verdict.Slot{slot},
		})
	}
	verdicts, _ := verdict.Diagnose(notes)
	for _, v := range verdicts {
		fmt.Println(v.Reason, v.Confidence)
		fmt.Println(v.Text)
	}
	// Output:
	// not_entered certain
	// rank 2 has not entered barrier 7 on "world"; its last, barrier 6 on "world", ended 7s ago; ranks 0, 1 and 3 wait
}
