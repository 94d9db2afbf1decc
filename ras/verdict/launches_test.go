package verdict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// launched has a rank for each program, which is in its first launch: messages such as "<1" and ">1" (from and to rank
// 1), those of a group in brackets, and all-reduces, "*0". The size of each is 64 or, as in ">1:8", another one.
func launched(t *testing.T, unproven bool, programs ...string) (notes []Note) {
	t.Helper()
	for r, program := range programs {
		s := Slot{
			Name: "world", Rank: r, Size: len(programs), Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1,
			Counted: true, Enqueues: true, Messages: map[int32]model.Messages{},
		}
		s.Comm[0] = 1
		var trail Trail
		var last tape.Signature
		group, begun := false, false
		for word := range strings.FieldsSeq(program) {
			grouped := group && begun
			group, begun = group || word[0] == '[', true
			var peer int32
			var way rune
			call, size, _ := strings.Cut(strings.Trim(word, "[]"), ":")
			bytes, err := strconv.ParseUint(cmp.Or(size, "64"), 10, 64)
			if _, parse := fmt.Sscanf(call, "%c%d", &way, &peer); err != nil || parse != nil {
				t.Fatal(err, parse)
			}
			counts := s.Messages[peer]
			m := Mark{Call: countSend, Peer: peer, Bytes: bytes, Together: grouped}
			op := tape.Signature{Call: lifecycle.CallSend, Peer: peer, Bytes: bytes}
			switch way {
			case '>':
				counts.Sent++
				m.Seq = counts.Sent
			case '<':
				counts.Received++
				m.Seq, m.Call, op.Call = counts.Received, countReceive, lifecycle.CallRecv
			default:
				s.Begun++
				op = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: bytes}
				m = Mark{Call: countCollective, Seq: s.Begun, Op: op, Meets: true}
			}
			if way != '*' {
				s.Messages[peer] = counts
			}
			last = op
			if trail = append(trail, m); s.InFlight == 0 || grouped && len(trail) == int(s.InFlight)+1 {
				s.Seq, s.Op, s.Age = m.Seq, op, 5*time.Second
				s.Phase, s.Stalled = tape.PhaseStream, true
			}
			s.InFlight++
			if strings.HasSuffix(word, "]") {
				group, begun = false, false
			}
		}
		if unproven {
			s.InFlight, s.Unproven, s.Stalled, s.Phase = 0, true, false, tape.PhaseNone
			s.Op, s.Seq, s.Done = last, trail[len(trail)-1].Seq, s.Begun
		}
		sent, err := json.Marshal(Note{
			Member: fmt.Sprint("p", r), Host: "a", PID: r + 1, Rank: r, JobSize: len(programs), Slots: []Slot{s},
			Habits: []Habit{{Root: 1, Trail: trail}},
		})
		var received Note
		if err = errors.Join(err, json.Unmarshal(sent, &received)); err != nil {
			t.Fatal(err)
		}
		notes = append(notes, received)
	}
	return notes
}

