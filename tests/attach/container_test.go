package attach

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestContainer: a job has pid and mount namespaces of its own, as in a container, and the agent those of the host. It
// names the rank at fault by the number that its process has on the host, and knows how the process ended.
func TestContainer(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes, env := t.TempDir(), []string{
		"SKIP=1", "SURVIVE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_HEALTH_ADDR=",
		"CARILLON_STALL_THRESHOLD=500ms",
	}
	input, end := openInput(t)
	job := e2e.Start(t, env, "carillon", "attach", "--tape-dir", tapes, "--job", "contained", "--",
		"unshare", "--pid", "--mount", "--mount-proc", "--fork", "sh", "-c", `exec "$0" processes 4 <`+input,
		fakenccl.Program(t, built, "held"))
	inside := job.AwaitPID(`^rank 3 of process (\d+) is held$`)
	said := report(t, `"reason": "not_entered"`, tapes)
	named := regexp.MustCompile(`rank 3 \([^,)]*, pid (\d+)\) has not entered all_reduce 2 on `)
	match := named.FindStringSubmatch(said)
	if match == nil {
		t.Fatalf("rank 3 is not named:\n%s", said)
	}
	pid, err := strconv.Atoi(match[1])
	if err != nil || pid == inside {
		t.Fatalf("rank 3 is process %s, which it is in its own namespace", match[1])
	}
	e2e.Kill(t, pid, syscall.SIGKILL)
	report(t, `"reason": "rank_dead"[^§]*rank 3 `, tapes)
	end()
	job.ExitCode()
	e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`^ +3 .* died: it was ended by SIGKILL`)
}
