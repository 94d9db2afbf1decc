package attach

import (
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestScriptOfGPUs runs the script that runs PyTorch jobs on GPUs (tests/gpu) on the fake NCCL, with programs without
// PyTorch. Carillon must report the healthy job and each fault correctly, while the job hangs and after it was killed.
func TestScriptOfGPUs(t *testing.T) {
	t.Parallel()
	bin, fake := filepath.Dir(buildLibrary(t)), fakenccl.Build(t, built, "2.28.9")
	env := []string{"BIN=" + bin, "OUT=" + t.TempDir(), "WITHIN=60", "LIMIT=500", "JOBS=5", "PAIRS=9", "BAR=1e9"}
	job := e2e.Start(t, env, "bash", "../gpu/run.sh", "--fake", fake)
	job.Await(`ns a call`) // the cost of a call depends on other load of the machine
	if code := job.ExitCode(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	job.Await(`15 of 15 cases pass`)
}
