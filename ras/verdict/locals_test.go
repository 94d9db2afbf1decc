package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestLocals: each process has one rank of world, and three of a communicator "local" of its own. The goroutine of
// local rank 0 also makes the calls of world. If rank 1 of one of them hangs, all goroutines that make world's calls
// wait there, and so do not come to the next call of their "local": that one rank is the cause.
func TestLocals(t *testing.T) {
	op := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64}
	slot := func(name string, comm byte, rank, size int, root uint32) Slot {
		s := Slot{
			Name: name, Rank: rank, Size: size, Root: root, Job: -1, State: lifecycle.StateReady, Wait: -1, Op: op,
		}
		s.Comm[0] = comm
		return s
	}
	in := func(s Slot, seq uint64, age time.Duration) Slot {
		s.Seq, s.Begun, s.Done, s.InFlight, s.Stalled, s.Age = seq, seq, seq-1, 1, true, age
		return s
	}
	after := func(s Slot, seq uint64, age time.Duration) Slot {
		s.Seq, s.Begun, s.Done, s.Age, s.Took = seq, seq, seq, age, time.Millisecond
		return s
	}
	const size, hangs = 4, 2
	job := func() (notes []Note) {
		for p := range size {
			world, local := slot("world", 1, p, size, 1), make([]Slot, 3)
			world.Job = p
			for r := range local {
				local[r] = slot("local", byte(10+p), r, 3, uint32(r+1)) // rank 0 has the root of world
			}
			local[0].Root, local[2].Root = 3, 1
			if p == hangs {
				world = after(world, 8, 5030*time.Millisecond)
				local[0], local[2] = in(local[0], 9, 5*time.Second), in(local[2], 9, 5*time.Second)
				local[1] = after(local[1], 8, 5030*time.Millisecond)
			} else {
				world = in(world, 9, 5*time.Second)
				local[0] = after(local[0], 9, 5*time.Second)
				local[1], local[2] = in(local[1], 10, 4980*time.Millisecond), in(local[2], 10, 4980*time.Millisecond)
			}
			notes = append(notes, Note{
				Member: fmt.Sprint("p", p), Host: "a", PID: p + 1, Rank: p, JobSize: size, Slots: append(local, world),
			})
		}
		return notes
	}
	const want = `rank 1 of "local" (a, pid 3) has not entered all_reduce 9 on "local"`
	verdicts, _ := Diagnose(job())
	if len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].Text.String(), want) || verdicts[0].Confidence != Certain {
		t.Errorf("got %v, want %s", verdicts, want)
	}

	// If nothing is known of the process with the cause, the others are suspects at most.
	for _, v := range firstOf(Diagnose(append(job()[:hangs], job()[hangs+1:]...))) {
		if v.Urgent() {
			t.Errorf("without the note of process %d: %v", hangs, v)
		}
	}
}

func firstOf(verdicts []Verdict, _ bool) []Verdict { return verdicts }

// TestUnknownOwners: each of two processes has two ranks of world, and two of communicators "dp" between the processes,
// of which it isn't known whose they are. One rank of a dp doesn't come to its call. The others, which wait in dp or in
// world, are suspects at most.
func TestUnknownOwners(t *testing.T) {
	op := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 64}
	slot := func(comm byte, name string, rank, size, job int, root uint32) Slot {
		s := Slot{
			Name: name, Rank: rank, Size: size, Root: root, Job: job, State: lifecycle.StateReady, Wait: -1, Op: op,
			Seq: 8, Begun: 8, Done: 8, Age: 5100 * time.Millisecond, Took: time.Millisecond,
		}
		s.Comm[0] = comm
		return s
	}
	in := func(s *Slot) {
		s.Seq, s.Begun, s.InFlight, s.Stalled, s.Age = 9, 9, 1, true, 5*time.Second
	}
	var notes []Note
	for p := range 2 {
		n := Note{Member: fmt.Sprint("p", p), Host: "a", PID: p + 1, Rank: -1, JobSize: 2}
		for r := range 2 {
			n.Slots = append(n.Slots, slot(1, "world", 2*p+r, 4, 2*p+r, uint32(r+1)),
				slot(byte(2+r), "dp", p, 2, -1, uint32(r+3)))
		}
		notes = append(notes, n)
	}
	in(&notes[0].Slots[0]) // rank 0 of world, which left out its dp
	in(&notes[0].Slots[2])
	in(&notes[1].Slots[1]) // the dp that rank 0 left out
	for _, v := range firstOf(Diagnose(notes)) {
		if v.Urgent() {
			t.Errorf("%v", &v)
		}
	}
	notes[0].Fate, notes[0].FateAge, notes[0].Cause = Dead, 4*time.Second, "it was ended by SIGKILL"
	const want = "ranks 0 and 1 (a, pid 1) ended 4s ago"
	verdicts, _ := Diagnose(notes)
	if len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].Text.String(), want) {
		t.Errorf("got %v, want %s", verdicts, want)
	}
}
