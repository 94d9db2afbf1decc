package attach_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// launch returns the part of a script that launches operations first to last on one stream, with a mark behind each.
func launch(comm, first, last int) string {
	var script strings.Builder
	for n := first; n <= last; n++ {
		fmt.Fprintf(&script, "start %d 0 16 7 0 -1 8 1\nmark %[1]d %[2]d 1\nend %[1]d %[2]d 0\n", comm, n)
	}
	return script.String()
}

// ends returns the part of a script that ends operations first to last.
func ends(comm, first, last, code int) string {
	var script strings.Builder
	for n := first; n <= last; n++ {
		fmt.Fprintf(&script, "end %d %d %d\n", comm, n, code)
	}
	return script.String()
}

// played returns the tape after a script.
func played(t *testing.T, script string) *tape.Reader {
	t.Helper()
	r, err := tape.Open(playOn(t, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// marked returns the only slot after a script, which has marks.
func marked(t *testing.T, script string) tape.Slot {
	t.Helper()
	slots := played(t, script).Slots()
	if len(slots) != 1 || !slots[0].Marked {
		t.Fatalf("the slots are %+v", slots)
	}
	return slots[0]
}

// TestProven: the mark that was reached last is kept while later marks wait, which use other places.
func TestProven(t *testing.T) {
	const unmarked = "start 1 0 16 7 0 -1 8 1\nend 1 %d 0\n"
	for name, c := range map[string]struct {
		script string
		want   uint64
	}{
		"nothing":         {launch(1, 1, 2), 0},
		"one":             {launch(1, 1, 2) + "reach 1 1\n", 1},
		"a later waits":   {launch(1, 1, 1) + "reach 1 1\n" + fmt.Sprintf(unmarked, 2) + launch(1, 3, 3), 1},
		"several wait":    {launch(1, 1, 3) + "reach 1 3\n" + launch(1, 4, 20), 3},
		"none after it":   {launch(1, 1, 3) + "reach 1 3\n" + fmt.Sprintf(unmarked, 4), 3},
		"all others wait": {launch(1, 1, 1) + "reach 1 1\n" + launch(1, 2, 31), 1},
	} {
		if s := marked(t, world+c.script); s.Proven != c.want {
			t.Errorf("%s: %d is proven, want %d", name, s.Proven, c.want)
		}
	}
}

// An operation that is launched on a stream is in flight until its mark is reached.
func TestMarks(t *testing.T) {
	again := strings.Replace(world, "comm 1", "comm 2", 1)
	type shown struct {
		Launched, Completed, Seq, Begun, Done uint64
		Phase                                 tape.Phase
		Captured                              uint64
		Reached                               bool
	}
	const stream, queued = tape.PhaseStream, tape.PhaseQueued
	const unmarked = "start 1 0 16 7 0 -1 8 1\nend 1 %d 0\n"
	for _, c := range []struct {
		name, script string
		want         shown
	}{
		{"nothing reached", launch(1, 1, 3), shown{3, 0, 1, 3, 0, queued, 0, false}},
		{"the first is begun", launch(1, 1, 3) + "begin 1 1\n", shown{3, 0, 1, 3, 0, stream, 0, true}},
		{"one reached", launch(1, 1, 3) + "begin 1 1\nreach 1 1\n", shown{3, 1, 2, 3, 1, queued, 0, false}},
		{"the next is begun", launch(1, 1, 3) + "begin 1 2\nreach 1 1\n", shown{3, 1, 2, 3, 1, stream, 0, true}},
		{ // the stream may be busy with that one
			"behind one without a mark", launch(1, 1, 1) + fmt.Sprintf(unmarked, 2) + launch(1, 3, 3) + "reach 1 1\n",
			shown{3, 2, 3, 3, 2, stream, 0, false},
		},
		{ // the two streams may write in any order
			"behind one on another stream", launch(1, 1, 1) +
				"start 1 0 16 7 0 -1 8 1\nmark 1 2 0\nend 1 2 0\nreach 1 1\n",
			shown{2, 1, 2, 2, 1, stream, 0, false},
		},
		{
			"behind one that is done, on another stream", launch(1, 1, 1) + "reach 1 1\n" +
				"start 1 0 16 7 0 -1 8 1\nmark 1 2 0\nend 1 2 0\n",
			shown{2, 1, 2, 2, 1, queued, 0, false},
		},
		{
			"a group", launch(1, 1, 1) + "reach 1 1\nstart 1 0 16 7 0 -1 8 1\nstart 1 0 16 7 0 -1 8 1\n" +
				"mark 1 2 1\nend 1 2 0\nend 1 3 0\n",
			shown{3, 2, 3, 3, 2, queued, 0, false},
		},
		{"all reached", launch(1, 1, 3) + "reach 1 3\n", shown{3, 3, 3, 3, 3, tape.PhaseNone, 0, false}},
		{
			"no mark behind the last", launch(1, 1, 3) + "reach 1 3\n" + fmt.Sprintf(unmarked, 4),
			shown{4, 4, 4, 4, 4, tape.PhaseNone, 0, false},
		},
		{"more than there is room for", launch(1, 1, 40), shown{40, 0, 1, 40, 0, queued, 0, false}},
		{
			"more than there was room for", launch(1, 1, 40) + "reach 1 31\n",
			shown{40, 39, 40, 40, 39, queued, 0, false},
		},
		{
			"room again", launch(1, 1, 40) + "reach 1 40\n" + launch(1, 41, 42),
			shown{42, 40, 41, 42, 40, queued, 0, false},
		},
		{
			"launched before, and in a call", launch(1, 1, 2) + "start 1 0 16 7 0 -1 8 1\n",
			shown{3, 0, 1, 3, 0, queued, 0, false},
		},
		{
			"captured", launch(1, 1, 1) + "reach 1 1\nstart 1 0 16 7 0 -1 8 1\ncaptured 1 2\nend 1 2 0\n",
			shown{2, 2, 2, 2, 2, tape.PhaseNone, 1, false},
		},
		{
			"captured in a group", launch(1, 1, 1) + "reach 1 1\n" + strings.Repeat("start 1 0 16 7 0 -1 8 1\n", 100) +
				"captured 1 2\n" + ends(1, 2, 101, 0) + "start 1 0 16 7 0 -1 8 1\ncaptured 1 102\nend 1 102 2\n" +
				"start 1 0 16 7 0 -1 8 1\nend 1 103 0\n",
			shown{103, 103, 103, 103, 103, tape.PhaseNone, 100, false},
		},
		{ // there are four slots, used in turn
			"of the slot's next communicator", launch(1, 1, 3) +
				"start 1 0 16 7 0 -1 8 1\ncaptured 1 4\nend 1 4 0\nclose 1\n" +
				strings.Repeat(again+"close 2\n", 3) + again + launch(2, 1, 2) + "reach 2 3\nreach 2 4\n",
			shown{2, 1, 2, 2, 1, queued, 0, false},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := marked(t, world+c.script)
			got := shown{s.Launched, s.Completed, s.Seq, s.Begun, s.Done, s.Phase, s.Captured, s.Reached}
			if got != c.want {
				t.Errorf("it is %+v, want %+v", got, c.want)
			}
		})
	}
}

// The messages of a communicator with marks are counted by rank and direction; only those of the first ranks, if there
// are more ranks than there is room for.
func TestMessages(t *testing.T) {
	message := func(call lifecycle.Call, rank int) string {
		return fmt.Sprintf("start 1 0 %d 7 0 %d 8 1\n", call, rank)
	}
	large := strings.Replace(world, " 1 2 1 nccl", " 1 200 1 nccl", 1)
	const send, receive = lifecycle.CallSend, lifecycle.CallRecv
	var many strings.Builder
	all := make([]tape.PeerMessages, len(tape.Messages{}))
	for i := range 2 * len(all) {
		rank := 2 + i
		many.WriteString(message(send, rank) + message(receive, rank))
		if i < len(all) {
			all[i] = tape.PeerMessages{Rank: int32(rank), Sent: 1, Received: 1}
		}
	}
	before := many.String() + "close 1\n"
	failed := message(send, 2) + message(send, 2) + "end 1 3 1\n"
	for _, c := range []struct {
		name, script string
		counted      bool
		want         []tape.PeerMessages
	}{
		{"none", launch(1, 1, 1), true, nil},
		{
			"of a group",
			launch(1, 1, 1) + message(receive, 3) + message(send, 2) + message(send, 3) + message(send, 3), true,
			[]tape.PeerMessages{{Rank: 3, Sent: 2, Received: 1}, {Rank: 2, Sent: 1}},
		},
		{"of a group that failed", launch(1, 1, 1) + failed, false, nil},
		{
			"of a group that failed and is too long to be known",
			launch(1, 1, 1) + many.String() + "end 1 2 1\n", false, nil,
		},
		{"with many", launch(1, 1, 1) + many.String() + message(receive, 5), true, slices.Concat(
			all[:3], []tape.PeerMessages{{Rank: 5, Sent: 1, Received: 2}}, all[4:],
		)},
		{
			"behind those of another communicator", before + large + launch(1, 1, 1) + message(send, 2), true,
			[]tape.PeerMessages{{Rank: 2, Sent: 1}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := marked(t, large+c.script)
			unused := func(m tape.PeerMessages) bool { return m.Sent == 0 && m.Received == 0 }
			got := slices.DeleteFunc(s.Messages[:], unused)
			if !slices.Equal(got, c.want) || s.Counted != c.counted {
				t.Errorf("counted (%t) are %+v, want %+v", s.Counted, got, c.want)
			}
			// The record of a destroy has them, too, after its other fields.
			end := fmt.Sprintf("site %s %[1]s 1 1 1\nlife 1 %d %d %d 0 0 0 0 -1 0 0 0 %032d %s\n",
				strings.Repeat("s", 160), tape.ActDestroy, lifecycle.CallDestroy, tape.StageEnd, 1,
				strings.Repeat("t", 1024))
			var life tape.LifeRecord
			for ev, err := range played(t, large+c.script+end).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if ev.IsLife {
					life = ev.Life
				}
			}
			if got := life.Messages; !slices.Equal(got, c.want) || (got != nil) != c.counted || len(life.Text) != 1024 {
				t.Errorf("at its end, there are %+v, want %+v, and %d bytes of text", got, c.want, len(life.Text))
			}
		})
	}
}

// An operation that NCCL launches after it has answered ncclInProgress is on its stream since then.
func TestMarkOfWhatIsLaunchedLater(t *testing.T) {
	for late, want := range map[string]bool{"": false, " 1": true} {
		s := marked(t, world+"start 1 0 16 7 0 -1 8 1\nmark 1 1 1"+late+"\nend 1 1 0\n")
		if later := s.OpStart > s.CallStart; later != want {
			t.Errorf("with %q it was called for at %d, and is on its stream since %d", late, s.CallStart, s.OpStart)
		}
	}
}

// Operations that a stream has not done when their communicator is aborted have failed, although the stream then goes
// on.
func TestMarkOfWhatIsAborted(t *testing.T) {
	t.Setenv("CARILLON_SLOW_THRESHOLD", "1ns")
	for script, want := range map[string][]lifecycle.Code{
		"abort 1\nreach 1 1\nclose 1\n": {lifecycle.CodeAborted},
		"abort 1\nclose 1\n":            {lifecycle.CodeAborted},
		"reach 1 1\nabort 1\nclose 1\n": nil,
	} {
		var ends []lifecycle.Code
		for ev, err := range played(t, world+launch(1, 1, 1)+script).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Op.Stage == tape.StageEnd && ev.Op.Phase == tape.PhaseStream {
				ends = append(ends, ev.Op.Code)
			}
		}
		if !slices.Equal(ends, want) {
			t.Errorf("%q: operations on the stream ended with %v, want %v", script, ends, want)
		}
	}
}

// A communicator's first operation on a stream is observed, once it is done; in a group, the last operation.
func TestObserved(t *testing.T) {
	const grouped = "start 1 0 16 7 0 -1 8 1\nstart 1 0 16 7 0 -1 8 1\nmark 1 1 1\nend 1 1 0\nend 1 2 0\n"
	for _, c := range []struct {
		name, script string
		seq          uint64 // of the observed operation; 0: none
	}{
		{"it is not done", launch(1, 1, 2) + "measured 1 5000\n", 0},
		{"it is done", launch(1, 1, 2) + "reach 1 1\nmeasured 1 5000\n", 1},
		{"a group", grouped + "reach 1 1\nmeasured 1 5000\n", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seq uint64
			for e, err := range played(t, world+c.script).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if o := &e.Op; !e.IsLife && o.Stage == tape.StageDevice && o.Time == o.Start+5000 {
					seq = o.Seq
				}
			}
			if seq != c.seq {
				t.Errorf("operation %d was observed, want %d", seq, c.seq)
			}
		})
	}
}
