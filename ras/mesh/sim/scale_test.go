package sim_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// members is how many TestScale runs: 512 are the 4,096 ranks of a job with one member for each eight.
var members = flag.Int("members", 64, "how many members TestScale has, a multiple of eight")

// Half a minute without a false word, then a kill, a stop, and a question to all.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 8
		s, err := sim.MeasureScale(t.Context(), sim.JobConfig{
			Seed: 20, Link: lan, Machines: *members / each, Each: each, Tuning: mesh.LAN(),
		}, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", s)
		if s.False > 0 {
			t.Errorf("%d events while nothing happened", s.False)
		}
		if s.KilledFirst > 100*time.Millisecond || s.KilledLast > 2*time.Second {
			t.Errorf("a kill was told after %v to %v, want 100ms to 2s", s.KilledFirst, s.KilledLast)
		}
		if s.StoppedLast > 5*time.Second {
			t.Errorf("a stop was told after %v, want 5s", s.StoppedLast)
		}
		if s.Answered != *members-2 || s.ForOthers != 2 || s.Missing != 0 {
			t.Errorf("%d answered, for %d others, %d missing; want all but two, and those two", s.Answered, s.ForOthers, s.Missing)
		}
		if limit := 2500.0; s.Bytes > limit {
			t.Errorf("idle, a member sends %.0f bytes a second, want at most %.0f", s.Bytes, limit)
		}
	})
}
