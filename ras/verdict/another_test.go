package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestMadeAnother: a broadcast or reduce in which a rank names another root completes on some ranks, and hangs on
// others. The minority is wrong.
func TestMadeAnother(t *testing.T) {
	reduce := func(root int32) tape.Signature {
		return tape.Signature{Call: lifecycle.CallReduce, Peer: root, Bytes: 64}
	}
	const lost = -2 // its trail is lost
	// Rank 0 is still in its reduce, and the others have completed theirs.
	hang := func(age time.Duration, roots ...int32) []Note {
		notes := make([]Note, len(roots))
		for r, root := range roots {
			s := Slot{
				Name: "dp", Rank: r, Size: len(roots), Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1,
				InFlight: 1, Stalled: true, Phase: tape.PhaseStream, Seq: 7, Begun: 7, Done: 6, Age: age,
				Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64},
			}
			s.Comm[0] = 1
			if r == 0 {
				s.Seq, s.Begun, s.Done, s.Op = 6, 6, 5, reduce(root)
			}
			notes[r] = Note{
				Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: len(roots), Slots: []Slot{s},
				Habits: []Habit{{Root: 1, Trail: Trail{
					{Seq: 6, Op: agreed(reduce(root))}, {Seq: 7, Op: agreed(s.Op)},
				}}},
			}
			if root == lost {
				notes[r].Habits = nil
			}
		}
		return notes
	}
	for _, c := range []struct {
		roots []int32
		want  string
	}{
		{[]int32{1, 0, 0}, `rank 0 (a, pid 1) made a different call than the others as number 6 on "dp": ` +
			`ranks 1 and 2: reduce of int8, 64 bytes, root 0; rank 0: root 1; ranks 1 and 2 wait`},
		{[]int32{0, 0, 1, 0}, `rank 2 (a, pid 3) made a different call than the others as number 6 on "dp": ` +
			`ranks 0, 1 and 3: reduce of int8, 64 bytes, root 0; rank 2: root 1; ranks 0, 1 and 3 wait`},
		{[]int32{0, 1}, `the ranks made different calls as number 6 on "dp", and it is not known which is wrong: ` +
			`rank 0: reduce of int8, 64 bytes, root 0; rank 1: root 1`},
		{[]int32{0, 1, 2, 3}, `the ranks made different calls as number 6 on "dp", and it is not known which is ` +
			`wrong: rank 0: reduce of int8, 64 bytes, root 0; rank 1: root 1; rank 2: root 2; rank 3: root 3; ` +
			`ranks 0 to 3 wait`},
		{[]int32{1, 0, 0, lost}, `the ranks made different calls as number 6 on "dp", and it is not known which is ` +
			`wrong: ranks 1 and 2: reduce of int8, 64 bytes, root 0; rank 0: root 1; ranks 0 to 3 wait`},
		{[]int32{1, 0, 0, 0, lost}, `rank 0 (a, pid 1) made a different call than the others as number 6 on "dp": ` +
			`ranks 1 to 3: reduce of int8, 64 bytes, root 0; rank 0: root 1; ranks 1 to 4 wait`},
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

// TestMadeAnotherFirst: rank 0 makes a broadcast too many, of which it is the root, and so waits in the call after it.
// The others have queued more calls behind the one that they are in, and have not passed that one: there is one
// verdict, on the first call.
func TestMadeAnotherFirst(t *testing.T) {
	sum := func(bytes uint64) tape.Signature {
		return tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: bytes}
	}
	broadcast := tape.Signature{Call: lifecycle.CallBroadcast, Bytes: 64}
	var notes []Note
	for r := range 3 {
		s := Slot{
			Name: "dp", Rank: r, Size: 3, Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1, InFlight: 3,
			Stalled: true, Phase: tape.PhaseStream, Seq: 7, Begun: 9, Done: 6, Age: 5 * time.Second, Op: sum(64),
		}
		trail := Trail{{Seq: 7, Op: agreed(sum(64))}, {Seq: 8, Op: agreed(sum(128))}}
		if r == 0 {
			s.Seq, s.Done = 8, 7
			trail = Trail{{Seq: 7, Op: agreed(broadcast)}, {Seq: 8, Op: agreed(sum(64))}}
		}
		s.Comm[0] = 1
		notes = append(notes, Note{
			Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: 3, Slots: []Slot{s},
			Habits: []Habit{{Root: 1, Trail: trail}},
		})
	}
	const want = `rank 0 (a, pid 1) made a different call than the others as number 7 on "dp": ` +
		`ranks 1 and 2: all_reduce of int8, 64 bytes; rank 0: broadcast; ranks 1 and 2 wait`
	if verdicts, _ := Diagnose(notes); len(verdicts) != 1 || verdicts[0].Text.String() != want {
		t.Errorf("got %v, want %q", verdicts, want)
	}
}

