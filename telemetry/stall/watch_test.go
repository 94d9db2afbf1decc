package stall_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const ms = int64(time.Millisecond)

var (
	world     = tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	allReduce = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
)

// watch is a Watch with its process.
type watch struct {
	*stall.Watch
	process *model.Process
}

func newWatch(limits model.Limits) *watch {
	p := model.New(limits)
	return &watch{stall.New(p), p}
}

func (w *watch) observe(ev *tape.Event) { w.process.Apply(ev) }

// check shows the model the in-flight table, and asks.
func (w *watch) check(now int64, slots ...tape.Slot) []stall.Report {
	w.process.Look(slots, nil)
	return w.Check(now)
}

// busy is a communicator with an operation in flight.
func busy(generation uint32, seq uint64, start int64) tape.Slot {
	return tape.Slot{
		CommInfo: world, Generation: generation, Launched: seq, Completed: seq - 1, Seq: seq, Op: allReduce,
		OpStart: start, Phase: tape.PhaseTransfer, Wait: 3, WaitSince: start + 1,
	}
}

// idle is a communicator whose last operation has ended, at whatever time.
func idle(generation uint32, seq uint64) tape.Slot {
	s := busy(generation, seq, math.MaxInt64)
	s.Completed = s.Launched
	return s
}

// line is a report in one sentence.
func line(r *stall.Report) string {
	what := r.Kind()
	if r.Act == tape.ActNone {
		what += fmt.Sprintf(" %d", r.Seq)
	}
	text := fmt.Sprintf("%s of %s rank %d of %d %s: %s",
		what, r.Comm.Name, r.Comm.Rank, r.Comm.Size, r.Stage, words.Round(r.Age()))
	if r.Phase != tape.PhaseNone {
		text += " in " + r.Phase.String()
	}
	if r.Wait >= 0 {
		text += fmt.Sprintf(", waiting for rank %d", r.Wait)
	}
	return text
}

// told formats the reports of a Check, one a line.
func told(reports []stall.Report) []string {
	var lines []string
	for i := range reports {
		lines = append(lines, line(&reports[i]))
	}
	slices.Sort(lines)
	return lines
}

func expect(t *testing.T, when string, got []stall.Report, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, told(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestOperation follows one operation that hangs for minutes and goes on.
func TestOperation(t *testing.T) {
	w := newWatch(model.Limits{})
	slot := busy(1, 7, 1000*ms)
	sentence := func(stage, age string) string {
		return "all_reduce 7 of world rank 1 of 4 " + stage + ": " + age + " in transfer, waiting for rank 3"
	}
	var at []int64
	for now := 1000 * ms; now <= 200_000*ms; now += 250 * ms {
		for _, r := range w.check(now, slot) {
			at = append(at, r.Age().Milliseconds())
			switch {
			case len(at) == 1:
				expect(t, "first", []stall.Report{r}, sentence("slow", "1s"))
			case len(at) == 2:
				expect(t, "second", []stall.Report{r}, sentence("stalled", "5s"))
			case r.Count != len(at)-1 || r.Stage != stall.Stalled || r.Threshold != 5*time.Second ||
				r.Comm.Generation != 1 ||
				r.WaitSince != 1000*ms+1:
				t.Errorf("report %d is %+v", len(at), r)
			}
		}
	}
	// At the thresholds, then after 5 s, 10 s, 20 s, 40 s, and from then on every minute.
	if diff := cmp.Diff([]int64{1000, 5000, 10_000, 20_000, 40_000, 80_000, 140_000}, at); diff != "" {
		t.Errorf("ages of the reports in milliseconds (-want +got):\n%s", diff)
	}
	cleared := w.check(200_250*ms, idle(1, 7))
	expect(t, "it ended", cleared, sentence("cleared", "3m19s"))
	if cleared[0].Count != 6 {
		t.Errorf("it was told %d times, says the end; it was 6", cleared[0].Count)
	}
	expect(t, "afterwards", w.check(201_000*ms, idle(1, 7)))
}

// TestSlowOnly never stalls.
func TestSlowOnly(t *testing.T) {
	w := newWatch(model.Limits{})
	expect(t, "at 1 s", w.check(1000*ms, busy(1, 1, 0)),
		"all_reduce 1 of world rank 1 of 4 slow: 1s in transfer, waiting for rank 3")
	got := w.check(2000*ms, busy(1, 2, 1500*ms))
	expect(t, "the next is in flight", got,
		"all_reduce 1 of world rank 1 of 4 cleared: 2s in transfer, waiting for rank 3")
	if got[0].Count != 0 {
		t.Errorf("Count is %d: it never stalled", got[0].Count)
	}
}

// TestFromOneToTheNext has two hanging operations of one communicator, with no Check between them.
func TestFromOneToTheNext(t *testing.T) {
	w := newWatch(model.Limits{})
	w.check(6000*ms, busy(1, 1, 0))
	expect(t, "the next hangs too", w.check(12_000*ms, busy(1, 2, 6500*ms)),
		"all_reduce 1 of world rank 1 of 4 cleared: 12s in transfer, waiting for rank 3",
		"all_reduce 2 of world rank 1 of 4 slow: 5.5s in transfer, waiting for rank 3",
		"all_reduce 2 of world rank 1 of 4 stalled: 5.5s in transfer, waiting for rank 3")
	expect(t, "the communicator is gone from one table", w.check(12_500*ms))
	expect(t, "and from the next", w.check(13_000*ms),
		"all_reduce 2 of world rank 1 of 4 cleared: 6.5s in transfer, waiting for rank 3")
}

// ended is an operation that ended well.
func ended(sig tape.Signature, d time.Duration) *tape.Event {
	return &tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
		Time: 1 + int64(d), Start: 1, Stage: tape.StageEnd, Signature: sig, Wait: -1,
	}}
}

