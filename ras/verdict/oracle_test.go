package verdict_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// fault is what is made to go wrong in a job, so that the verdict is known before.
type fault int

const (
	sound   fault = iota
	leaves        // a rank doesn't make one of its calls, nor any after it
	dies          // its process ends there
	stops         // its process is stopped there
	differs       // it makes a call of another kind there
	swaps         // it makes two calls on different communicators in the wrong order
)

// step is one collective of a job's program.
type step struct {
	comm int
	call lifecycle.Call
}

// trial is a job of several ranks whose communicators overlap, run until nothing moves.
type trial struct {
	comms    [][]int // members of each
	programs [][]step
	fault    fault
	culprit  int
	at       int // in the culprit's program
}

func drawTrial(t *rapid.T) *trial {
	n := rapid.IntRange(2, 9).Draw(t, "ranks")
	everybody := make([]int, n)
	for r := range everybody {
		everybody[r] = r
	}
	tr := &trial{comms: [][]int{everybody}, programs: make([][]step, n)}
	for i := range rapid.IntRange(1, 5).Draw(t, "communicators") {
		members := rapid.Permutation(everybody).Draw(t, fmt.Sprint("members ", i))
		tr.comms = append(tr.comms, members[:rapid.IntRange(2, n).Draw(t, "size")])
	}
	for range rapid.IntRange(1, 30).Draw(t, "calls") {
		s := step{rapid.IntRange(0, len(tr.comms)-1).Draw(t, "comm"), lifecycle.CallAllReduce}
		for _, r := range tr.comms[s.comm] {
			tr.programs[r] = append(tr.programs[r], s)
		}
	}
	tr.fault = rapid.SampledFrom([]fault{sound, leaves, dies, stops, differs, swaps}).Draw(t, "fault")
	tr.culprit = rapid.IntRange(0, n-1).Draw(t, "culprit")
	p := tr.programs[tr.culprit]
	if len(p) == 0 {
		tr.fault = sound
		return tr
	}
	tr.at = rapid.IntRange(0, len(p)-1).Draw(t, "at")
	switch tr.fault {
	case differs:
		p[tr.at].call = lifecycle.CallBroadcast
	case swaps:
		if tr.at+1 == len(p) || p[tr.at].comm == p[tr.at+1].comm {
			tr.fault = sound
			break
		}
		p[tr.at], p[tr.at+1] = p[tr.at+1], p[tr.at]
	default: // the program is as it should be
	}
	return tr
}

// run plays the job and returns what its ranks would say of themselves ten seconds after the last of them moved, and
// whether one of those that can speak waits.
func (tr *trial) run() (notes []verdict.Note, blocked bool) {
	const tick = time.Millisecond
	type rank struct {
		pc    int // calls made
		since int // tick of the last one's begin or end
	}
	ranks := make([]rank, len(tr.programs))
	done := make([][]int, len(tr.programs)) // by rank and communicator: calls ended
	for r := range done {
		done[r] = make([]int, len(tr.comms))
	}
	halted := func(r int) bool {
		return r == tr.culprit && ranks[r].pc == tr.at && (tr.fault == leaves || tr.fault == dies || tr.fault == stops)
	}
	current := func(r int) (step, bool) {
		if halted(r) || ranks[r].pc == len(tr.programs[r]) {
			return step{}, false
		}
		return tr.programs[r][ranks[r].pc], true
	}
	now := 1
	for moved := true; moved; now++ {
		moved = false
		for c, members := range tr.comms {
			together := true
			for _, r := range members {
				s, in := current(r)
				first, _ := current(members[0])
				together = together && in && s.comm == c && s.call == first.call
			}
			if together {
				for _, r := range members {
					ranks[r].pc, ranks[r].since = ranks[r].pc+1, now
					done[r][c]++
				}
				moved = true
			}
		}
	}
	end := 10*time.Second + time.Duration(now)*tick
	for r := range ranks {
		n := verdict.Note{Member: fmt.Sprint("p", r), Host: "h", PID: 100 + r, Rank: r, JobSize: len(ranks)}
		s, in := current(r)
		for c, members := range tr.comms {
			i := slices.Index(members, r)
			if i < 0 {
				continue
			}
			slot := verdict.Slot{
				Comm: lifecycle.CommID{byte(c + 1)}, Name: fmt.Sprint("c", c), Rank: i, Size: len(members), Root: 1,
				Job: -1, Wait: -1, Seq: uint64(done[r][c]), Age: end - time.Duration(ranks[r].since)*tick,
			}
			if done[r][c] > 0 {
				slot.Op = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}
			}
			if in && s.comm == c {
				slot.Seq, slot.InFlight, slot.Stalled = slot.Seq+1, 1, true
				slot.Op = tape.Signature{Call: s.call, Peer: -1}
			}
			n.Slots = append(n.Slots, slot)
		}
		if r == tr.culprit {
			switch tr.fault {
			case dies:
				n.Fate = verdict.Dead
			case stops:
				n.Fate = verdict.Stopped
			default:
			}
		}
		blocked = blocked || in && n.Fate == verdict.Alive
		notes = append(notes, n)
	}
	return notes, blocked
}

