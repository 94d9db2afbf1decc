package corpus

import (
	"os"
	"regexp"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// Simulated trials don't depend on the machine: they must meet all thresholds, as larger numbers of them do in
// ras/jobsim/corpus.
func TestSimulated(t *testing.T) {
	j := e2e.Start(t, nil, "carillon", "corpus", "--why", "--trials", "1")
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// One job of each of these kinds, on a machine that may be busy: all but one must be diagnosed correctly, in whatever
// time, and no innocent rank may be named. The job in which a process is killed may end too soon for a live report.
// make corpus runs more of them against the thresholds.
func TestRealProcesses(t *testing.T) {
	j := e2e.Start(t, nil, "carillon", "corpus", "--why", "--processes", "7", "--ranks", "4", "--kind",
		"healthy,data loader hangs,kill,late at a split,another call,early destroy,evaluation")
	j.ExitCode()
	if !regexp.MustCompile(
		`(?m)^ +all +7 +[01] +0 +(100\.0|85\.7|83\.3) % +(100\.0|85\.7) % +0\.0 % +0\.0 % `,
	).MatchString(j.Output()) {
		t.Error("the last line of the table has another sum")
	}
}
