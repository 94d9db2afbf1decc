package meshed_test

import (
	"flag"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
)

var (
	ranks = flag.Int("ranks", 64, "how many ranks TestRun has, a multiple of 64")
	seed  = flag.Uint64("seed", 3, "of TestRun")
)

// TestRun lets all faults happen to one job.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := meshed.Run(t.Context(), meshed.Plan{
			Seed: *seed, Ranks: *ranks, Each: 8, Duration: 150 * time.Second, Faults: meshed.Faults(),
		}, func(line string) { t.Log(line) })
		if err != nil {
			t.Fatal(err)
		}
		if len(r.False) > 0 || len(r.Missed) > 0 {
			t.Errorf("false: %v\nmissed: %v", r.False, r.Missed)
		}
		if len(r.Faults) != 6 {
			t.Errorf("%d faults, want each once", len(r.Faults))
		}
		for _, o := range r.Faults {
			t.Logf("%+v", o)
			limit := map[meshed.Fault]time.Duration{
				meshed.FaultKill: time.Second, meshed.FaultStop: 3 * time.Second, meshed.FaultSleep: time.Second,
				meshed.FaultPartition: 20 * time.Second,
			}[o.Fault]
			if (o.Reason != "") != (limit > 0) || o.Verdict > limit || o.Known > limit+time.Second {
				t.Errorf("%s: %q after %v, known to all after %v; want at most %v",
					o.Fault, o.Reason, o.Verdict, o.Known, limit)
			}
		}
		t.Logf("%.0f bytes and %.1f packets a member and second; analysis took %v", r.Bytes, r.Packets, r.Analysis)
	})
}

// Orders of faults that are harder than most: a host is cut off on which a process ended before, whose tape nobody can
// read then; one is stopped that is the last one of its host.
func TestHardSeeds(t *testing.T) {
	seeds := []uint64{5, 12, 2}
	if shuffled { // and twenty times as slow
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
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

// A plan's result is the same each time, whatever was simulated before, in times and bytes too; another seed has
// another.
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
		if shuffled {  // what was found agrees even so
			lines, r.Bytes, r.Packets, r.Virtual = nil, 0, 0, 0
			for i, o := range r.Faults {
				r.Faults[i] = meshed.Outcome{Fault: o.Fault, Victim: o.Victim, Reason: o.Reason}
			}
		}
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

func TestPlansThatCannotBe(t *testing.T) {
	good := meshed.Plan{Seed: 1, Ranks: 64, Each: 8, Duration: time.Minute, Faults: meshed.Faults()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*meshed.Plan){
		"ranks":    func(p *meshed.Plan) { p.Ranks = 63 },
		"few":      func(p *meshed.Plan) { p.Ranks = 56 },
		"uneven":   func(p *meshed.Plan) { p.Ranks = 8 * 11 },
		"each":     func(p *meshed.Plan) { p.Each = 0 },
		"duration": func(p *meshed.Plan) { p.Duration = time.Second },
		"faults":   func(p *meshed.Plan) { p.Faults = nil },
	} {
		p := good
		change(&p)
		if err := p.Validate(); err == nil {
			t.Errorf("%s: %+v is taken", name, p)
		}
	}
	if _, err := meshed.ParseFaults("kill, flood"); err == nil {
		t.Error("a flood is taken for a fault")
	}
}
