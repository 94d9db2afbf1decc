package postmortem

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestOffsets lets hosts with any clocks do things together, and compares the offsets that are found with the true
// ones.
func TestOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "hosts")
		zeros := make([]int64, n) // what each host's clock is ahead of the truth
		all := make([]*clock, n)
		members := make([]*member, n)
		for i := range n {
			zeros[i] = rapid.Int64Range(-1e15, 1e15).Draw(t, "zero")
			p := &process{}
			members[i] = &member{
				proc: p, Comm: &model.Comm{CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Rank: i, Size: n}},
			}
			p.members = []*member{members[i]}
			// The time of day may be anything, too.
			all[i] = &clock{
				procs: []*process{p},
				wall:  rapid.Int64Range(-1e15, 1e15).Draw(t, "wall"),
			}
			p.clock = all[i]
		}
		latest := int64(0)
		for seq := range rapid.IntRange(1, 20).Draw(t, "collectives") {
			began := latest + rapid.Int64Range(0, 1e9).Draw(t, "pause")
			last := began
			starts := make([]int64, n)
			for i := range n {
				starts[i] = began + rapid.Int64Range(0, 1e6).Draw(t, "late")
				last = max(last, starts[i])
			}
			for i, m := range members {
				end := last + rapid.Int64Range(0, 1e6).Draw(t, "took")
				latest = max(latest, end)
				m.shared = append(m.shared, sharedMoment{
					key: sharedKey{kind: sharedOp, seq: uint64(seq)}, start: starts[i] + zeros[i] + 1e16,
					end: end + zeros[i] + 1e16,
				})
				all[i].latest = end + zeros[i] + 1e16
			}
		}
		for i := range all {
			all[i].offset = 0
		}
		new(Report).settle(all, compare(all))
		for i, c := range all[1:] {
			truth := zeros[0] - zeros[i+1] // what must be added to its times to make them the first's
			if c.Source != ClockShared || truth < c.lo || truth > c.hi {
				t.Fatalf("host %d: %s, %d is not in [%d, %d]", i+1, c.Source, truth, c.lo, c.hi)
			}
			if off := c.offset - all[0].offset - truth; max(off, -off) > (c.hi-c.lo+1)/2 {
				t.Fatalf("host %d: off by %d, uncertain by %d", i+1, off, (c.hi-c.lo)/2)
			}
			if width := time.Duration(c.hi - c.lo); width > 10*time.Millisecond {
				t.Fatalf("host %d: known to %v only", i+1, width)
			}
		}
	})
}

// TestOffsetsThroughOthers has two hosts that did nothing together, but each of which did with a third.
func TestOffsetsThroughOthers(t *testing.T) {
	bounds := [][]int64{
		{0, unbounded, 10},
		{unbounded, 0, 25},
		{-8, -21, 0},
	}
	all := []*clock{{}, {}, {}}
	r := &Report{}
	if r.settle(all, bounds); len(r.Problems) > 0 {
		t.Error(r.Problems)
	}
	// c is 8 to 10 behind a's zero and 21 to 25 behind b's: b is 11 to 17 ahead of a.
	b := all[1]
	if b.Source != ClockShared || b.lo != 11 || b.hi != 17 || b.offset != 14 {
		t.Errorf("b: %s, %d to %d, offset %d", b.Source, b.lo, b.hi, b.offset)
	}
}
