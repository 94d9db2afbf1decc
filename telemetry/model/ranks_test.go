package model_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestHabit: the history recognises a loop of two calls, the odd call in it, and the next call.
func TestHabit(t *testing.T) {
	p := newProcess(model.Limits{})
	at := int64(0)
	run := func(sig tape.Signature) model.Step {
		at += 10
		return p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: (at + 5) * ms, Start: at * ms, Stage: tape.StageEnd, Seq: uint64(at), Signature: sig,
		}})
	}
	barrier := tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}
	var s model.Step
	for range 10 {
		run(allReduce)
		s = run(barrier)
	}
	habit := s.Comm.Of.History.Habit()
	if len(habit.Odd) != 0 || habit.Next == nil || habit.Next.Usual.Signature != allReduce || len(habit.Trail) != 20 {
		t.Errorf("after ten steps: %+v", habit)
	}
	inFlight := model.Call{Generation: 1, Signature: barrier, Seq: 999, Start: (at + 10) * ms}
	habit = s.Comm.Of.History.Habit(inFlight)
	if len(habit.Odd) != 1 || habit.Odd[0].Did.Seq != 999 || habit.Odd[0].Usual.Signature != allReduce {
		t.Errorf("a barrier in place of an all-reduce: %+v", habit.Odd)
	}
}

// TestJoinedAsItGrew: the number of a rank in a communicator that it joined as that grew is not its number in the job.
func TestJoinedAsItGrew(t *testing.T) {
	p := newProcess(model.Limits{})
	init := func(generation uint32, call lifecycle.Call, rank, size int) *model.Rank {
		return p.Apply(&tape.Event{
			IsLife: true, Generation: generation, Root: generation,
			Comm: tape.CommInfo{ID: lifecycle.CommID{byte(generation)}, Rank: rank, Size: size},
			Life: tape.LifeRecord{
				Time: ms, Start: ms, Act: tape.ActInit, Call: call, Stage: tape.StageStart, Peer: -1,
			},
		}).Comm.Of
	}
	init(1, lifecycle.CallInitRank, 3, 4)
	if r := init(2, lifecycle.CallGrow, 4, 5); r.Number != 3 || r.Size != 4 {
		t.Errorf("rank 3 of 4 became rank %d of %d", r.Number, r.Size)
	}
}

// TestTogether: the history knows which calls of a trail were made in a group: before the calls ahead of them returned.
func TestTogether(t *testing.T) {
	p := newProcess(model.Limits{})
	var s model.Step
	for i, times := range [][2]int64{{10, 12}, {12, 14}, {20, 30}, {22, 30}, {24, 30}, {30, 31}} {
		s = p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: times[1], Start: times[0], Stage: tape.StageEnd, Seq: uint64(i + 1), Signature: allReduce,
		}})
	}
	var together []uint64
	for _, c := range s.Comm.Of.History.Habit().Trail {
		if c.Together {
			together = append(together, c.Seq)
		}
	}
	if want := []uint64{4, 5}; !slices.Equal(together, want) {
		t.Errorf("together with those before them are %v, want %v", together, want)
	}
}

// TestAside: a program's steps, and a lane with calls of one kind, don't wait for a call on another communicator that
// lasts for two steps. It isn't known whether those of the lane's communicators that had no call at that time do.
func TestAside(t *testing.T) {
	for steps, aside := range map[int64]bool{1: false, 2: true} {
		p := newProcess(model.Limits{})
		run := func(generation uint32, call lifecycle.Call, start, end int64) model.Step {
			comm := world
			comm.ID, comm.Parent = lifecycle.CommID{byte(generation)}, world.ID
			return p.Apply(&tape.Event{Comm: comm, Generation: generation, Root: 1, Op: tape.OpRecord{
				Time: end, Start: start, Stage: tape.StageEnd, Seq: uint64(start),
				Signature: tape.Signature{Call: call},
			}})
		}
		run(4, lifecycle.CallBroadcast, 0, 1)
		for at := int64(0); at < 200; at += 20 {
			run(1, lifecycle.CallAllReduce, at+1, at+5)
			run(1, lifecycle.CallBarrier, at+11, at+15)
			run(3, lifecycle.CallAllGather, at+12, at+18)
		}
		s := run(2, lifecycle.CallAllReduce, 100, 100+20*steps)
		habit := s.Comm.Of.History.Habit()
		want := map[uint32][]uint32{}
		if aside {
			want[2] = []uint32{1, 3}
		}
		if len(habit.Lanes) != 3 || !slices.Contains(habit.Lanes[0], 4) ||
			!maps.EqualFunc(habit.Aside, want, slices.Equal) {
			t.Errorf("a call that lasts for %d steps: lanes %v, aside %v", steps, habit.Lanes, habit.Aside)
		}
	}
}

