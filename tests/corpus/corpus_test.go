package corpus

import (
	"os"
	"regexp"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// Simulated trials don't depend on the machine: they must reach all bars, as more of them do in ras/jobsim/corpus.
func TestSimulated(t *testing.T) {
	j := e2e.Start(t, nil, "carillon", "corpus", "--why", "--trials", "1")
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// One job of each of these kinds, on a machine that may be busy: all but one must be told rightly, in whatever time,
// and nobody innocent may be named. The one in which a process is killed may end too soon for anything to be said live.
// make corpus holds more of them to the bars.
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
