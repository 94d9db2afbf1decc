package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestContainer: a job has pid and mount namespaces of its own, as in a container, and the agent those of the host. The
// agent names the rank at fault by its process's pid on the host, and knows how the process ended.
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

// TestPods: the ranks of a job run in containers with host names of their own, and in a pid namespace that isn't the
// host's. While they run and afterwards, every command and page names the rank at fault by its container's host name,
// and by the pid that the machine's agent has for its process. Before there is an agent, the pid on the tape is used.
func TestPods(t *testing.T) {
	t.Parallel()
	library, tapes := buildLibrary(t), t.TempDir()
	input, end := openInput(t)
	space := e2e.Start(t, nil, "sh", "-c", `echo pid $$
exec unshare --pid --mount --mount-proc --fork --kill-child sh -c 'echo ready; exec sleep infinity'`)
	target := space.AwaitPID(`^pid (\d+)$`)
	space.Await(`^ready$`)
	pod := func(rank int, env ...string) *e2e.Job {
		return e2e.Start(t, append([]string{
			"SKIP=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "LD_PRELOAD=" + library,
			"NCCL_PROFILER_PLUGIN=" + library, "CARILLON_TAPE_DIR=" + tapes, "CARILLON_JOB=pods",
			"CARILLON_STALL_THRESHOLD=500ms", fmt.Sprint("RANK=", rank), "WORLD_SIZE=2",
		}, env...), "nsenter", fmt.Sprint("--target=", target), "--mount",
			fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", target), "unshare", "--uts", "sh", "-c",
			fmt.Sprintf("echo pod-%d >/proc/sys/kernel/hostname; exec \"$0\" rank %[1]d 2 <%s", rank, input),
			fakenccl.Program(t, built, "held"))
	}
	pods := [2]*e2e.Job{pod(0)}
	pods[1] = pod(1, "ID="+pods[0].Await(`^id (\w+)$`)[1])
	pods[0].Await(`^rank 0 of process \d+ is held$`)
	inside := pods[1].AwaitPID(`^rank 1 of process (\d+) is held$`)
	postmortem := func(line string) []string {
		return e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(line)
	}
	postmortem(fmt.Sprintf(`^ +1 +pod-1 +%d +`, inside))

	follower, url := agent(t, tapes)
	const fault = `rank 1 \(([^,)]+), pid (\d+)\) has not entered all_reduce 2 on `
	opened := follower.Await(fault + `.*verdict\.opened`)
	pid, err := strconv.Atoi(opened[2])
	if err != nil || pid == inside || opened[1] != "pod-1" {
		t.Fatalf("the agent names process %s of %s", opened[2], opened[1])
	}
	name := regexp.QuoteMeta(fmt.Sprintf("rank 1 (pod-1, pid %d)", pid))
	report(t, name+" has not entered", tapes)
	report(t, fmt.Sprintf(`"state": "alive",[^{}]*"host": "pod-1",\s*"pid": %d\b`, pid), tapes)
	e2e.Start(t, nil, "carillon", "watch", "--url", url).Await(name + " has not entered")
	postmortem(name + " has not entered")

	e2e.Kill(t, pid, syscall.SIGKILL)
	follower.Await(name + ` ended .* SIGKILL.*verdict\.opened`)
	report(t, name+" ended", tapes)
	dead := fmt.Sprintf(`    rank 1 (pod-1-%d): killed`, pid)
	e2e.Start(t, nil, "carillon", "status", tapes).Await(regexp.QuoteMeta(dead))
	end()
	pods[0].ExitCode()
	follower.Signal(syscall.SIGTERM)
	follower.ExitCode()
	postmortem(name + ` was ended by SIGKILL`)
	postmortem(`^ +0 +pod-0 +\d+ +closed: it exited with 0 `)
	postmortem(fmt.Sprintf(`^ +1 +pod-1 +%d +died: it was ended by SIGKILL `, pid))
}

// TestEndedContainer: a container has ended, with all its processes, while nobody followed them. A command that sees
// all processes of the machine knows that they are dead: the job doesn't count as running, and its tapes are removed
// like others.
func TestEndedContainer(t *testing.T) {
	t.Parallel()
	library, tapes := buildLibrary(t), t.TempDir()
	input, _ := openInput(t)
	env := []string{
		"SKIP=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "LD_PRELOAD=" + library,
		"NCCL_PROFILER_PLUGIN=" + library, "CARILLON_TAPE_DIR=" + tapes, "CARILLON_JOB=contained",
	}
	container := e2e.Start(t, env, "unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child", "sh", "-c",
		`exec "$0" processes 4 <`+input, fakenccl.Program(t, built, "held"))
	for rank := range 4 {
		container.Await(fmt.Sprintf(`^rank %d of process \d+ is held$`, rank))
	}
	container.Signal(syscall.SIGKILL)
	container.ExitCode()
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	if space != "pid:[4026531836]" { // inside a container, the test can't know that the other one has ended
		e2e.Start(t, nil, "carillon", "status", tapes).Await(`job contained runs`)
		return
	}
	e2e.Start(t, nil, "carillon", "status", tapes).Await(`no job with tapes in \S+ is running`)
	e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`^job contained: 4 tapes on 1 host: 4 died$`)
	next := e2e.Start(t, []string{"CARILLON_TAPE_KEEP=0", "CARILLON_HEALTH_ADDR=off"}, "carillon", "attach",
		"--tape-dir", tapes, "--", "true")
	next.ExitCode()
	if left, err := filepath.Glob(filepath.Join(tapes, "contained", "*.tape")); err != nil || len(left) > 0 {
		t.Errorf("its tapes are there still: %q, %v", left, err)
	}
}