// TestLaunches: ranks wait for each other only by the order of their launches, though each has called for all its
// messages.
func TestLaunches(t *testing.T) {
	for _, c := range []struct {
		name     string
		programs []string
		reached  bool     // the devices are known to have come so far
		want     []string // beginnings of the verdicts
	}{
		{
			"each receives before it sends",
			[]string{"<2 >1", "<0 >2", "<1 >0"},
			false,
			[]string{"deadlock certain: ranks 0 to 2 wait for each other: rank 0 is in message 1 from rank 2 to rank " +
				"0 on \"world\", which needs rank 2; rank 2 is in message 1 from rank 1 to rank 2"},
		},
		{
			"each sends before it receives, which is well if the messages are small",
			[]string{">1 <2", ">2 <0", ">0 <1"},
			true,
			[]string{"deadlock likely: ranks 0 to 2 wait for each other: rank 0 is in message 1 from rank 0 to rank 1"},
		},
		{"one receives first", []string{"<2 >1", ">2 <0", "<1 >0"}, false, nil},
		{"each has a group", []string{"[<2 >1]", "[<0 >2]", "[<1 >0]"}, false, nil},
		{
			"two wait for each other, and the others for them",
			[]string{"<1 >1", "<0 <2 >0", "<3 >1", ">2 [<2 >2]"},
			false,
			[]string{"deadlock certain: ranks 0 and 1 wait for each other: rank 0 is in message 1 from rank 1 to "},
		},
		{
			"of a group, one message is held back",
			[]string{"<1 >1", "[<0 >2 <2] >0", "<1 >1"},
			false,
			[]string{"deadlock certain: ranks 0 and 1 wait for each other: rank 0 is in message 1 from rank 1 to "},
		},
		{
			"a rank has not sent a message, and waits for one behind it",
			[]string{"<1", "<0 >0"},
			false,
			[]string{"deadlock certain: ranks 0 and 1 wait for each other: rank 0 is in message 1 from rank 1 to "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			notes := launched(t, false, c.programs...)
			for i := range notes {
				notes[i].Slots[0].Reached = c.reached
			}
			verdicts, _ := Diagnose(notes)
			if len(verdicts) != len(c.want) {
				t.Fatalf("it is %v", verdicts)
			}
			for i, v := range verdicts {
				got := fmt.Sprintf("%s %s: %s", v.Reason, v.Confidence, v.Text)
				if !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("it is %q, want %q", got, c.want[i])
				}
			}
			// Without trails, the order is not known.
			for i := range notes {
				notes[i].Habits = nil
			}
			verdicts, _ = Diagnose(notes)
			if slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Reason == Deadlock }) {
				t.Errorf("without trails it is %v", verdicts)
			}
		})
	}
}

