package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A broadcast or reduce in which a rank names another root completes on some ranks, and others hang in it: the minority
// is wrong.
func TestMadeAnother(t *testing.T) {
	reduce := func(root int32) tape.Signature {
		return tape.Signature{Call: lifecycle.CallReduce, Peer: root, Bytes: 64}
	}
	hang := func(age time.Duration, roots ...int32) []Note { // rank 0 is still in its reduce, and the others are through
		notes := make([]Note, len(roots))
		for r, root := range roots {
			s := Slot{
				Name: "dp", Rank: r, Size: len(roots), Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1, InFlight: 1,
				Stalled: true, Phase: tape.PhaseStream, Seq: 7, Begun: 7, Done: 6, Age: age,
				Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64},
			}
			s.Comm[0] = 1
			if r == 0 {
				s.Seq, s.Begun, s.Done, s.Op = 6, 6, 5, reduce(root)
			}
			notes[r] = Note{
				Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: len(roots), Slots: []Slot{s},
				Habits: []Habit{{Root: 1, Trail: Trail{{Seq: 6, Hash: hashOf(reduce(root))}, {Seq: 7, Hash: hashOf(s.Op)}}}},
			}
		}
		return notes
	}
	for _, c := range []struct {
		roots []int32
		want  string
	}{
		{[]int32{1, 0, 0}, `rank 0 (a, pid 1) made a different call than the others as number 6 on "dp": ` +
			`reduce of 64 bytes with root 1; ranks 1 and 2 wait`},
		{[]int32{0, 0, 1, 0}, `rank 2 (a, pid 3) made a different call than the others as number 6 on "dp": ` +
			`ranks 0, 1 and 3 called reduce of 64 bytes with root 0; ranks 0, 1 and 3 wait`},
		{[]int32{0, 1}, `ranks 0 and 1 made different calls as number 6 on "dp": it is not known which is wrong; ` +
			`rank 0 called reduce of 64 bytes with root 0`},
		{[]int32{0, 0, 0}, ""},
	} {
		verdicts, _ := Diagnose(hang(5*time.Second, c.roots...))
		got := ""
		for _, v := range verdicts {
			got += v.Text.String()
		}
		if got != c.want || got != "" && verdicts[0].Reason != Mismatch {
			t.Errorf("with roots %v it is %q, want %q", c.roots, got, c.want)
		}
	}
	if verdicts, _ := Diagnose(hang(3*time.Minute, 0, 0, 0)); len(verdicts) != 1 ||
		!strings.Contains(verdicts[0].Text.String(), "all ranks have launched it") {
		t.Errorf("of one call it is %v", verdicts)
	}
}
