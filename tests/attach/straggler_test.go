package attach

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestStraggler: one rank reaches each collective after the others, which only their streams show. In another job, in
// which the ranks are late in turn, none is named. The post-mortems say the same.
func TestStraggler(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	start := func(name, late string) (job *e2e.Job, tapes string, end func()) {
		tapes = t.TempDir()
		input, end := openInput(t)
		return e2e.Start(t, []string{
			"LATE=" + late, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
			"CARILLON_HEALTH_ADDR=",
		}, "carillon", "attach", "--job", name, "--", "sh", "-c", `[ "$LATE" ] || unset LATE
			exec "$0" processes 3 <`+input, fakenccl.Program(t, built, "late")), tapes, end
	}
	even, evenTapes, endEven := start("even", "")
	held, heldTapes, endHeld := start("held", "1")
	held.Await(`rank 1 .*holds up .*: the others wait for it \d+ % of the time`)
	report(t, `"reason": "straggler"[^§]*rank 1 `, heldTapes)
	if said := report(t, `"job": "even"`, evenTapes); strings.Contains(said, `"reason"`) {
		t.Errorf("of the job in which ranks are late by turns:\n%s", said)
	}
	for _, job := range []struct {
		*e2e.Job
		end func()
	}{{even, endEven}, {held, endHeld}} {
		job.end()
		if code := job.ExitCode(); code != 0 {
			t.Errorf("it exited with %d:\n%s", code, job.Output())
		}
		if strings.Contains(job.Output(), "rank 0 ") || strings.Contains(job.Output(), "rank 2 ") {
			t.Errorf("another rank is named:\n%s", job.Output())
		}
	}
	e2e.Start(t, nil, "carillon", "postmortem", heldTapes).Await(`straggler \(likely\): rank 1 .* holds up `)
	after := e2e.Start(t, nil, "carillon", "postmortem", evenTapes)
	if after.ExitCode(); !strings.Contains(after.Output(), "Nothing went wrong") {
		t.Errorf("of the job in which ranks are late by turns:\n%s", after.Output())
	}
}
