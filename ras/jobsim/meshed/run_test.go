package meshed_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

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
