package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestJobsWithoutAName: two jobs that torchrun has started run at once, and have no names. For the agent each is a job
// of its own, and only the one that a rank holds up has a verdict.
func TestJobsWithoutAName(t *testing.T) {
	t.Parallel()
	library, tapes := buildLibrary(t), t.TempDir()
	_, url := agent(t, tapes)
	input, end := openInput(t)
	var ranks []*e2e.Job
	for port, skips := range map[int]string{29500: "SKIP=1", 29501: "SURVIVE=1"} {
		id := ""
		for r := range 2 {
			rank := e2e.Start(t, []string{
				skips, id, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "LD_PRELOAD=" + library,
				"NCCL_PROFILER_PLUGIN=" + library, "CARILLON_TAPE_DIR=" + tapes, "CARILLON_JOB=",
				fmt.Sprint("RANK=", r), "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0",
				"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port),
			}, "sh", "-c", fmt.Sprintf(`exec "$0" rank %d 2 <%s`, r, input), fakenccl.Program(t, built, "held"))
			if r == 0 {
				id = "ID=" + rank.Await(`^id (\w+)$`)[1]
			}
			ranks = append(ranks, rank)
		}
	}
	for _, rank := range ranks {
		rank.Await(` is held$`)
	}
	const name = "pytorch-%d-0-none-127.0.0.1"
	report(t, `"reason": "not_entered"[^§]*rank 1 `, filepath.Join(tapes, fmt.Sprintf(name, 29500)))
	report(t, `"status": "ok"`, filepath.Join(tapes, fmt.Sprintf(name, 29501)))
	verdicts := strings.Join(metrics(t, url, `^ccl_ras_verdicts\{.*\} 1$`), "\n")
	if !strings.Contains(verdicts, fmt.Sprintf(name, 29500)) || strings.Contains(verdicts, fmt.Sprintf(name, 29501)) {
		t.Errorf("there are the verdicts\n%s", verdicts)
	}
	end()
	for _, rank := range ranks {
		if code := rank.ExitCode(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, rank.Output())
		}
	}
}

// TestJobsWithoutALauncher: two jobs without names or launchers run at once, each in a session of its own. Only the one
// that a rank holds up has a verdict.
func TestJobsWithoutALauncher(t *testing.T) {
	t.Parallel()
	library, tapes := buildLibrary(t), t.TempDir()
	follower, url := agent(t, tapes)
	input, end := openInput(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []*e2e.Job
	var names []string
	for _, skips := range []string{"SKIP=1", "SURVIVE=1"} {
		job := e2e.Start(t, []string{
			skips, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "LD_PRELOAD=" + library,
			"NCCL_PROFILER_PLUGIN=" + library, "CARILLON_TAPE_DIR=" + tapes, "CARILLON_JOB=",
		}, "setsid", "--fork", "--wait", "sh", "-c", `echo session $$; exec "$0" processes 2 <`+input,
			fakenccl.Program(t, built, "held"))
		jobs = append(jobs, job)
		names = append(names, fmt.Sprintf("session-%d-%s", job.AwaitPID(`^session (\d+)$`), host))
	}
	report(t, `"reason": "not_entered"[^§]*rank 1 `, filepath.Join(tapes, names[0]))
	report(t, `"status": "ok"`, filepath.Join(tapes, names[1]))
	verdicts := strings.Join(metrics(t, url, `^ccl_ras_verdicts\{.*\} 1$`), "\n")
	if !strings.Contains(verdicts, names[0]) || strings.Contains(verdicts, names[1]) {
		t.Errorf("there are the verdicts\n%s", verdicts)
	}
	follower.Await(`msg="rank 1 .* has not entered .* job=` + names[0] + ` .*culprit=1`)
	both := strings.Join(slices.Sorted(slices.Values(names)), `",\s*"`)
	report(t, `"jobs": \[\s*"`+both+`"[^§]*"verdicts": \[\s*\{\s*"job": "`+names[0]+`"`, "--url", url)
	if _, page := get(t, url); strings.Count(page, `class="culprit"`) != 1 {
		t.Errorf("the agent's page is\n%s", page)
	}
	end()
	for _, job := range jobs {
		if code := job.ExitCode(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, job.Output())
		}
	}
}

// TestAttachesOfOneJob: the programs that srun starts on two machines are one job, with the name that Slurm gives it,
// and with one verdict if an agent sees the tapes of both machines.
func TestAttachesOfOneJob(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	input, end := openInput(t)
	var attaches []*e2e.Job
	id := ""
	for r := range 2 {
		attach := e2e.Start(t, []string{
			"SKIP=1", id, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
			"CARILLON_JOB=", "CARILLON_STALL_THRESHOLD=500ms", fmt.Sprint("SLURM_PROCID=", r), "SLURM_STEP_NUM_TASKS=2",
			"SLURM_JOB_ID=4711", "SLURM_STEP_ID=3", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n[1-2]",
			"SLURM_STEP_TASKS_PER_NODE=1(x2)",
		}, "carillon", "attach", "--", "sh", "-c", fmt.Sprintf(`exec "$0" rank %d 2 <%s`, r, input),
			fakenccl.Program(t, built, "held"))
		if r == 0 {
			id = "ID=" + attach.Await(`^id (\w+)$`)[1]
		}
		attaches = append(attaches, attach)
	}
	for _, attach := range attaches {
		attach.Await(`attach: job slurm-4711\.3; `)
		attach.Await(` is held$`)
	}
	report(t, `"reason": "not_entered"[^§]*rank 1 `, filepath.Join(tapes, "slurm-4711.3"))
	end()
	for _, attach := range attaches {
		if code := attach.ExitCode(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, attach.Output())
		}
	}
}
