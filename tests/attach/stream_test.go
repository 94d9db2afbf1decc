package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestLaunchedAndNotDone: ranks have launched an all-reduce and are out of NCCL, which one rank has not called. Their
// streams say on the tapes that they have not done it, so that one is named, also after all were killed.
func TestLaunchedAndNotDone(t *testing.T) {
	buildLibrary(t)
	tapes := t.TempDir()
	input := filepath.Join(t.TempDir(), "input")
	if err := syscall.Mkfifo(input, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(input, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close() // then the program ends
	job := e2e.Start(t, []string{
		"SKIP=1", "SURVIVE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
		"CARILLON_HEALTH_ADDR=",
	}, "carillon", "attach", "--job", "held", "--", "sh", "-c", `exec "$0" processes 4 <`+input,
		fakenccl.Program(t, built, "held"))
	var pids []int
	for rank := range 4 {
		pids = append(pids, job.AwaitPID(fmt.Sprintf(`^rank %d of process (\d+) is held$`, rank)))
	}
	// The all-gather before it, on a communicator of two, is done.
	report(t, `"reason": "not_entered"[^§]*rank 3 [^§]*has not entered all_reduce 2 on `, tapes)
	for _, pid := range pids {
		e2e.Kill(t, pid, syscall.SIGKILL)
	}
	job.ExitCode()
	after := e2e.Start(t, nil, "carillon", "postmortem", tapes)
	after.Await(`rank 3 .*has not entered all_reduce 2 on `)
	if said := after.Output(); strings.Contains(said, "all_gather 1 of") {
		t.Errorf("what was done is in flight:\n%s", said)
	}
}