// TestNormal has operations that normally take long: the thresholds follow, but only for their size and kind.
func TestNormal(t *testing.T) {
	large := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 30}
	w := newWatch(model.Limits{})
	for range 50 {
		w.observe(ended(large, 2*time.Second))
	}
	w.observe(ended(large, time.Hour)) // a hung one changes nothing
	failed := ended(large, time.Hour)
	failed.Op.Code = lifecycle.CodeTimeout
	for range 50 {
		w.observe(failed)
	}
	slot := busy(1, 1, 0)
	slot.Op = large
	var ages []int64
	var normal time.Duration
	for now := int64(0); now < 30_000*ms; now += 100 * ms {
		for _, r := range w.check(now, slot) {
			ages, normal = append(ages, r.Age().Milliseconds()), r.Normal
		}
	}
	if len(ages) != 2 || ages[0] != 4500 || ages[1] != 18_000 { // 2.25 s: the hour moved it by an eighth
		t.Errorf("reports at ages of %v ms, want 4500 (twice normal) and 18000 (eight times)", ages)
	}
	if normal != 2250*time.Millisecond {
		t.Errorf("it normally takes %v, says the report; it is 2.25 s", normal)
	}
	other := busy(2, 1, 0)
	expect(t, "a smaller one", w.check(5000*ms, slot, other)[:2],
		"all_reduce 1 of world rank 1 of 4 slow: 5s in transfer, waiting for rank 3",
		"all_reduce 1 of world rank 1 of 4 stalled: 5s in transfer, waiting for rank 3")
}

// TestLearn has operations that normally take long and never wait: the tape counts them, and few are seen.
func TestLearn(t *testing.T) {
	w := newWatch(model.Limits{})
	large := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 30}
	tally := tape.Tally{Index: 1, Call: large.Call, SizeClass: tape.SizeClass(large.Bytes)}
	generation := uint32(0)
	normal := func() time.Duration {
		generation++
		slot := busy(generation, 1, 0)
		slot.Op = large
		reports := w.check(3600_000*ms, slot)
		return reports[len(reports)-1].Normal
	}
	learn := func(n uint64, each time.Duration) {
		tally.Ordinary += n
		tally.OrdinaryTime += time.Duration(n) * each
		w.process.Look(nil, []tape.Tally{{}, tally})
	}
	learn(3, 2*time.Second)
	if got := normal(); got != 0 {
		t.Errorf("after three it normally takes %v", got)
	}
	learn(1000, 2*time.Second)
	if got := normal(); got != 2*time.Second {
		t.Errorf("it normally takes %v, of 2 s", got)
	}
	learn(0, 0)
	learn(1, time.Hour)
	if got := normal(); got != 2250*time.Millisecond {
		t.Errorf("after one of an hour it normally takes %v", got)
	}
	sampled := ended(large, time.Hour)
	sampled.Op.Tallied, sampled.Op.Ordinary = true, true
	for range 50 {
		w.observe(sampled) // which a tally counts
	}
	if got := normal(); got != 2250*time.Millisecond {
		t.Errorf("what was counted and is seen, too, is learnt twice: it normally takes %v", got)
	}
	learn(1_000_000, 3*time.Microsecond)
	if got := normal(); got != 3*time.Microsecond {
		t.Errorf("after a million of 3 µs it normally takes %v", got)
	}
}

