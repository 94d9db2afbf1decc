package jobsim_test

import (
	"flag"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/jobsim"
)

var (
	ranks = flag.Int("ranks", 64, "how many ranks TestRun has, a multiple of 64")
	seed  = flag.Uint64("seed", 1, "of TestRun")
)

// TestRun lets all faults happen to one job.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := jobsim.Run(t.Context(), jobsim.Plan{
			Seed: *seed, Ranks: *ranks, Each: 8, Duration: 150 * time.Second, Faults: jobsim.Faults(),
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
			limit := map[jobsim.Fault]time.Duration{
				jobsim.FaultKill: time.Second, jobsim.FaultStop: 3 * time.Second, jobsim.FaultSleep: time.Second,
				jobsim.FaultPartition: 20 * time.Second,
			}[o.Fault]
			if (o.Reason != "") != (limit > 0) || o.Verdict > limit || o.Known > limit+time.Second {
				t.Errorf("%s: %q after %v, known to all after %v; want at most %v", o.Fault, o.Reason, o.Verdict, o.Known, limit)
			}
		}
		t.Logf("%.0f bytes and %.1f packets a member and second; analysis took %v", r.Bytes, r.Packets, r.Analysis)
	})
}

// The seed decides about what happens, and, in all that matters, about what is found.
func TestRunsWithOneSeedAgree(t *testing.T) {
	run := func(seed uint64) (verdicts string, script []jobsim.Step) {
		p := jobsim.Plan{Seed: seed, Ranks: 16, Each: 2, Duration: 110 * time.Second, Faults: []jobsim.Fault{jobsim.FaultStop, jobsim.FaultSleep, jobsim.FaultKill}}
		synctest.Test(t, func(t *testing.T) {
			r, err := jobsim.Run(t.Context(), p, nil)
			if err != nil || len(r.False)+len(r.Missed) > 0 {
				t.Fatalf("%v; false: %v, missed: %v", err, r.False, r.Missed)
			}
			verdicts = r.Verdicts()
		})
		return verdicts, p.Script()
	}
	verdicts, script := run(7)
	again, same := run(7)
	if verdicts != again || !slices.Equal(script, same) {
		t.Errorf("with one seed:\n%s\nand then:\n%s", verdicts, again)
	}
	other := jobsim.Plan{Seed: 8, Ranks: 16, Each: 2, Duration: 110 * time.Second, Faults: jobsim.Faults()}
	if slices.Equal(script, other.Script()) {
		t.Errorf("another seed has the same script: %v", script)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	good := jobsim.Plan{Seed: 1, Ranks: 64, Each: 8, Duration: time.Minute, Faults: jobsim.Faults()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*jobsim.Plan){
		"ranks":    func(p *jobsim.Plan) { p.Ranks = 63 },
		"few":      func(p *jobsim.Plan) { p.Ranks = 56 },
		"uneven":   func(p *jobsim.Plan) { p.Ranks = 8 * 11 },
		"each":     func(p *jobsim.Plan) { p.Each = 0 },
		"duration": func(p *jobsim.Plan) { p.Duration = time.Second },
		"faults":   func(p *jobsim.Plan) { p.Faults = nil },
	} {
		p := good
		change(&p)
		if err := p.Validate(); err == nil {
			t.Errorf("%s: %+v is taken", name, p)
		}
	}
	if _, err := jobsim.ParseFaults("kill, flood"); err == nil {
		t.Error("a flood is taken for a fault")
	}
}
