package stall_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const ms = int64(time.Millisecond)

var (
	world     = tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	allReduce = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
)

// failer is what testing and rapid have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func newWatch(tb failer, cfg stall.Config) *stall.Watch {
	tb.Helper()
	w, err := stall.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// busy is a communicator with an operation in flight.
func busy(generation uint32, seq uint64, start int64) tape.Slot {
	return tape.Slot{
		CommInfo: world, Generation: generation, Launched: seq, Completed: seq - 1, Seq: seq, Op: allReduce, OpStart: start,
		Phase: tape.PhaseTransfer, Wait: 3, WaitSince: start + 1,
	}
}

func idle(generation uint32, seq uint64) tape.Slot {
	s := busy(generation, seq, 0)
	s.Completed = s.Launched
	return s
}

// told is what a Check said, a line each.
func told(reports []stall.Report) []string {
	var lines []string
	for i := range reports {
		lines = append(lines, reports[i].String())
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
	w := newWatch(t, stall.Config{})
	slot := busy(1, 7, 1000*ms)
	line := func(stage, age string) string {
		return "all_reduce 7 of world rank 1 of 4 " + stage + ": " + age + " in transfer, waiting for rank 3"
	}
	var at []int64
	for now := 1000 * ms; now <= 200_000*ms; now += 250 * ms {
		for _, r := range w.Check([]tape.Slot{slot}, now, nil) {
			at = append(at, r.Age().Milliseconds())
			switch {
			case len(at) == 1:
				expect(t, "first", []stall.Report{r}, line("slow", "1s"))
			case len(at) == 2:
				expect(t, "second", []stall.Report{r}, line("stalled", "5s"))
			case r.Count != len(at)-1 || r.Stage != stall.Stalled || r.Threshold != 5*time.Second || r.Generation != 1 || r.WaitSince != 1000*ms+1:
				t.Errorf("report %d is %+v", len(at), r)
			}
		}
	}
	// At the thresholds, then after 5 s, 10 s, 20 s, 40 s, and from then on every minute.
	if diff := cmp.Diff([]int64{1000, 5000, 10_000, 20_000, 40_000, 80_000, 140_000}, at); diff != "" {
		t.Errorf("ages of the reports in milliseconds (-want +got):\n%s", diff)
	}
	cleared := w.Check([]tape.Slot{idle(1, 7)}, 200_250*ms, nil)
	expect(t, "it ended", cleared, line("cleared", "3m19s"))
	if cleared[0].Count != 6 {
		t.Errorf("it was told %d times, says the end; it was 6", cleared[0].Count)
	}
	expect(t, "afterwards", w.Check([]tape.Slot{idle(1, 7)}, 201_000*ms, nil))
}

// TestSlowOnly never stalls.
func TestSlowOnly(t *testing.T) {
	w := newWatch(t, stall.Config{})
	expect(t, "at 1 s", w.Check([]tape.Slot{busy(1, 1, 0)}, 1000*ms, nil),
		"all_reduce 1 of world rank 1 of 4 slow: 1s in transfer, waiting for rank 3")
	got := w.Check([]tape.Slot{busy(1, 2, 1500*ms)}, 2000*ms, nil)
	expect(t, "the next is in flight", got, "all_reduce 1 of world rank 1 of 4 cleared: 2s in transfer, waiting for rank 3")
	if got[0].Count != 0 {
		t.Errorf("Count is %d: it never stalled", got[0].Count)
	}
}

// TestFromOneToTheNext has two hanging operations of one communicator, of which no Check saw the time between.
func TestFromOneToTheNext(t *testing.T) {
	w := newWatch(t, stall.Config{})
	w.Check([]tape.Slot{busy(1, 1, 0)}, 6000*ms, nil)
	expect(t, "the next hangs too", w.Check([]tape.Slot{busy(1, 2, 6500*ms)}, 12_000*ms, nil),
		"all_reduce 1 of world rank 1 of 4 cleared: 12s in transfer, waiting for rank 3",
		"all_reduce 2 of world rank 1 of 4 slow: 5.5s in transfer, waiting for rank 3",
		"all_reduce 2 of world rank 1 of 4 stalled: 5.5s in transfer, waiting for rank 3")
	expect(t, "the communicator is gone", w.Check(nil, 13_000*ms, nil),
		"all_reduce 2 of world rank 1 of 4 cleared: 6.5s in transfer, waiting for rank 3")
}

// ended is an operation that ended well.
func ended(sig tape.Signature, d time.Duration) *tape.Event {
	return &tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
		Time: 1 + int64(d), Start: 1, Stage: tape.StageEnd, Signature: sig, Wait: -1,
	}}
}

