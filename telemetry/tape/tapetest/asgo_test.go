package tapetest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// uncount drops the counts of messages: Go's writer is told them, C's counts them itself.
func uncount(s *tape.Slot) { s.Counted, s.Messages = false, tape.Messages{} }

// uncounted returns an event without such counts.
func uncounted(ev tape.Event) tape.Event {
	ev.Life.Messages = nil
	return ev
}

// testAsGo plays scripts of valid steps in random order, and compares what readers get with what they get from Go's
// writer.
func testAsGo(t *testing.T, play player) {
	for seed := range uint64(8) {
		script := anyScript(rand.New(rand.NewPCG(seed, 14)))
		path, err := playGo(t.TempDir(), strings.NewReader(script))
		if err != nil {
			t.Fatal(err)
		}
		want, got := readAll(t, path), readAll(t, play(t, strings.NewReader(script)))
		for _, slots := range [][]tape.Slot{got.Slots, want.Slots} {
			for i := range slots {
				uncount(&slots[i])
			}
		}
		compareLists(t, fmt.Sprintf("seed %d: event", seed), got.Events, want.Events)
		compareLists(t, fmt.Sprintf("seed %d: followed event", seed), got.Followed, want.Followed)
		compareLists(t, fmt.Sprintf("seed %d: slot", seed), got.Slots, want.Slots)
		compareLists(t, fmt.Sprintf("seed %d: tally", seed), got.Tallies, want.Tallies)
		compare(t, fmt.Sprintf("seed %d: missed", seed), got.Missed, want.Missed)
	}
}

// compareLists fails at the first difference of two lists.
func compareLists[T any](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			compare(t, fmt.Sprintf("%s %d", what, i), got[i], want[i])
			return
		}
	}
	compare(t, "the number behind "+what, len(got), len(want))
}

// all is what readers get from a tape, except times and what depends on them.
type all struct {
	Events, Followed []tape.Event
	Slots            []tape.Slot
	Tallies          []tape.Tally
	Missed           tape.Missed
}

func readAll(t *testing.T, path string) (a all) {
	t.Helper()
	r, err := tape.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, ev := range events(t, r) {
		a.Events = append(a.Events, uncounted(timeless(ev)))
	}
	a.Missed = r.Missed()
	events, err := followed(t, path)
	if !errors.Is(err, tape.ErrClosed) {
		t.Fatal(err)
	}
	for _, ev := range events {
		a.Followed = append(a.Followed, uncounted(timeless(ev)))
	}
	if a.Slots, err = r.AppendSlots(nil); err != nil {
		t.Fatal(err)
	}
	for i := range a.Slots {
		s := &a.Slots[i]
		s.OpStart, s.LastEnd, s.WaitSince = min(s.OpStart, 1), min(s.LastEnd, 1), min(s.WaitSince, 1)
	}
	tallies, err := r.AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[tape.Tally]int) // of names and classes: the place among those in a.Tallies
	for _, tally := range tallies {
		var bandwidths uint64
		for _, n := range tally.Bandwidths {
			bandwidths += n
		}
		kind := tape.Tally{Name: tally.Name, Engine: tally.Engine, Call: tally.Call, SizeClass: tally.SizeClass}
		if _, known := kinds[kind]; !known {
			kinds[kind] = len(a.Tallies)
			a.Tallies = append(a.Tallies, kind)
		}
		to := &a.Tallies[kinds[kind]] // the writer chooses which one a communicator takes over
		to.Index++
		to.Bytes += tally.Bytes
		to.Ordinary += tally.Ordinary
		to.Durations[0] += tally.Count()
		to.Bandwidths[0] += bandwidths
	}
	return a
}

// timeless returns an event with each time that is set replaced by 1.
func timeless(ev tape.Event) tape.Event {
	ev.Life.Time, ev.Op.Time, ev.Op.Start = min(ev.Life.Time, 1), min(ev.Op.Time, 1), min(ev.Op.Start, 1)
	return ev
}

// anyScript has some thousand steps.
func anyScript(random *rand.Rand) string {
	type comm struct {
		launched uint64
		flying   []uint64
	}
	var lines []string
	step := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	comms := make(map[int]*comm)
	var names []int
	begin := func() {
		n, from := len(comms)+1, 0
		if len(names) > 0 && random.IntN(2) == 0 {
			from = names[random.IntN(len(names))]
		}
		step("comm %d %032x %032x c%d %d %d %d host %d", n, n, from, n%4, random.IntN(3), 1+random.IntN(5),
			random.IntN(2), from)
		comms[n] = &comm{}
		names = append(names, n)
	}
	end := func(n int) {
		c := comms[n]
		i := random.IntN(len(c.flying))
		if random.IntN(2) == 0 {
			i = 0
		}
		code := lifecycle.CodeOK
		if random.IntN(20) == 0 {
			code = lifecycle.CodeTimeout
		}
		step("end %d %d %d", n, c.flying[i], code)
		c.flying = append(c.flying[:i], c.flying[i+1:]...)
	}
	calls := []lifecycle.Call{
		lifecycle.CallAllReduce, lifecycle.CallAllReduce, lifecycle.CallGather, lifecycle.CallSend, lifecycle.CallSplit,
		lifecycle.CallBarrier, lifecycle.CallGroupEnd,
	}
	mostly := 1 + random.IntN(3) // operations in flight
	for range 3000 {
		if len(names) == 0 {
			begin()
		}
		n := names[random.IntN(len(names))]
		c := comms[n]
		switch what := random.IntN(200); {
		case what == 0 && len(comms) < 15:
			begin()
		case what == 1:
			step("describe %d d%d 2 host", n, n%4)
		case what == 2:
			step("state %d %d", n, 1+random.IntN(10))
		case what == 3:
			step("life %d %d %d 4 %d 0 0 2 -1 0 0 0 %s act of %d", n, 1+random.IntN(9), random.IntN(20),
				random.IntN(100), none, n)
		case what == 4 && len(names) > 1:
			step("close %d", n)
			names = slices.DeleteFunc(names, func(m int) bool { return m == n })
		case what < 10:
			step("phase %d %d", n, random.IntN(8))
		case what < 15:
			step("wait %d %d", n, random.IntN(4)-1)
		case what == 15:
			step("end %d %d 0", n, c.launched+3) // not in flight
		case what == 16: // more than a writer remembers
			for range 70 {
				c.launched++
				c.flying = append(c.flying, c.launched)
				step("start %d 0 16 7 0 -1 8 1", n)
			}
		case len(c.flying) >= mostly:
			end(n)
		default:
			c.launched++
			c.flying = append(c.flying, c.launched)
			number := 0
			if random.IntN(50) == 0 {
				number = random.IntN(1 << 20)
			}
			call, bytes := calls[0], uint64(8)
			if random.IntN(10) == 0 {
				call, bytes = calls[random.IntN(len(calls))], uint64(1)<<random.IntN(40)
			}
			step("start %d %d %d 7 0 -1 %d 1", n, number, call, bytes)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
