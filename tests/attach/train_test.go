package attach

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestTrainingExample runs the example in Python, which calls NCCL through ctypes if PyTorch is missing: on its own,
// and attached. The results are identical bit for bit, and what the attached one did can be queried. A rank that sleeps
// is named.
func TestTrainingExample(t *testing.T) {
	buildLibrary(t)
	tapes := t.TempDir()
	env := []string{
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"),
		"CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR=", "CUDA_VISIBLE_DEVICES=",
		"CARILLON_STALL_THRESHOLD=500ms",
	}
	// ask runs a command to its end, and returns its output.
	ask := func(name string, args ...string) string {
		t.Helper()
		job := e2e.Start(t, env, name, args...)
		if code := job.ExitCode(); code != 0 {
			t.Errorf("%s %q: exit code %d, printed\n%s", name, args, code, job.Output())
		}
		return job.Output()
	}
	results := func(printed string) []string {
		lines := regexp.MustCompile(`(?m)^rank \d of 2: .*$`).FindAllString(printed, -1)
		slices.Sort(lines)
		return lines
	}
	const program = "../../examples/pytorch/train.py"
	want := results(ask("python3", program))
	env = append(env, "OTEL_TRACES_EXPORTER=console")
	attached := ask("carillon", "attach", "--job", "train", "--", "python3", program)
	env = env[:len(env)-1]
	got := results(attached)
	if len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("attached it came to\n%s\nand by itself to\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := strings.Count(attached, `"Name":"ccl.all_reduce (device)"`); n != 2 {
		t.Errorf("the device took some time for %d operations, want the first of each rank:\n%s", n, attached)
	}
	for _, c := range []struct{ command, says string }{
		{"comms", `(?m) 2 +1 +nccl \S+ +40 +init, destroy +destroyed$`},
		{"postmortem", `all_reduce +up to 64 B +40 `},
		{"postmortem", `destroy ended after`},
	} {
		if printed := ask("carillon", c.command, "train"); !regexp.MustCompile(c.says).MatchString(printed) {
			t.Errorf("%s doesn't say %s:\n%s", c.command, c.says, printed)
		}
	}
	held := e2e.Start(t, env, "carillon", "attach", "--job", "held", "--", "python3", program, "--hold-up", "1")
	held.Await(`^rank 1 sleeps`)
	report(t, `"reason": "not_entered"[^§]*rank 1 [^§]*has not entered all_reduce 21 on `, filepath.Join(tapes, "held"))
	held.Signal(syscall.SIGTERM)
	if code := held.ExitCode(); code != 1 {
		t.Errorf("the exit code is %d, and that of the example is 1", code)
	}
}

// pidOf returns the pid of a rank of an attached training.
func pidOf(t *testing.T, job string, rank int) (pid int) {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environments {
		text, _ := os.ReadFile(path) // the process may have ended
		env := "\x00" + string(text)
		if strings.Contains(env, "\x00CARILLON_JOB="+job+"\x00") &&
			strings.Contains(env, fmt.Sprintf("\x00RANK=%d\x00", rank)) {
			if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("job %s has no process of rank %d", job, rank)
	return 0
}

// heldUp starts an attached training, in a process group of its own, in which rank 1 sleeps.
func heldUp(t *testing.T, name, tapes, threshold, ranks string) (job *e2e.Job, leader int, env []string) {
	t.Helper()
	buildLibrary(t)
	env = []string{
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR=",
		"CUDA_VISIBLE_DEVICES=", "CARILLON_STALL_THRESHOLD=" + threshold,
	}
	job = e2e.Start(t, env, "sh", "-c", "echo leader $$; exec setsid carillon attach --job "+name+
		" -- python3 ../../examples/pytorch/train.py --ranks "+ranks+" --hold-up 1")
	return job, job.AwaitPID(`^leader (\d+)$`), env
}

// TestTrainingIsEnded: ranks of a training that wait for a rank that sleeps are killed, the first before they count as
// hung, the next one after that, and then all at once. No rank that waited is blamed for the training's end, and the
// post-mortem reports all three kills.
func TestTrainingIsEnded(t *testing.T) {
	t.Parallel()
	const name = "ended"
	tapes := t.TempDir()
	job, leader, env := heldUp(t, name, tapes, "5s", "4")
	job.Await(`^rank 1 sleeps`)
	dir := filepath.Join(tapes, name)
	report(t, `"call": "all_reduce",\s+"seq": 21,[^]]*"ranks": \[\s+0,`, dir)
	e2e.Kill(t, pidOf(t, name, 0), syscall.SIGKILL)
	report(t, `rank 1 [^§]*has not entered all_reduce 21 `, dir)
	e2e.Kill(t, pidOf(t, name, 2), syscall.SIGKILL)
	report(t, `; rank 3 waits; ranks 0 and 2 waited, and have ended`, dir)
	e2e.Kill(t, -leader, syscall.SIGTERM)
	if code := job.ExitCode(); code == 0 {
		t.Error("the exit code is 0, although the training was ended")
	}
	for _, never := range []string{`ccl\.stall.* rank=0 `, `reason=rank_dead culprit=[123]`} {
		if said := regexp.MustCompile(never).FindString(job.Output()); said != "" {
			t.Errorf("it says %s", said)
		}
	}
	pm := e2e.Start(t, env, "carillon", "postmortem", name)
	pm.ExitCode()
	said := strings.Join(strings.Fields(pm.Output()), " ")
	for _, want := range []string{
		`[Rr]ank 0 \([^)]*\) was ended by SIGKILL at [\d:.]+\. The job was ended from outside by SIGTERM at ` +
			`[\d:.]+, while it still hung: `,
		`rank_dead \(certain\): rank 0 `, `1 \S+ \d+ died: it was ended by SIGTERM [\d:.]+ `,
		`2 \S+ \d+ died: it was ended by SIGKILL [\d:.]+ `,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("the post-mortem doesn't say %s:\n%s", want, pm.Output())
		}
	}
}

// TestTrainingIsKilled: all processes of a training that hangs are killed at once, with its agent, as by Kubernetes or
// for lack of memory. The post-mortem still tells why it hung.
func TestTrainingIsKilled(t *testing.T) {
	t.Parallel()
	const name = "killed"
	tapes := t.TempDir()
	job, leader, env := heldUp(t, name, tapes, "1s", "2")
	job.Await(`rank 1 .* has not entered all_reduce 21 .*verdict\.opened`)
	for noted := false; !noted; runtime.Gosched() { // written at the same time as the line
		log, _ := os.ReadFile(filepath.Join(tapes, name, process.Ledger))
		noted = bytes.Contains(log, []byte(`"running":[`))
	}
	e2e.Kill(t, -leader, syscall.SIGKILL)
	job.ExitCode()
	e2e.Start(t, env, "carillon", "postmortem", name).Await(`not_entered \(certain\): rank 1 .* all_reduce 21 `)
}
