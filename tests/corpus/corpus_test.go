package corpus

import (
	"os"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// reach runs carillon corpus, which must reach its bars.
func reach(t *testing.T, args ...string) {
	t.Helper()
	j := e2e.Start(t, nil, "carillon", append([]string{"corpus", "--why"}, args...)...)
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSimulated(t *testing.T) { reach(t, "--trials", "2") }

// One job of each of these kinds. What a busy machine makes of others is for make corpus.
func TestRealProcesses(t *testing.T) {
	reach(t, "--processes", "7", "--ranks", "4", "--kind",
		"healthy,data loader hangs,kill,late at a split,another call,early destroy,evaluation")
}
