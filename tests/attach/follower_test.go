package attach

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestOneAgentFollowsAJob: beside an agent of the host, attach follows its own program. Events are reported only once,
// by attach, even after attach has ended and left the tapes.
func TestOneAgentFollowsAJob(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	to, got := receiver(t)
	host, url := agent(t, tapes, "CARILLON_RAS_WEBHOOKS="+to+"/host", "OTEL_TRACES_EXPORTER=console")
	input, end := openInput(t)
	job := attached(t, tapes, input, "CARILLON_RAS_WEBHOOKS="+to+"/attach")
	report(t, `"reason": "not_entered"[^§]*rank 1 `, tapes)
	if got := metrics(t, url, `job="held"`); len(got) > 0 {
		t.Errorf("the host's agent follows it, too: %q", got)
	}
	e2e.Kill(t, job.AwaitPID(`^rank 1 of process (\d+) is held$`), syscall.SIGKILL)
	report(t, `"reason": "rank_dead"[^§]*rank 1 `, tapes)
	end()
	job.ExitCode()
	host.Signal(syscall.SIGTERM) // after it has looked for tapes again
	if code := host.ExitCode(); code != 0 {
		t.Errorf("the host's agent exits with %d", code)
	}
	for _, reason := range []string{"not_entered", "rank_dead"} {
		if !got("/attach", `"reason":"`+reason+`"`) {
			t.Errorf("attach does not tell of %s", reason)
		}
	}
	if got("/host", ".") || len(spansOf(t, host.Output())) > 0 {
		t.Errorf("the host's agent tells of the job, too:\n%s", host.Output())
	}
}

// TestNextAgentFollowsTheJob: when the agent that follows a job is killed, another agent of the host takes over. A
// second attach for the job reports that it doesn't follow it.
func TestNextAgentFollowsTheJob(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	first, url := agent(t, tapes)
	input, end := openInput(t)
	job := attached(t, tapes, input)
	job.Await(`attach: job held; a page for each process is at `)
	report(t, `"reason": "not_entered"`, tapes)
	second := e2e.Start(t, []string{"CARILLON_TAPE_DIR=" + tapes}, "carillon", "attach", "--job", "held", "--", "true")
	second.Await(`attach: job held; another agent on this host follows it$`)
	second.ExitCode()
	job.Signal(syscall.SIGKILL)
	report(t, `"status": "critical"[^§]*"reason": "not_entered"`, "--url", url)
	_, next := agent(t, tapes)
	first.Signal(syscall.SIGKILL)
	report(t, `"status": "critical"[^§]*"reason": "not_entered"`, "--url", next)
	end()
}

// TestTwoJobsOfOneName: a job with the name of a running job is reported to need another name.
func TestTwoJobsOfOneName(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	input, end := openInput(t)
	start := func() *e2e.Job {
		return e2e.Start(t, []string{
			"RANK=0", "WORLD_SIZE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"),
		}, "carillon", "attach", "--tape-dir", tapes, "--job", "held", "--", "sh", "-c",
			`exec "$0" rank 0 1 <`+input, fakenccl.Program(t, built, "held"))
	}
	first := start()
	pid := first.AwaitPID(`^rank 0 of process (\d+) is held$`)
	first.Await(`attach: job held; a page for each process is at `)
	report(t, `"status": "ok"`, tapes)
	second := start()
	first.Await(fmt.Sprintf(`WARN.* job held already has a rank 0, pid %d: .* needs another name`, pid))
	end()
	for _, job := range []*e2e.Job{first, second} {
		if code := job.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestProgramWithoutAttach: the host's agent follows a program that has attach's environment, but was not started by
// attach.
func TestProgramWithoutAttach(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	_, url := agent(t, tapes)
	input, end := openInput(t)
	job := e2e.Start(t, []string{
		"SKIP=1", "SURVIVE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
	}, "sh", "-c", `eval "$(carillon attach --print-env --job held)" && exec "$0" processes 2 <`+input,
		fakenccl.Program(t, built, "held"))
	job.Await(` is held$`)
	report(t, `"status": "critical"[^§]*"reason": "not_entered"`, "--url", url)
	end()
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, job.Output())
	}
}

// TestJobIsTerminated: all processes of a healthy job get SIGTERM, as from a scheduler, and the agent of the machine is
// not told about it. That opens no verdict.
func TestJobIsTerminated(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	follower, url := agent(t, tapes)
	input, end := openInput(t)
	defer end()
	job := e2e.Start(t, []string{
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
	}, "sh", "-c", `eval "$(carillon attach --print-env --job terminated)"
echo leader $$; exec setsid "$0" processes 2 <`+input, fakenccl.Program(t, built, "held"))
	leader := job.AwaitPID(`^leader (\d+)$`)
	var pids [2]int
	watch := e2e.Start(t, nil, "carillon", "watch", "--url", url)
	for r := range pids {
		pids[r] = job.AwaitPID(fmt.Sprintf(`^rank %d of process (\d+) is held$`, r))
		watch.Await(fmt.Sprintf(`rank\.joined: .*-%d\b`, pids[r]))
	}
	e2e.Kill(t, -leader, syscall.SIGTERM)
	job.ExitCode()
	for _, pid := range pids {
		watch.Await(fmt.Sprintf(`rank\.dead: .*-%d\b`, pid))
	}
	follower.Signal(syscall.SIGTERM) // it looks at the job once more
	follower.ExitCode()
	if said := follower.Output(); strings.Contains(said, "verdict.opened") {
		t.Errorf("it says\n%s", said)
	}
}

// attached starts a program of two ranks under attach, as the job held, in which rank 1 holds the other rank up.
func attached(t *testing.T, tapes, input string, env ...string) *e2e.Job {
	t.Helper()
	job := e2e.Start(t, append([]string{
		"SKIP=1", "SURVIVE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_HEALTH_ADDR=",
		"CARILLON_HEALTH_TOKEN=", "CARILLON_STALL_THRESHOLD=500ms", "CARILLON_RAS_MIN_POLL_INTERVAL=off",
	}, env...), "carillon", "attach", "--tape-dir", tapes, "--job", "held", "--", "sh", "-c",
		`exec "$0" processes 2 <`+input, fakenccl.Program(t, built, "held"))
	job.Await(` is held$`)
	return job
}