func TestRanks(t *testing.T) {
	p := newProcess(model.Limits{})
	child := world
	child.ID, child.Parent, child.Rank, child.Size = lifecycle.CommID{2}, world.ID, 0, 2
	p.act(10, tape.StageStart, tape.ActInit, 0, 0)
	p.Apply(&tape.Event{
		Comm: child, Generation: 2, Root: 1,
		Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce},
	})
	n := 0
	for _, r := range p.Ranks() {
		if n++; r.Root != 1 || r.Number != 1 || r.Size != 4 {
			t.Errorf("rank %+v", r)
		}
	}
	if n != 1 || p.Known(2).Of != p.Known(1).Of {
		t.Errorf("%d ranks, of two communicators of one", n)
	}
}

// Communicators without a parent belong to the process's only rank. If a process has two ranks of one communicator,
// they are different ranks of the job, and later communicators belong to the rank with the same number.
func TestRanksOfCommunicatorsWithoutAParent(t *testing.T) {
	p := newProcess(model.Limits{})
	apply := func(generation uint32, id byte, rank, size int) *model.Rank {
		info := tape.CommInfo{ID: lifecycle.CommID{id}, Name: "c", Rank: rank, Size: size}
		return p.Apply(&tape.Event{
			Comm: info, Generation: generation,
			Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce},
		}).Comm.Of
	}
	first := apply(1, 1, 2, 8)
	if again := apply(2, 2, 0, 2); again != first || first.Number != 2 || first.Size != 8 {
		t.Errorf("a second communicator is rank %+v's, the first %+v's", again, first)
	}
	second := apply(3, 1, 3, 8)
	if second == first || second.Number != 3 {
		t.Errorf("both parts of one communicator are rank %+v's", second)
	}
	if a, b := apply(4, 3, 3, 8), apply(5, 3, 2, 8); a != second || b != first {
		t.Errorf("numbers 3 and 2 are ranks %+v and %+v", a, b)
	}
	third := apply(6, 4, 0, 4)
	if third == first || third == second || len(p.Ranks()) != 3 {
		t.Errorf("a number that none has is rank %+v's, of %d", third, len(p.Ranks()))
	}
	for r, want := range map[*model.Rank]int{first: 2, second: 3, third: -1} {
		if got := p.JobRank(r, 4); got != want {
			t.Errorf("rank %d of %d is number %d of the job, want %d", r.Number, r.Size, got, want)
		}
	}
	if got := p.JobRank(first, 9); got != -1 {
		t.Errorf("a rank of 8 is number %d of a job of 9", got)
	}
}

// TestLaunchedLater: a call whose launch has ended and that is still in flight, with a later start, as on a
// non-blocking communicator, is not a second call.
func TestLaunchedLater(t *testing.T) {
	p := newProcess(model.Limits{})
	at := int64(0)
	run := func(call lifecycle.Call) (s model.Step, c model.Call) {
		at += 10
		c = model.Call{
			Generation: 1, Signature: tape.Signature{Call: call, Peer: -1}, Seq: uint64(at), Start: (at + 1) * ms,
		}
		return p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Time: (at + 1) * ms, Start: at * ms, Stage: tape.StageEnd, Seq: c.Seq, Signature: c.Signature,
		}}), c
	}
	for range 10 {
		run(lifecycle.CallReduceScatter)
		run(lifecycle.CallAllGather)
	}
	s, launched := run(lifecycle.CallReduceScatter)
	if habit := s.Comm.Of.History.Habit(launched); len(habit.Odd) != 0 || len(habit.Trail) != 21 {
		t.Errorf("a call that is in flight since its launch: %+v", habit)
	}
}

// TestInPlace: a new call is either in the place of a usual one, and then it is odd and the call after it is not, or
// additional. The step goes on after both.
func TestInPlace(t *testing.T) {
	calls := map[rune]lifecycle.Call{
		'a': lifecycle.CallAllReduce, 'b': lifecycle.CallReduceScatter, 'c': lifecycle.CallAllGather,
		'd': lifecycle.CallReduce,
	}
	signature := func(letter rune) tape.Signature { // a capital is the small letter's call, with another size
		if small := unicode.ToLower(letter); small != letter {
			return tape.Signature{Call: calls[small], Bytes: 8}
		}
		return tape.Signature{Call: calls[letter], Bytes: 16}
	}
	for _, c := range []struct {
		steps      int
		then, want string
	}{
		{3, "aBc", "B for b"},
		{3, "adc", "d for b"},
		{8, "ABc", "B for b, A for a"},
		{3, "aB", ""},
		{5, "aB", "B for b"},
		{8, "AB", "B for b, A for a"},
		{3, "aBbc", ""},
		{5, "aBbc", "B for b"},
		{3, "aBcaa", "a for b, B for b"},
	} {
		p := newProcess(model.Limits{})
		var s model.Step
		letters := map[tape.Signature]string{}
		for i, letter := range strings.Repeat("abc", c.steps) + c.then {
			at := int64(i+1) * 10
			letters[signature(letter)] = string(letter)
			s = p.Apply(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
				Time: (at + 5) * ms, Start: at * ms, Stage: tape.StageEnd, Seq: uint64(i + 1),
				Signature: signature(letter),
			}})
		}
		var odd []string
		for _, o := range s.Comm.Of.History.Habit().Odd {
			odd = append(odd, letters[o.Did.Signature]+" for "+letters[o.Usual.Signature])
		}
		if got := strings.Join(odd, ", "); got != c.want {
			t.Errorf("after %d steps and %s, odd is %q, want %q", c.steps, c.then, got, c.want)
		}
	}
}

