package stall_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestReportsOfAnyHistory lets communicators begin and end operations and acts at random and checks the reports against
// the rules: nothing young is reported; Slow comes once and first; each Stalled counts one more, no sooner than the
// threshold, and no sooner after the one before than that one's threshold; a reported activity is Cleared once, at the
// first Check after it ended, and never again; and at the end nothing is remembered.
func TestReportsOfAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := model.Limits{Slow: time.Second, Floor: 4 * time.Second}
		w := newWatch(limits)
		type key struct {
			generation uint32
			act        tape.Act
			start      int64
		}
		slots := make([]tape.Slot, 4)
		acts := map[uint32]*tape.Event{} // the open split of each communicator
		seq := uint64(0)
		for i := range slots {
			slots[i] = idle(uint32(i+1), 1)
		}
		told := map[key]stall.Report{}
		now := int64(0)
		check := func() {
			live := map[key]bool{}
			for _, s := range slots {
				if s.Launched != s.Completed {
					live[key{s.Generation, tape.ActNone, s.OpStart}] = true
				}
			}
			for g, ev := range acts {
				live[key{g, tape.ActSplit, ev.Life.Start}] = true
			}
			for _, r := range w.check(now, slots...) {
				k := key{r.Comm.Generation, r.Act, r.Start}
				last, known := told[k]
				switch {
				case r.Now < now || r.Age() < limits.Slow:
					t.Fatalf("told of something young: %v", line(&r))
				case r.Stage == stall.Slow && known:
					t.Fatalf("slow, after %v: %v", last.Stage, line(&r))
				case r.Stage == stall.Stalled && (!known || last.Stage == stall.Cleared || r.Count != last.Count+1 ||
					r.Age() < r.Threshold):
					t.Fatalf("stalled %d (%v), after %v %d", r.Count, r.Age(), last.Stage, last.Count)
				case r.Stage == stall.Stalled && last.Count > 0 && time.Duration(r.Now-last.Now) < last.Threshold:
					t.Fatalf("told again after %v", time.Duration(r.Now-last.Now))
				case r.Stage == stall.Cleared && (!known || last.Stage == stall.Cleared || live[k]):
					t.Fatalf("cleared, after %v, in flight: %v", last.Stage, live[k])
				case r.Stage != stall.Cleared && !live[k]:
					t.Fatalf("told of what isn't in flight: %v", line(&r))
				}
				told[k] = r
			}
			for k, r := range told {
				if !live[k] && r.Stage != stall.Cleared {
					t.Fatalf("%v is over and wasn't cleared", k)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += int64(rapid.IntRange(1, 3000).Draw(t, "ms")) * ms
			i := rapid.IntRange(0, len(slots)-1).Draw(t, "communicator")
			s := &slots[i]
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // an operation begins, or ends and the next begins
				*s = busy(s.Generation, s.Seq+1, now)
			case 1:
				s.Completed = s.Launched
			case 2:
				if acts[s.Generation] == nil {
					seq++
					ev := act(tape.StageStart, tape.ActSplit, seq, 0, now, now)
					ev.Generation = s.Generation
					acts[s.Generation] = ev
					w.observe(ev)
				}
			case 3:
				if ev := acts[s.Generation]; ev != nil {
					end := *ev
					end.Life.Stage, end.Life.Time = tape.StageEnd, now
					w.observe(&end)
					delete(acts, s.Generation)
				}
			}
			check()
		}
		for g, ev := range acts {
			end := *ev
			end.Life.Stage, end.Life.Time = tape.StageEnd, now
			w.observe(&end)
			delete(acts, g)
		}
		slots = nil
		w.process.Look(nil, nil) // missing in one table alone, they might be new
		check()
		if left := w.check(now + int64(time.Hour)); len(left) > 0 {
			t.Fatalf("an hour after the end: %v", line(&left[0]))
		}
	})
}

// TestCheckDoesNotAllocate while nothing is slow, nor does the model for operations.
func TestCheckDoesNotAllocate(t *testing.T) {
	w := newWatch(model.Limits{})
	slots := []tape.Slot{busy(1, 1, 0), idle(2, 1)}
	ev := ended(allReduce, time.Millisecond)
	w.observe(act(tape.StageStart, tape.ActSplit, 1, 0, 0, 0))
	for range 2000 { // until the history of calls is full
		w.observe(ev)
	}
	told := 0
	if n := testing.AllocsPerRun(100, func() {
		w.observe(ev)
		w.process.Look(slots, nil)
		told += len(w.Check(500 * ms))
	}); n != 0 || told != 0 {
		t.Errorf("%v allocations, %d reports", n, told)
	}
}

// BenchmarkCheck looks at communicators that all have an operation in flight, none of which is slow.
func BenchmarkCheck(b *testing.B) {
	w := newWatch(model.Limits{})
	var slots []tape.Slot
	for i := range 10_000 {
		s := busy(uint32(i+1), 1, 0)
		s.Root = 1 // all are of one rank
		slots = append(slots, s)
	}
	w.process.Look(slots, nil)
	b.ReportAllocs()
	for b.Loop() {
		w.Check(500 * ms)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(slots)), "ns/communicator")
}
