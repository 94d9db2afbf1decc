package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestUnequalSizes: a message whose sides have different sizes does not end, even if one side has done its part and
// gone on.
func TestUnequalSizes(t *testing.T) {
	const bothWrong = `mismatch likely: ranks 0 and 1 called for message 1 from rank 0 to rank 1 on "world" with ` +
		`different sizes, and it is not known which is wrong: rank 0 called send of 8 bytes, and rank 1 recv of 16 ` +
		`bytes`
	// goneOn has rank 0 in the all-reduce behind its message.
	goneOn := func(notes []Note) {
		s := &notes[0].Slots[0]
		s.Op, s.Seq, s.InFlight = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64}, 1, 1
	}
	usual := func(rank int, sig tape.Signature, bytes uint64) func([]Note) {
		return func(notes []Note) {
			instead := sig
			instead.Bytes = bytes
			notes[1-rank].Habits[0].Trail[0].Usual = true
			n := &notes[rank]
			n.Habits[0].Odd = []Odd{{
				Did:     Usual{Comm: n.Slots[0].Comm, Name: "world", Op: sig, Seq: 1},
				Instead: Usual{Comm: n.Slots[0].Comm, Name: "world", Op: instead, Times: 9},
			}}
		}
	}
	for _, c := range []struct {
		name     string
		programs []string
		change   func([]Note)
		want     []string // beginnings of the verdicts
	}{
		{"both are in it", []string{">1:8", "<0:16"}, nil, []string{bothWrong}},
		{
			"one has sent all it has, and gone on",
			[]string{">1:8 *0", "<0:16 *0", "*0"},
			goneOn,
			[]string{bothWrong + "; rank 2 waits"},
		},
		{
			"one has received all it called for, and is done",
			[]string{">1:8000", "<0:16"},
			func(notes []Note) { notes[1].Slots[0].InFlight, notes[1].Slots[0].Stalled = 0, false },
			[]string{`mismatch likely: ranks 0 and 1 called for message 1`},
		},
		{
			"one has sent all it has, aborted the communicator, and left",
			[]string{">1:8", "<0:16"},
			func(notes []Note) {
				notes[0].Fate, notes[0].FateAge = Departed, time.Second
				s := &notes[0].Slots[0]
				s.InFlight, s.Stalled, s.Unproven, s.Left = 0, false, true, &Left{Act: abort, Age: time.Second}
			},
			[]string{bothWrong},
		},
		{
			"of a group, one message is such",
			[]string{"[>1:8 <1:4]", "[>0:4 <0:16]"},
			nil,
			[]string{bothWrong},
		},
		{
			"the receiver had always called for less",
			[]string{">1:8", "<0:16"},
			usual(1, tape.Signature{Call: lifecycle.CallRecv, Bytes: 16}, 8),
			[]string{
				`mismatch certain: rank 1 (a, pid 2) called recv of 16 bytes from rank 0 of "world", where it had ` +
					`called recv of 8 bytes from rank 0 of "world" 9 times before; rank 0 called send of 8 bytes, ` +
					`and rank 1 recv of 16 bytes; rank 0 waits`,
			},
		},
		{
			"the next one is odd, too",
			[]string{">1:8 >1:8", "<0:16 <0:16", ">3:8 >3:8", "<2:8 <2:8"},
			func(notes []Note) {
				for i := range 2 { // the others have completed it
					notes[2+i].Slots[0].InFlight, notes[2+i].Slots[0].Stalled = 0, false
				}
				usual(1, tape.Signature{Call: lifecycle.CallRecv, Bytes: 16}, 8)(notes)
				h := &notes[1].Habits[0]
				h.Odd = append([]Odd{h.Odd[0]}, h.Odd...)
				h.Odd[0].Did.Seq, notes[0].Habits[0].Trail[1].Usual = 2, true
			},
			[]string{`mismatch certain: rank 1 (a, pid 2) called recv of 16 bytes from rank 0 of "world", where it`},
		},
		{
			"what is odd is another message",
			[]string{">1:8", "<0:16"},
			usual(1, tape.Signature{Call: lifecycle.CallRecv, Bytes: 16, Peer: 2}, 8),
			[]string{bothWrong},
		},
		{"they have the same size", []string{">1:8", "<0:8"}, nil, []string{"unknown"}},
		{
			"their streams may not have come to it",
			[]string{">1:8", "<0:16"},
			func(notes []Note) { notes[0].Slots[0].Reached = false }, nil,
		},
		{
			"and they have not for long",
			[]string{">1:8", "<0:16"},
			func(notes []Note) {
				for i := range notes {
					notes[i].Slots[0].Reached, notes[i].Slots[0].Age = false, 3*time.Minute
				}
			},
			[]string{bothWrong},
		},
		{
			"its trail doesn't go back so far",
			[]string{">1:8", "<0:16"},
			func(notes []Note) { notes[0].Habits = nil },
			[]string{"unknown"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			notes := launched(t, false, c.programs...)
			for i := range notes {
				notes[i].Slots[0].Reached = true
			}
			if c.change != nil {
				c.change(notes)
			}
			verdicts, _ := Diagnose(notes)
			if len(verdicts) != len(c.want) {
				t.Fatalf("it is %v", verdicts)
			}
			for i, v := range verdicts {
				if got := fmt.Sprintf("%s %s: %s", v.Reason, v.Confidence, v.Text); !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("it is %q, want %q", got, c.want[i])
				}
			}
		})
	}
}

// TestOtherSide: a message's other side is a call for a message with the rank that made it: the first receive of rank
// 3, which is from rank 2, does not belong to what rank 1 sends to rank 3.
func TestOtherSide(t *testing.T) {
	notes := launched(t, false, "*0", ">3", "<1", "<2")
	n := &notes[1]
	to := func(peer int32) Usual {
		return Usual{
			Comm: n.Slots[0].Comm, Name: "world", Op: tape.Signature{Call: lifecycle.CallSend, Peer: peer, Bytes: 64},
		}
	}
	odd := Odd{Did: to(3), Instead: to(2)}
	odd.Did.Seq, odd.Instead.Times = 1, 8
	n.Habits[0].Odd = []Odd{odd}
	const want = `rank 1 (a, pid 2) called send of 64 bytes to rank 3 of "world", where it had called send of 64 ` +
		`bytes to rank 2 of "world" 8 times before; the cycle: `
	if verdicts, _ := Diagnose(notes); len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].Text.String(), want) {
		t.Errorf("it is %v, want %q", verdicts, want)
	}
}
