package attach

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestMessages: all ranks have launched the messages that the others wait for, and two messages never end: both ranks
// send before they receive, or the two sides of a message have different sizes. The streams show that, also after the
// processes were killed.
func TestMessages(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for name, c := range map[string]struct {
		env          []string
		reason, says string
	}{
		"cycle": {
			nil, "deadlock", `ranks 0 and 1 wait for each other: rank 0 is in message 1 from rank 0 to rank 1 [^§]*` +
				`; rank 1 is in message 1 from rank 1 to rank 0 [^§]*; rank 2 waits`,
		},
		"sizes": {
			[]string{"SIZES=1"}, "mismatch", `ranks 0 and 1 called for message 1 from rank 0 to rank 1 [^§]*` +
				`rank 0 called send of 8 bytes, and rank 1 recv of 16 bytes; rank 2 waits`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tapes := t.TempDir()
			job := e2e.Start(t, append(c.env,
				"LD_LIBRARY_PATH="+fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR="+tapes,
				"CARILLON_HEALTH_ADDR=", "CARILLON_STALL_THRESHOLD=1s",
			), "carillon", "attach", "--job", "messages", "--",
				fakenccl.Program(t, built, "messages"), "processes", "3")
			var pids []int
			for rank := range 3 {
				pids = append(pids, job.AwaitPID(fmt.Sprintf(`^rank %d of process (\d+) is held$`, rank)))
			}
			report(t, `"reason": "`+c.reason+`"[^§]*`+c.says, tapes)
			for _, pid := range pids {
				e2e.Kill(t, pid, syscall.SIGSTOP) // so that no rank sees another one die
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // when one has ended, the program ends the others
			}
			job.ExitCode()
			wrapped := strings.ReplaceAll(c.says, " ", `\s+`)
			e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(c.reason + ` [^§]*` + wrapped)
		})
	}
}
