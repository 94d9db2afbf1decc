package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestDestroyedInCall: rank 2 destroys world without the last all_reduce, and ranks 0 and 1 do so while theirs is in
// flight. They made that call, too: it is not rank 3's alone.
func TestDestroyedInCall(t *testing.T) {
	var notes []Note
	for r := range 4 {
		s := Slot{
			Name: "world", Rank: r, Size: 4, Root: 1, Job: r, State: lifecycle.StateDestroyed, Wait: -1, Seq: 7,
			Begun: 7, Done: 6, Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64}, Failed: true,
			Age: 120 * time.Millisecond, Took: 70 * time.Millisecond,
			Left: &Left{Act: tape.ActDestroy, Age: 122 * time.Millisecond, Took: 3 * time.Millisecond},
		}
		s.Comm[0] = 1
		switch r {
		case 2:
			s.Seq, s.Begun, s.Failed, s.Age = 6, 6, false, 300*time.Millisecond
		case 3:
			s.State, s.Left = lifecycle.StateReady, nil
			s.Failure = &Failure{
				Code: lifecycle.CodePeerAborted, Call: s.Op.Call, Seq: 7, Peer: 2, Wait: 2, Age: 119 * time.Millisecond,
			}
			s.Age = s.Failure.Age
		}
		notes = append(notes, Note{
			Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: 4, Slots: []Slot{s},
		})
	}
	const want = `rank 2 (a, pid 3) destroyed "world" 122ms ago, and never entered all_reduce 7 on "world"`
	if verdicts, _ := Diagnose(notes); len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].Text.String(), want) {
		t.Errorf("got %v, want %s", verdicts, want)
	}
}

// TestDestroyedBeforeMessage: rank 1 destroys pp without the message that rank 0 waits for.
func TestDestroyedBeforeMessage(t *testing.T) {
	slot := func(rank int) Slot {
		return Slot{
			Name: "pp", Rank: rank, Size: 2, Root: 1, Job: rank, State: lifecycle.StateReady, Wait: -1, Seq: 5,
			Comm: lifecycle.CommID{1},
		}
	}
	waits, left := slot(0), slot(1)
	waits.Op = tape.Signature{Call: lifecycle.CallRecv, Peer: 1, Bytes: 64}
	waits.InFlight, waits.Stalled, waits.Age, waits.Wait = 1, true, 6*time.Second, 1
	left.State, left.Left = lifecycle.StateDestroyed, &Left{Act: tape.ActDestroy, Age: 7 * time.Second}
	left.Op, left.Seq, left.Age = tape.Signature{Call: lifecycle.CallRecv, Peer: 0, Bytes: 64}, 4, 8*time.Second
	var notes []Note
	for r, s := range []Slot{waits, left} {
		notes = append(notes, Note{
			Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: 2, Slots: []Slot{s},
		})
	}
	const want = `rank 1 (a, pid 2) destroyed "pp" 7s ago, and never sent message 5 to rank 0 on "pp"`
	if verdicts, _ := Diagnose(notes); len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].Text.String(), want) {
		t.Errorf("got %v, want %s", verdicts, want)
	}
}