// TestCallsOfAGroup: the calls of a group overlap, in any order, but its communicators share a lane. A rank that leaves
// one of these calls out makes another call in its place.
func TestCallsOfAGroup(t *testing.T) {
	for _, left := range []bool{false, true} {
		p := newProcess(model.Limits{})
		comm := func(generation uint32) tape.CommInfo {
			c := world
			c.ID, c.Parent = lifecycle.CommID{byte(generation)}, world.ID
			return c
		}
		act := func(generation uint32, stage tape.Stage, start, at int64) {
			p.Apply(&tape.Event{
				IsLife: true, Comm: comm(generation), Generation: generation, Root: 1, Life: tape.LifeRecord{
					Time: at, Start: start, Act: tape.ActGroup, Call: lifecycle.CallGroupEnd, Stage: stage,
					Seq: uint64(start), Peer: -1,
				},
			})
		}
		run := func(generation uint32, start, end int64) model.Step {
			return p.Apply(&tape.Event{Comm: comm(generation), Generation: generation, Root: 1, Op: tape.OpRecord{
				Time: end, Start: start, Stage: tape.StageEnd, Seq: uint64(start), Signature: allReduce,
			}})
		}
		var s model.Step
		for step := range int64(8) {
			at := 100*step + 1
			s = run(1, at, at+10)
			parts := []uint32{2, 3}
			if left && step == 7 {
				parts = parts[1:]
			}
			for _, g := range parts {
				act(g, tape.StageStart, at+20, at+21)
			}
			for i, g := range parts { // which begins first alternates
				run(g, at+22+(int64(i)+step)%2, at+30)
				act(g, tape.StageEnd, at+20, at+31)
			}
			s = run(4, at+40, at+50)
		}
		habit := s.Comm.Of.History.Habit()
		if len(habit.Lanes) != 1 || left != (len(habit.Odd) == 1) || left && habit.Odd[0].Usual.Generation != 2 {
			t.Errorf("with a call left out %t: lanes %v, odd %+v", left, habit.Lanes, habit.Odd)
		}
	}
}

// TestHabitDuringAHang: however often a heartbeat is called while the training waits in an odd call, the call is odd,
// and the trail has the calls before it.
func TestHabitDuringAHang(t *testing.T) {
	p := newProcess(model.Limits{})
	at, seq := int64(0), uint64(0)
	run := func(generation uint32, call lifecycle.Call, start int64) model.Step {
		seq++
		return p.Apply(&tape.Event{Comm: world, Generation: generation, Root: 1, Op: tape.OpRecord{
			Time: start + 5, Start: start, Stage: tape.StageEnd, Seq: seq, Signature: tape.Signature{Call: call},
		}})
	}
	var s model.Step
	for ; at < 800; at += 100 {
		run(1, lifecycle.CallAllReduce, at+1)
		run(2, lifecycle.CallBroadcast, at+3)
		run(1, lifecycle.CallBarrier, at+11)
	}
	waits := model.Call{
		Generation: 1, Signature: tape.Signature{Call: lifecycle.CallBarrier}, Seq: seq + 1, Start: at + 1,
	}
	for range 5000 {
		at += 10
		s = run(2, lifecycle.CallBroadcast, at)
	}
	habit := s.Comm.Of.History.Habit(waits)
	training := 0
	for _, c := range habit.Trail {
		if c.Generation == 1 {
			training++
		}
	}
	if len(habit.Odd) != 1 || habit.Odd[0].Did.Seq != waits.Seq || training != 17 || len(habit.Trail) != 128 {
		t.Errorf("odd %+v; of %d calls of the trail, %d are the training's", habit.Odd, len(habit.Trail), training)
	}
}

// TestCommunicatorOfTheProcess: a communicator of processes, by which their ranks are told where to meet, is of none of
// the ranks.
func TestCommunicatorOfTheProcess(t *testing.T) {
	p := newProcess(model.Limits{})
	apply := func(generation uint32, id byte, rank, size int) *model.Rank {
		return p.Apply(&tape.Event{
			Comm: tape.CommInfo{ID: lifecycle.CommID{id}, Rank: rank, Size: size}, Generation: generation,
			Root: generation, Op: tape.OpRecord{Stage: tape.StageEnd, Signature: allReduce},
		}).Comm.Of
	}
	apply(1, 1, 2, 4)
	fifth := apply(2, 2, 5, 8)
	fourth := apply(3, 2, 4, 8)
	of := p.Known(1).Of
	if of == fourth || of == fifth || p.JobRank(of, 8) != -1 || p.JobRank(fifth, 8) != 5 || fifth.Root != 2 {
		t.Errorf("the communicator of processes is rank %+v's, those of ranks are %+v's and %+v's", of, fourth, fifth)
	}
	if again := apply(1, 1, 2, 4); again != of {
		t.Errorf("its next operation is rank %+v's", again)
	}
}