// TestLaunchedBefore: if all that is known of operations is that they were launched, their order tells which one a rank
// is in.
func TestLaunchedBefore(t *testing.T) {
	for _, c := range []struct {
		name     string
		programs []string
		want     string // beginning of the verdict; "" for none
	}{
		{
			"a message before a collective is not sent",
			[]string{">1 *0", "<0 <0 *0"},
			"not_entered certain: rank 0 (a, pid 1) has not sent message 2 to rank 1",
		},
		{
			"a message is sent behind a collective that needs its receiver",
			[]string{">1 *0 >1", "<0 <0 *0"},
			"deadlock certain: ranks 0 and 1 wait for each other",
		},
		{"all messages are sent", []string{">1 >1 *0", "<0 <0 *0"}, ""},
		{"one is ahead of the other's collective", []string{">1 *0 >1", "<0 *0 <0"}, ""},
	} {
		verdicts, _ := Diagnose(launched(t, true, c.programs...))
		got := ""
		for _, v := range verdicts {
			got += fmt.Sprintf("%s %s: %s", v.Reason, v.Confidence, v.Text)
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: it is %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDifferentLaunches: no rank gets past a collective for which ranks have made different calls, whatever they have
// launched since. Such a mismatch is the cause if no device is known to have completed the collective.
func TestDifferentLaunches(t *testing.T) {
	const wrong = "mismatch certain: rank 2 (a, pid 3) made a different call than the others as number 2 on "
	each := func(change func(*Slot)) func([]Note) {
		return func(notes []Note) {
			for i := range notes {
				change(&notes[i].Slots[0])
			}
		}
	}
	of := func(rank int, change func(*Slot)) func([]Note) {
		return func(notes []Note) { change(&notes[rank].Slots[0]) }
	}
	marked := func(s *Slot) { // the last one has a mark
		s.InFlight, s.Unproven, s.Stalled, s.Phase = 1, false, true, tape.PhaseStream
	}
	for _, c := range []struct {
		name     string
		programs []string
		change   func([]Note)
		want     string // beginning of the verdict; "" for none
	}{
		{"the last calls differ", []string{"*0 *0", "*0 *0", "*0 *0:8"}, nil, wrong},
		{"others were launched since", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, nil, wrong},
		{"one has a mark behind it", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, of(0, marked), wrong},
		{"all have", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(marked), wrong},
		{"messages were launched since", []string{"*0 *0 >1 *0", "*0 *0 <0 *0", "*0 *0:8 *0"}, nil, wrong},
		{"one rank is ahead", []string{"*0 *0 *0", "*0 *0", "*0 *0:8"}, nil, wrong},
		{"they are done", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(func(s *Slot) { s.Proven = 2 }), ""},
		{"two have done their own", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, func(notes []Note) {
			notes[0].Slots[0].Proven, notes[2].Slots[0].Proven = 3, 3
		}, ""},
		{"the odd one has done its own", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, of(2, func(s *Slot) {
			s.Proven = 3
		}), wrong},
		{"messages are not counted", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(func(s *Slot) {
			s.Counted = false
		}), wrong},
		{"they are young", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(func(s *Slot) {
			s.Unproven = false
		}), ""},
		{"a mark is young", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(func(s *Slot) {
			marked(s)
			s.Stalled = false
		}), ""},
		{"one is a broadcast's", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, func(notes []Note) {
			for i := range notes {
				notes[i].Habits[0].Trail[1].Meets = false
			}
		}, ""},
		{"a graph replays them", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, each(func(s *Slot) {
			s.Captured = 1
		}), ""},
		{"the first is not done", []string{"*0 *0", "*0 *0", "*0 *0:8"}, each(func(s *Slot) {
			marked(s)
			s.Seq, s.Op.Bytes = 1, 64
		}), ""},
		{"one has ended the communicator", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0:8 *0"}, of(2, func(s *Slot) {
			s.Left = &Left{Act: tape.ActDestroy, Age: time.Second}
		}), ""},
		{"all are the same", []string{"*0 *0 *0", "*0 *0 *0", "*0 *0 *0"}, nil, ""},
	} {
		notes := launched(t, true, c.programs...)
		if c.change != nil {
			c.change(notes)
		}
		verdicts, _ := Diagnose(notes)
		got := ""
		for _, v := range verdicts {
			got += fmt.Sprintf("%s %s: %s", v.Reason, v.Confidence, v.Text)
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: it is %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNotHeldBack: no rank waits in what it has completed, or behind what may have been launched before the trail
// begins.
func TestNotHeldBack(t *testing.T) {
	inReceive := func(notes []Note) {
		for i := range notes {
			s := &notes[i].Slots[0]
			s.Op.Call, s.Op.Peer, s.Reached = lifecycle.CallRecv, int32((i+2)%3), true
		}
	}
	of := func(rank int, change func(*Note, *Slot)) func([]Note) {
		return func(notes []Note) { change(&notes[rank], &notes[rank].Slots[0]) }
	}
	done := func(_ *Note, s *Slot) { s.InFlight, s.Stalled, s.Phase = 0, false, tape.PhaseNone }
	for _, c := range []struct {
		name     string
		programs []string
		change   func([]Note)
		want     string // the reasons
	}{
		{"they have sent, and receive", []string{">1 <2", ">2 <0", ">0 <1"}, inReceive, "unknown"},
		{"one has done all", []string{"<2 >1", "<0 >2", "<1 >0"}, of(1, done), ""},
		{"one has said nothing for long", []string{"<2 >1", "<0 >2", "<1 >0"}, of(1, func(n *Note, _ *Slot) {
			n.Stale = true
		}), ""},
		{"a record is lost", []string{"<1 <1 >1 <1", ">0 >0 <0 >0"}, of(1, func(n *Note, _ *Slot) {
			n.Habits[0].Trail = slices.Delete(n.Habits[0].Trail, 1, 2)
		}), ""},
		{"the last record is lost", []string{"<1 <1 >1", ">0 >0 <0"}, of(1, func(n *Note, _ *Slot) {
			n.Habits[0].Trail = slices.Delete(n.Habits[0].Trail, 1, 2)
		}), ""},
		{"a group is open", []string{"[<1 >1]", "<0 >0"}, of(0, func(n *Note, s *Slot) {
			n.Habits[0].Trail, s.Phase = n.Habits[0].Trail[:1], tape.PhaseNone
			s.Op.Call = lifecycle.CallRecv
		}), "unfinished_group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			notes := launched(t, false, c.programs...)
			c.change(notes)
			verdicts, _ := Diagnose(notes)
			var got []string
			for _, v := range verdicts {
				got = append(got, v.Reason.String())
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("it is %v, want %q", verdicts, c.want)
			}
		})
	}
}
