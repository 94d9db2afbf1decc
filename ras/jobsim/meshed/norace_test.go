//go:build !race

package meshed_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
)

// The race detector makes a simulation twenty times as slow, and has the runtime put goroutines into an order of its
// own, which doesn't follow from the seed. What it can find, it finds in the other tests.

// quiet is how long a job is watched in which no verdict must be opened.
const quiet = 5 * time.Minute

// TestHardSeeds has orders of faults that are harder than most: a host is cut off on which a process ended before,
// whose tape no process can read then; and the last process of a host is stopped.
func TestHardSeeds(t *testing.T) {
	for _, seed := range []uint64{5, 12, 2} {
		synctest.Test(t, func(t *testing.T) {
			r, err := meshed.Run(t.Context(), meshed.Plan{
				Seed: seed, Ranks: 64, Each: 8, Duration: 150 * time.Second, Faults: meshed.Faults(),
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Faults) != 6 || len(r.False)+len(r.Missed) > 0 {
				t.Errorf("seed %d: %d faults; false: %v, missed: %v", seed, len(r.Faults), r.False, r.Missed)
			}
		})
	}
}

// TestRunsWithOneSeedAgree: a plan's result is the same each time, whatever was simulated before, also in times and
// bytes; another seed has another result.
func TestRunsWithOneSeedAgree(t *testing.T) {
	run := func(t *testing.T, seed uint64) (r meshed.Result, lines []string) {
		t.Helper()
		r, err := meshed.Run(t.Context(), meshed.Plan{
			Seed: seed, Ranks: 16, Each: 1, Duration: 110 * time.Second,
			Faults: []meshed.Fault{meshed.FaultStop, meshed.FaultLoss, meshed.FaultPartition, meshed.FaultKill},
		}, func(line string) { lines = append(lines, line) })
		if err != nil || len(r.Faults) != 4 || len(r.False)+len(r.Missed) > 0 {
			t.Fatalf("%v; %d faults, false: %v, missed: %v", err, len(r.Faults), r.False, r.Missed)
		}
		r.Analysis = 0 // by the machine's own clock
		return r, lines
	}
	synctest.Test(t, func(t *testing.T) {
		// On a busy machine, the runtime may interrupt a goroutine and have another one draw first: then one more run
		// is like one of those before. Of runs that don't follow from the seed, no two are alike.
		const tries = 4
		var results []meshed.Result
		var told [][]string
		for len(results) < tries {
			r, lines := run(t, 7)
			for i := range results {
				if cmp.Equal(results[i], r) && slices.Equal(told[i], lines) {
					other, _ := run(t, 8)
					if cmp.Equal(r.Faults, other.Faults) {
						t.Errorf("another seed has the same result: %+v", other)
					}
					return
				}
			}
			results, told = append(results, r), append(told, lines)
		}
		t.Errorf("no two of %d runs with one seed agree; two of them (-first +second):\n%s", tries,
			cmp.Diff(results[0], results[1]))
	})
}