// TestNormal has operations that take long by nature: thresholds follow, for their size and kind alone.
func TestNormal(t *testing.T) {
	large := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 30}
	w := newWatch(t, stall.Config{})
	for range 50 {
		w.Observe(ended(large, 2*time.Second))
	}
	w.Observe(ended(large, time.Hour)) // one that hung teaches nothing
	failed := ended(large, time.Hour)
	failed.Op.Code = lifecycle.CodeTimeout
	for range 50 {
		w.Observe(failed)
	}
	slot := busy(1, 1, 0)
	slot.Op = large
	var ages []int64
	var normal time.Duration
	for now := int64(0); now < 30_000*ms; now += 100 * ms {
		for _, r := range w.Check([]tape.Slot{slot}, now, nil) {
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
	expect(t, "a smaller one", w.Check([]tape.Slot{slot, other}, 5000*ms, nil)[:2],
		"all_reduce 1 of world rank 1 of 4 slow: 5s in transfer, waiting for rank 3",
		"all_reduce 1 of world rank 1 of 4 stalled: 5s in transfer, waiting for rank 3")
}

// TestLearn has operations that take long by nature and never have to wait: the tape counts them, and few are seen.
func TestLearn(t *testing.T) {
	w := newWatch(t, stall.Config{})
	large := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 30}
	tally := tape.Tally{Index: 1, Call: large.Call, SizeClass: tape.SizeClass(large.Bytes)}
	normal := func() time.Duration {
		slot := busy(1, 1, 0)
		slot.Op = large
		reports := w.Check([]tape.Slot{slot}, 3600_000*ms, nil)
		w.Check(nil, 3600_000*ms, nil)
		return reports[0].Normal
	}
	learn := func(n uint64, each time.Duration) {
		tally.Ordinary += n
		tally.OrdinaryTime += time.Duration(n) * each
		w.Learn([]tape.Tally{{}, tally})
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
		w.Observe(sampled) // which is counted
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
	w := newWatch(t, stall.Config{})
	w.Observe(act(tape.StageStart, tape.ActSplit, 2, 0, 0, 0))
	w.Observe(act(tape.StagePhase, tape.ActSplit, 2, tape.PhaseConnect, 0, ms))
	slot := busy(1, 9, ms)
	slot.Op.Call = lifecycle.CallSplit // what the split does on the wire
	expect(t, "young", w.Check([]tape.Slot{slot}, 999*ms, nil))
	expect(t, "slow", w.Check([]tape.Slot{slot}, 1000*ms, nil), "split of world rank 1 of 4 slow: 1s in connect, waiting for rank 3")
	got := w.Check([]tape.Slot{slot}, 5000*ms, nil)
	expect(t, "stalled", got, "split of world rank 1 of 4 stalled: 5s in connect, waiting for rank 3")
	if got[0].ActSeq != 2 || got[0].Act != tape.ActSplit {
		t.Errorf("the report is of act %v %d", got[0].Act, got[0].ActSeq)
	}
	w.Observe(act(tape.StageEnd, tape.ActSplit, 2, 0, 0, 6000*ms))
	expect(t, "ended", w.Check([]tape.Slot{idle(1, 9)}, 6250*ms, nil), "split of world rank 1 of 4 cleared: 6.25s in connect, waiting for rank 3")
	expect(t, "afterwards", w.Check([]tape.Slot{idle(1, 9)}, 60_000*ms, nil))
}

// TestRendezvousIsPatient: ranks of a job come when they are started.
func TestRendezvousIsPatient(t *testing.T) {
	w := newWatch(t, stall.Config{})
	w.Observe(act(tape.StageStart, tape.ActInit, 0, tape.PhaseRendezvous, 0, 0))
	var ages []int64
	for now := int64(0); now <= 40_000*ms; now += 250 * ms {
		for _, r := range w.Check([]tape.Slot{idle(1, 1)}, now, nil) {
			ages = append(ages, r.Age().Milliseconds())
		}
	}
	if diff := cmp.Diff([]int64{1000, 30_000}, ages); diff != "" {
		t.Errorf("ages of the reports in milliseconds (-want +got):\n%s", diff)
	}
}

// TestGroupBehindItsOperation tells of the operation, which says more.
func TestGroupBehindItsOperation(t *testing.T) {
	w := newWatch(t, stall.Config{})
	w.Observe(act(tape.StageStart, tape.ActGroup, 1, 0, 0, 0))
	expect(t, "a collective in it hangs", w.Check([]tape.Slot{busy(1, 3, 0)}, 1000*ms, nil),
		"all_reduce 3 of world rank 1 of 4 slow: 1s in transfer, waiting for rank 3")
	pairs := busy(1, 3, 0)
	pairs.Op.Call = lifecycle.CallGroupEnd // sends and receives that progress together
	expect(t, "sends and receives in it hang", w.Check([]tape.Slot{pairs}, 1250*ms, nil),
		"all_reduce 3 of world rank 1 of 4 cleared: 1.25s in transfer, waiting for rank 3",
		"group of world rank 1 of 4 slow: 1.25s in transfer, waiting for rank 3")
}

// TestForgottenAct has an act whose end was overwritten before it was read: it is over when its communicator is gone.
func TestForgottenAct(t *testing.T) {
	w := newWatch(t, stall.Config{})
	w.Observe(act(tape.StageStart, tape.ActFinalize, 0, 0, 0, 0))
	w.Check([]tape.Slot{idle(1, 1)}, 2000*ms, nil)
	expect(t, "gone", w.Check(nil, 3000*ms, nil), "finalize of world rank 1 of 4 cleared: 3s")
	expect(t, "afterwards", w.Check(nil, 60_000*ms, nil))

	off := act(tape.StageStart, tape.ActInit, 0, 0, 0, 0)
	off.Slot = -1 // the table was full
	w.Observe(off)
	expect(t, "not in the table", w.Check(nil, 5000*ms, nil), "init of world rank 1 of 4 slow: 5s", "init of world rank 1 of 4 stalled: 5s")
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  stall.Config
		want string // "" is allowed
	}{
		"defaults":             {stall.Config{}, ""},
		"floor below slow":     {stall.Config{Floor: 100 * time.Millisecond}, ""},
		"slow above floor":     {stall.Config{Slow: 6 * time.Second}, "Slow"},
		"negative":             {stall.Config{Floor: -1}, "Floor"},
		"too little":           {stall.Config{Slow: time.Microsecond}, "Slow"},
		"too much":             {stall.Config{Floor: 48 * time.Hour}, "48h"},
		"factor below one":     {stall.Config{Factor: 0.5}, "0.5"},
		"factor not a number":  {stall.Config{Factor: math.NaN()}, "Factor"},
		"interval of the past": {stall.Config{MaxInterval: -time.Second}, "MaxInterval"},
	} {
		_, err := stall.New(c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
