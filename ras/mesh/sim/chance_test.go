//go:build !race

package sim_test

import (
	"math/rand"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// TestSeedDecides: a simulation's results follow from its seed (but not under the race detector, for which the runtime
// puts goroutines into an order of its own). When it is over, math/rand's global source no longer follows from the
// seed.
func TestSeedDecides(t *testing.T) {
	was := os.Getenv("GODEBUG")
	drawn := make(map[int64]bool)
	synctest.Test(t, func(t *testing.T) {
		measure := func(seed uint64) scale {
			s, err := measureScale(t.Context(), sim.JobConfig{
				Seed: seed, Link: lan, Machines: 4, Each: 4, Tuning: mesh.LAN(),
			}, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			drawn[rand.Int63()] = true
			return s
		}
		first := measure(1)
		again := measure(1)
		// The runtime may have interrupted one of them: see the package.
		for tries := 2; again != first && tries > 0; tries-- {
			first, again = again, measure(1)
		}
		if again != first {
			t.Errorf("two runs with one seed:\n%+v\n%+v", first, again)
		}
		if other := measure(2); other.StoppedFirst == first.StoppedFirst {
			t.Errorf("two seeds, one result:\n%+v\n%+v", first, other)
		}
	})
	if len(drawn) < 3 {
		t.Errorf("after a simulation, what is drawn follows from its seed: %v", drawn)
	}
	if now := os.Getenv("GODEBUG"); now != was {
		t.Errorf("GODEBUG is %q after a simulation, was %q", now, was)
	}
}