func act(stage tape.Stage, a tape.Act, seq uint64, phase tape.Phase, start, now int64) *tape.Event {
	return &tape.Event{Comm: world, Slot: 0, Generation: 1, IsLife: true, Life: tape.LifeRecord{
		Time: now, Start: start, Stage: stage, Act: a, Seq: seq, Phase: phase, Peer: -1,
	}}
}

// TestActs has acts that hang, with their phases and the rank that their operations wait for.
func TestActs(t *testing.T) {
	w := newWatch(model.Limits{})
	w.observe(act(tape.StageStart, tape.ActSplit, 2, 0, 0, 0))
	w.observe(act(tape.StagePhase, tape.ActSplit, 2, tape.PhaseConnect, 0, ms))
	slot := busy(1, 9, ms)
	slot.Op.Call = lifecycle.CallSplit // what the split does on the wire
	expect(t, "young", w.check(999*ms, slot))
	expect(t, "slow", w.check(1000*ms, slot), "split of world rank 1 of 4 slow: 1s in connect, waiting for rank 3")
	got := w.check(5000*ms, slot)
	expect(t, "stalled", got, "split of world rank 1 of 4 stalled: 5s in connect, waiting for rank 3")
	if got[0].ActSeq != 2 || got[0].Act != tape.ActSplit {
		t.Errorf("the report is of act %v %d", got[0].Act, got[0].ActSeq)
	}
	w.observe(act(tape.StageEnd, tape.ActSplit, 2, 0, 0, 6000*ms))
	expect(t, "ended", w.check(6250*ms, idle(1, 9)),
		"split of world rank 1 of 4 cleared: 6.25s in connect, waiting for rank 3")
	expect(t, "afterwards", w.check(60_000*ms, idle(1, 9)))
}

// TestActsStallAtTheThreshold: an init, a split or a grow that waits for a late rank is reported as an operation is.
func TestActsStallAtTheThreshold(t *testing.T) {
	for _, a := range []tape.Act{tape.ActInit, tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActDestroy} {
		w := newWatch(model.Limits{Slow: 500 * time.Millisecond, Floor: 2 * time.Second})
		w.observe(act(tape.StageStart, a, 0, 0, 0, 0))
		w.observe(act(tape.StagePhase, a, 0, tape.PhaseRendezvous, 0, 0))
		var ages []int64
		for now := int64(0); now <= 20_000*ms; now += 250 * ms {
			for _, r := range w.check(now, idle(1, 1)) {
				ages = append(ages, r.Age().Milliseconds())
				if r.Act != a || r.Phase != tape.PhaseRendezvous {
					t.Errorf("%v: the report is of %v in %v", a, r.Act, r.Phase)
				}
			}
		}
		if diff := cmp.Diff([]int64{500, 2000, 4000, 8000, 16_000}, ages); diff != "" {
			t.Errorf("%v: ages of the reports in milliseconds (-want +got):\n%s", a, diff)
		}
	}
}

// TestPause stops the process for a minute, while an operation stalls and another goes on: the minute doesn't count, so
// the other operation has not stalled, and the first isn't cleared.
func TestPause(t *testing.T) {
	w := newWatch(model.Limits{})
	hung, going := busy(1, 1, 0), busy(2, 1, 5000*ms)
	expect(t, "before", w.check(5500*ms, hung, going),
		"all_reduce 1 of world rank 1 of 4 slow: 5.5s in transfer, waiting for rank 3",
		"all_reduce 1 of world rank 1 of 4 stalled: 5.5s in transfer, waiting for rank 3")
	w.process.Resumed(5500*ms, 65_000*ms)
	expect(t, "it goes on", w.check(65_400*ms, hung, going),
		"all_reduce 1 of world rank 1 of 4 stalled: 1m5s in transfer, waiting for rank 3")
	expect(t, "slow", w.check(65_500*ms, hung, going),
		"all_reduce 1 of world rank 1 of 4 slow: 1m1s in transfer, waiting for rank 3")
	expect(t, "stalled", w.check(69_500*ms, hung, going),
		"all_reduce 1 of world rank 1 of 4 stalled: 1m5s in transfer, waiting for rank 3")
}