// TestOvertaken: a rank that makes calls may still come to one in which others wait, unless it has made calls that
// these made later.
func TestOvertaken(t *testing.T) {
	sum := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64}
	for name, c := range map[string]struct {
		trail Trail // of the ranks that wait in number 6 of the first communicator
		want  bool
	}{
		"it passed a later call":   {Trail{{Slot: 1, Seq: 10}, {Slot: 0, Seq: 6}, {Slot: 1, Seq: 11}}, true},
		"they made many since":     {Trail{{Slot: 1, Seq: 11}, {Slot: 1, Seq: 12}}, true},
		"it has not come so far":   {Trail{{Slot: 1, Seq: 11}, {Slot: 0, Seq: 6}, {Slot: 1, Seq: 13}}, false},
		"they made no other since": {Trail{{Slot: 1, Seq: 11}, {Slot: 0, Seq: 6}}, false},
		"other threads make them":  {nil, true},
	} {
		var notes []Note
		for r := range 3 {
			tp := Slot{
				Name: "tp", Rank: r, Size: 3, Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1, Seq: 6, Begun: 6,
				Done: 5, InFlight: 1, Stalled: true, Phase: tape.PhaseStream, Age: 5 * time.Second, Op: sum,
			}
			dp := Slot{
				Name: "dp", Rank: r, Size: 3, Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1, Seq: 12,
				Begun: 12, Done: 12, Age: 80 * time.Millisecond, Op: sum,
			}
			tp.Comm[0], dp.Comm[0] = 1, 2
			trail := c.trail
			if trail == nil && r != 1 {
				dp.Lane = 1
			}
			if r == 1 {
				tp.Seq, tp.Begun, tp.Done, tp.InFlight, tp.Stalled, tp.Phase = 5, 5, 5, 0, false, tape.PhaseNone
				trail = nil
			}
			notes = append(notes, Note{
				Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: 3, Slots: []Slot{tp, dp},
				Habits: []Habit{{Root: 1, Trail: trail}},
			})
		}
		verdicts, _ := Diagnose(notes)
		const says = "rank 1 (a, pid 2) has not entered all_reduce 6"
		got := len(verdicts) == 1 && strings.HasPrefix(verdicts[0].Text.String(), says)
		if got != c.want || !c.want && len(verdicts) > 0 ||
			len(c.trail) > 0 && c.want && verdicts[0].Confidence != Likely {
			t.Errorf("%s: it is %v", name, verdicts)
		}
	}
}

// TestPassedDecide: two ranks are in a call and differ in it. The ranks that have passed it show which of them is
// wrong.
func TestPassedDecide(t *testing.T) {
	sum := func(bytes uint64) tape.Signature {
		return tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: bytes}
	}
	var notes []Note
	for r := range 4 {
		op := sum(64)
		if r == 0 {
			op = sum(32)
		}
		s := Slot{
			Name: "dp", Rank: r, Size: 4, Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1, InFlight: 1,
			Stalled: true, Phase: tape.PhaseStream, Seq: 7, Begun: 7, Done: 6, Age: 5 * time.Second, Op: op,
		}
		trail := Trail{{Seq: 7, Op: op}}
		if r > 1 {
			s.Seq, s.Begun, s.Done, s.Op = 8, 8, 7, sum(128)
			trail = append(trail, Mark{Seq: 8, Op: s.Op})
		}
		s.Comm[0] = 1
		notes = append(notes, Note{
			Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: 4, Slots: []Slot{s},
			Habits: []Habit{{Root: 1, Trail: trail}},
		})
	}
	const want = `rank 0 (a, pid 1) made a different call than the others as number 7 on "dp": ` +
		`ranks 1 to 3: all_reduce of int8, 64 bytes; rank 0: 32 bytes; ranks 1 to 3 wait`
	if verdicts, _ := Diagnose(notes); len(verdicts) == 0 || verdicts[0].Text.String() != want {
		t.Errorf("got %v, want %q", verdicts, want)
	}
}

// TestTrailText: a trail is read as it was written, and each signature is written once.
func TestTrailText(t *testing.T) {
	var trail Trail
	for i := range 40 {
		op := tape.Signature{Call: lifecycle.CallReduce, DataType: 7, Reduction: 2, Peer: int32(i % 3), Bytes: 1 << 40}
		trail = append(trail, Mark{Slot: 1, Seq: uint64(i), Op: op, Usual: i%2 == 0, Meets: i%5 == 0},
			Mark{Call: countSend, Seq: 9, Peer: 3, Bytes: 8, Together: true})
	}
	text, err := trail.MarshalText()
	if err != nil || len(text) > 80*7 {
		t.Errorf("it has %d bytes, %v", len(text), err)
	}
	var read Trail
	if err := read.UnmarshalText(text); err != nil || !slices.Equal(read, trail) {
		t.Errorf("it reads %v, %v", read, err)
	}
}

// TestInStepBesideAHeartbeat: a communicator that only one of two ranks has doesn't set them apart.
func TestInStepBesideAHeartbeat(t *testing.T) {
	at := func(tp uint64, beats ...uint64) *track {
		one := &track{lane: map[string]int{"tp": 0}, now: progress{{role: "tp"}: tp}}
		for _, n := range beats {
			one.lane["beat"], one.now[counter{role: "beat"}] = 0, n
		}
		one.states = []progress{one.now}
		return one
	}
	for _, c := range []struct {
		a, b   *track
		inStep bool
	}{
		{at(5), at(5, 9), true},
		{at(5, 9), at(5), true},
		{at(5, 8), at(5, 9), false},
		{at(5, 9), at(6), false},
	} {
		if got := c.a.inStep(c.b); got == yes != c.inStep {
			t.Errorf("%v and %v are in step: %d", c.a.now, c.b.now, got)
		}
	}
}
