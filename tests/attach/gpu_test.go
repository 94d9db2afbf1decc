package attach

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestScriptOfGPUs runs the script that runs PyTorch's jobs on GPUs (tests/gpu) on the fake NCCL, with programs without
// PyTorch: Carillon says of a job that is well, and of each fault, what is so, while the job hangs and when it was
// killed.
func TestScriptOfGPUs(t *testing.T) {
	carillon, err := exec.LookPath("carillon")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	bin := filepath.Dir(libraryIn(t, filepath.Dir(carillon)))
	job := e2e.Start(t, []string{"BIN=" + bin, "OUT=" + out, "WITHIN=60", "LIMIT=300", "JOBS=5", "ROUNDS=1", "BAR=1e9"},
		"bash", "../gpu/run.sh", "--fake", fakenccl.Build(t, out, "2.28.9"))
	job.Await(`ns a call`) // the cost of a call, which depends on what else the machine does
	if code := job.ExitCode(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	job.Await(`9 of 9 cases pass`)
}