// TestMarks: the model knows what was reported.
func TestMarks(t *testing.T) {
	w := newWatch(model.Limits{})
	w.observe(act(tape.StageStart, tape.ActSplit, 1, 0, 0, 0))
	step := w.process.Apply(act(tape.StagePhase, tape.ActSplit, 1, tape.PhaseConnect, 0, ms))
	w.check(5000*ms, busy(1, 1, 0))
	reports := w.check(10_000*ms, busy(1, 1, 0))
	if !step.Act.Slow || step.Act.Stalls != 2 {
		t.Errorf("the act is marked %v, %d", step.Act.Slow, step.Act.Stalls)
	}
	for _, r := range reports {
		if r.InFlight == nil || !r.InFlight.Slow || r.InFlight.Stalls != 2 {
			t.Errorf("%s: the operation is marked %+v", line(&r), r.InFlight)
		}
	}
}

// TestGroupBehindItsOperation: the operation is reported rather than its group, as it says more.
func TestGroupBehindItsOperation(t *testing.T) {
	w := newWatch(model.Limits{})
	w.observe(act(tape.StageStart, tape.ActGroup, 1, 0, 0, 0))
	expect(t, "a collective in it hangs", w.check(1000*ms, busy(1, 3, 0)),
		"all_reduce 3 of world rank 1 of 4 slow: 1s in transfer, waiting for rank 3")
	pairs := busy(1, 3, 0)
	pairs.Op.Call = lifecycle.CallGroupEnd // sends and receives that progress together
	expect(t, "sends and receives in it hang", w.check(1250*ms, pairs),
		"all_reduce 3 of world rank 1 of 4 cleared: 1.25s in transfer, waiting for rank 3",
		"group of world rank 1 of 4 slow: 1.25s in transfer, waiting for rank 3")
}

// TestForgottenAct has an act whose end was overwritten before it was read: it is over when its communicator is gone.
func TestForgottenAct(t *testing.T) {
	w := newWatch(model.Limits{})
	w.observe(act(tape.StageStart, tape.ActFinalize, 0, 0, 0, 0))
	w.check(2000*ms, idle(1, 1))
	expect(t, "gone from one table", w.check(2500*ms))
	expect(t, "gone", w.check(3000*ms), "finalize of world rank 1 of 4 cleared: 3s")
	expect(t, "afterwards", w.check(60_000*ms))

	off := act(tape.StageStart, tape.ActInit, 0, 0, 0, 0)
	off.Slot = -1 // the table was full
	w.observe(off)
	expect(t, "not in the table", w.check(5000*ms), "init of world rank 1 of 4 slow: 5s",
		"init of world rank 1 of 4 stalled: 5s")
}

// TestDoubtful: an operation that was launched and isn't known to be done gives news once when it reaches the stall
// threshold, and no report.
func TestDoubtful(t *testing.T) {
	w := newWatch(model.Limits{Slow: time.Second, Floor: 5 * time.Second})
	launched := func(seq uint64, start int64) tape.Slot {
		s := busy(1, seq, start)
		s.Completed, s.LastEnd, s.Marked, s.Unproven = s.Launched, start+1, true, true
		return s
	}
	known, captured := launched(3, 20_000*ms), launched(7, 50_000*ms)
	known.Unproven, captured.Captured = false, 1
	for _, c := range []struct {
		at    int64
		of    tape.Slot
		found int
		news  bool
	}{
		{4900 * ms, launched(1, 0), 0, false},
		{5000 * ms, launched(1, 0), 1, true},
		{6000 * ms, launched(1, 0), 1, false},
		{7000 * ms, launched(2, 6500*ms), 0, false},
		{11_500 * ms, launched(2, 6500*ms), 1, true},
		{26_000 * ms, known, 0, false},
		{46_000 * ms, launched(5, 40_000*ms), 1, true},
		{46_500 * ms, launched(6, 41_000*ms), 1, true},
		{56_000 * ms, captured, 0, false},
	} {
		if reports := w.check(c.at, c.of); len(reports) > 0 {
			t.Errorf("at %d ms there is to tell: %s", c.at/ms, line(&reports[0]))
		}
		if found, news := w.Doubtful(c.at); len(found) != c.found || news != c.news {
			t.Errorf("at %d ms: %d, news %v", c.at/ms, len(found), news)
		}
	}
}