// TestOracle breaks jobs in a way that is known, runs them until nothing moves, and expects the verdict that names what
// was done.
func TestOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrial(t)
		notes, blocked := tr.run()
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 0))
		shuffle.Shuffle(len(notes), func(i, j int) { notes[i], notes[j] = notes[j], notes[i] })
		before, _ := json.Marshal(notes)
		verdicts, _ := verdict.Diagnose(notes)
		if after, _ := json.Marshal(notes); string(after) != string(before) {
			t.Fatal("Diagnose changed its notes")
		}
		shuffle.Shuffle(len(notes), func(i, j int) { notes[i], notes[j] = notes[j], notes[i] })
		if again, _ := verdict.Diagnose(notes); !reflect.DeepEqual(verdicts, again) {
			t.Fatalf("the order of notes matters:\n%v\n%v", verdicts, again)
		}

		want := map[fault]verdict.Reason{
			leaves: verdict.NotEntered, dies: verdict.RankDead, stops: verdict.RankStopped, differs: verdict.Mismatch,
			swaps: verdict.Deadlock,
		}[tr.fault]
		silent := tr.fault == sound || !blocked && tr.fault != dies && tr.fault != stops
		if silent {
			if len(verdicts) > 0 {
				t.Fatalf("a healthy job: %v", verdicts)
			}
			return
		}
		if len(verdicts) != 1 {
			t.Fatalf("%d verdicts, want one: %v", len(verdicts), verdicts)
		}
		v := verdicts[0]
		if v.Reason != want {
			t.Fatalf("verdict %v, want %s", &v, want)
		}
		guilty := slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool { return r.Job == tr.culprit })
		tie := (v.Reason == verdict.Mismatch || v.Reason == verdict.Deadlock) && len(v.Culprits) == 0
		if !guilty && !tie {
			t.Fatalf("verdict %v of %v, want rank %d", &v, v.Culprits, tr.culprit)
		}
		if v.Reason != verdict.Deadlock && v.Reason != verdict.Mismatch && len(v.Culprits) != 1 {
			t.Fatalf("verdict %v names %v, want rank %d alone", &v, v.Culprits, tr.culprit)
		}
		for _, n := range notes { // everybody who hangs is accounted for
			hangs := slices.ContainsFunc(n.Slots, func(s verdict.Slot) bool { return s.InFlight > 0 }) &&
				n.Fate == verdict.Alive
			named := slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool { return w.Rank.Job == n.Rank }) ||
				slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool { return r.Job == n.Rank })
			if hangs && !named {
				t.Fatalf("rank %d hangs, and %v doesn't tell of it", n.Rank, &v)
			}
		}
	})
}

// FuzzDiagnose diagnoses notes that no process would write.
func FuzzDiagnose(f *testing.F) {
	for seed := range 8 {
		tr := rapid.Custom(drawTrial).Example(seed)
		notes, _ := tr.run()
		text, err := json.Marshal(notes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`[{"slots":[{"size":1048576,"rank":1048575,"in_flight":1,"stalled":true,"op":{"Call":16}}]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var notes []verdict.Note
		if err := json.Unmarshal(text, &notes); err != nil {
			t.Skip()
		}
		verdicts, _ := verdict.Diagnose(notes)
		for _, v := range verdicts {
			if v.Text.String() == "" || v.Reason == verdict.ReasonNone || v.ID == "" {
				t.Errorf("an empty verdict: %+v", v)
			}
		}
	})
}

// BenchmarkDiagnose is the verdict on one rank of 4,096, in communicators of 8, 64 and all.
func BenchmarkDiagnose(b *testing.B) {
	const ranks = 4096
	notes := make([]verdict.Note, ranks)
	for r := range notes {
		notes[r] = verdict.Note{Member: fmt.Sprint("p", r), Host: fmt.Sprint("h", r/8), Rank: r, JobSize: ranks}
		for level, size := range []int{8, 64, ranks} {
			s := verdict.Slot{
				Comm: lifecycle.CommID{byte(level), byte(r / size), byte(r / size >> 8)},
				Name: fmt.Sprint("level", level),
				Rank: r % size, Size: size, Root: 1, Job: -1, Wait: -1, Seq: 7,
				Op: tape.Signature{Call: lifecycle.CallAllReduce}, Age: 12 * time.Second,
			}
			if level == 2 && r != 1234 {
				s.Seq, s.InFlight, s.Age, s.Stalled = 8, 1, 6*time.Second, true
			}
			notes[r].Slots = append(notes[r].Slots, s)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if v, _ := verdict.Diagnose(notes); len(v) != 1 || v[0].Culprits[0].Job != 1234 {
			b.Fatalf("%v", v)
		}
	}
}
