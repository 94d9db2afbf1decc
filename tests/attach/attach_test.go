package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// library builds libraries that do nothing, but that attach accepts, and returns the variable for the first one.
func library(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"libempty.so":          "void ncclCommDestroy(void) {}\nvoid ncclProfiler_v1(void) {}\n",
		"libcarillon-audit.so": "unsigned la_version(unsigned v) { return v; }\nvoid la_symbind64(void) {}\n",
	} {
		cc := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, name), "-x", "c", "-")
		cc.Stdin = strings.NewReader(text)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	return "CARILLON_NCCL_LIBRARY=" + filepath.Join(dir, "libempty.so")
}

// TestAttachFollowsTheProgram: the program's ranks are followed while it runs, their spans are exported when it has
// ended, and its exit code is attach's.
func TestAttachFollowsTheProgram(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	env := slices.Concat(none, []string{library(t), "CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR="})
	run := append([]string{"attach", "--job", "held-up", "--", "env", "OTEL_SDK_DISABLED=true"}, none...)
	env = append(env, "OTEL_TRACES_EXPORTER=console", "CARILLON_RAS=on", "CARILLON_STALL_THRESHOLD=500ms")
	run = append(run, "CARILLON_TAPE_DIR="+tapes, "carillon", "run", "-n", "4", "--", os.Args[0])
	job := e2e.Start(t, env, "carillon", run...)
	pid := job.AwaitPID(`^\[2\] ready (\d+)$`)
	report(t, `"reason": "not_entered"[^§]*rank 2 `, tapes)
	for _, rank := range []int{0, 1, 3} {
		job.Await(fmt.Sprintf(`msg=ccl\.stall .*\brank=%d `, rank))
	}
	e2e.Kill(t, pid, syscall.SIGUSR1)
	report(t, `"status": "ok"`, tapes)
	job.Signal(syscall.SIGUSR2) // carillon run passes it on
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name, want := range map[string]int{"ccl.comm.init": 4, "ccl.stall": 3, "ccl.comm.destroy": 4} {
		n := 0
		for key := range spansOf(t, job.Output()) {
			if strings.HasSuffix(key, " "+name) {
				n++
			}
		}
		if n < want {
			t.Errorf("%d spans %s, want at least %d", n, name, want)
		}
	}
}

// TestSignalToAll: attach doesn't pass a signal on if the program has got it as well, for example because it went to
// the process group. A program in a group of its own has not got it.
func TestSignalToAll(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"python3", "setsid python3"} {
		t.Run(program, func(t *testing.T) { signalToAll(t, program) })
	}
}

func signalToAll(t *testing.T, program string) {
	t.Helper()
	env := slices.Concat(none, []string{library(t), "CARILLON_TAPE_DIR=" + t.TempDir(), "CARILLON_HEALTH_ADDR=off"})
	job := e2e.Start(t, env, "sh", "-c",
		"echo leader $$; exec setsid carillon attach -- "+program+" testdata/signals.py")
	leader := job.AwaitPID(`^leader (\d+)$`)
	job.Await(`^ready`)
	e2e.Kill(t, -leader, syscall.SIGUSR1)
	job.Await("^got SIGUSR1")
	e2e.Kill(t, leader, syscall.SIGUSR2)
	job.Await("^got SIGUSR2")
	e2e.Kill(t, -leader, syscall.SIGTERM)
	job.Await("^got SIGTERM")
	e2e.Kill(t, leader, syscall.SIGHUP) // it arrives after all signals that are passed on
	if code, printed := job.ExitCode(), job.Output(); code != 0 || strings.Count(printed, "got SIG") != 3 {
		t.Errorf("exit code %d, printed\n%s", code, printed)
	}
}

// TestAttachIsInvisible: the program's arguments, input, output, signals and end are the same as without attach.
func TestAttachIsInvisible(t *testing.T) {
	t.Parallel()
	env := []string{
		library(t), "CARILLON_TAPE_DIR=" + t.TempDir(), "LD_PRELOAD=libm.so.6", "NCCL_PROFILER_PLUGIN=mine.so",
	}
	for _, c := range []struct {
		program string
		code    int
		output  string
	}{
		{"echo $1 $CARILLON_JOB; exit 7", 7, `^-x j$`},
		{"echo $LD_PRELOAD", 0, `^/\S+/libempty\.so:libm\.so\.6$`},
		{"echo $LD_AUDIT", 0, `^/\S+/libcarillon-audit\.so$`},
		{"echo $NCCL_PROFILER_PLUGIN $CARILLON_PROFILER_NEXT", 0, `^/\S+/libempty\.so mine\.so$`},
		{"kill -SEGV $$", 128 + 11, ``},
	} {
		job := e2e.Start(t, env, "carillon", "attach", "--job", "j", "--", "sh", "-c", c.program, "sh", "-x")
		if code := job.ExitCode(); code != c.code || !regexp.MustCompile("(?m)"+c.output).MatchString(job.Output()) {
			t.Errorf("%s: exit code %d, want %d; printed\n%s", c.program, code, c.code, job.Output())
		}
	}
	const waits = `trap 'echo told; exit 3' TERM
exec 9<> <(:)
echo ready $$ of $PPID
while :; do read -t 1 -u 9 x; done`
	job := e2e.Start(t, env, "carillon", "attach", "--", "bash", "-c", waits)
	job.Await(`^ready`)
	job.Signal(syscall.SIGTERM)
	if job.Await(`^told$`); job.ExitCode() != 3 {
		t.Errorf("exit code %d, want 3", job.ExitCode())
	}
	job = e2e.Start(t, env, "carillon", "attach", "--", "bash", "-c", waits)
	pid, attach := job.AwaitPID(`^ready (\d+)`), job.AwaitPID(`^ready \d+ of (\d+)`)
	e2e.Kill(t, attach, syscall.SIGKILL)
	e2e.AwaitEnd(t, attach)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the program ended with attach: %v", err)
	}
	e2e.Kill(t, pid, syscall.SIGTERM)
	e2e.AwaitEnd(t, pid)
}
