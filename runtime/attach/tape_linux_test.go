package attach_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// compile builds a program from a C source and the tape's writer.
func compile(source, program string) error {
	writer, err := filepath.Glob("tape*.c")
	if err != nil {
		return err
	}
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-o", program, source}
	cmd := exec.Command("cc", append(args, writer...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// dirVariable is where the player makes its tape.
const dirVariable = "TAPETEST_DIR"

// player is the program of testdata/player.c, which plays scripts: see telemetry/tape/tapetest, whose tests check the
// writer against the format.
var player string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "")
	if err == nil {
		player = filepath.Join(dir, "player")
		err = compile("testdata/player.c", player)
	}
	status := 1
	if err == nil {
		status = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// playOn makes the player play a script onto a tape, and returns the tape's path.
func playOn(t *testing.T, script string, env ...string) (path string) {
	t.Helper()
	path, err := tapetest.PlayWith(exec.Command(player), dirVariable, t.TempDir(), strings.NewReader(script), env...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const world = "comm 1 0102030405060708090a0b0c0d0e0f10 00000000000000000000000000000000 world 1 2 1 nccl 0\n"

// A forked child writes nothing, and its end isn't recorded as its parent's.
func TestFork(t *testing.T) {
	const script = world + "start 1 0 16 7 0 -1 8 1\nfork 1\ncrash\n"
	r := played(t, script)
	if r.Header().Closed {
		t.Error("the tape is closed")
	}
	slots := r.Slots()
	if len(slots) != 1 || slots[0].Name != "world" || slots[0].Launched != 1 || slots[0].Completed != 0 {
		t.Errorf("the slots are %+v", slots)
	}
	for ev, err := range r.Events() {
		t.Errorf("an event %+v, %v", ev, err)
	}
}

// The bell wakes a follower that sleeps and whose tick is far off: for each act, for each quarter of the op ring, and
// at the end.
func TestBell(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), player)
	cmd.Env = append(os.Environ(), dirVariable+"="+t.TempDir())
	script, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	step := func(lines string) {
		t.Helper()
		if _, err := io.WriteString(script, lines); err != nil {
			t.Fatal(err)
		}
	}
	step("path\n")
	path, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := tape.Follow(ctx, strings.TrimSpace(path), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	step(world)
	for n := range 100 {
		step(fmt.Sprintf("life 1 1 1 1 %d 0 0 0 -1 0 0 0 00000000000000000000000000000000 act\n", n))
		if ev, err := f.Next(ctx); err != nil || ev.Life.Seq != uint64(n) {
			t.Fatalf("act %d: %+v, %v", n, ev, err)
		}
	}
	// A quarter of 256 records, and one more.
	step("start 1 0 16 7 0 -1 8 1\n" + strings.Repeat("phase 1 5\nphase 1 6\n", 32))
	for n := range 65 {
		if n == 64 {
			step("end 1 1 0\nlife 1 1 1 1 0 0 0 0 -1 0 0 0 00000000000000000000000000000000 act\n")
		}
		if ev, err := f.Next(ctx); err != nil || ev.IsLife {
			t.Fatalf("record %d: %+v, %v", n, ev, err)
		}
	}
	if err := script.Close(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Next(ctx)
	}
	if !errors.Is(err, tape.ErrClosed) {
		t.Errorf("the follower ends with %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// unnamedJob is the name of a job without a name or a launcher: that of the test's session, which the player is in.
func unnamedJob(t *testing.T) string {
	t.Helper()
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("session-%d-%s", session, host)
}

// The header's fields about the process, and its rank.
func TestHeader(t *testing.T) {
	unnamed := unnamedJob(t)
	for _, c := range []struct {
		env        []string
		rank, size int
		job        string
		bootID     string
		stall      time.Duration
	}{
		{[]string{"RANK=3", "WORLD_SIZE=8", "NCCL_HOSTID=node1"}, 3, 8, "default", "node1", 0},
		{[]string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"}, 0, 2, "default", "", 0},
		{
			[]string{
				"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=6", "RANK=x", "WORLD_SIZE=6", "MASTER_PORT=29500",
				"SLURM_JOB_ID=17", "SLURM_STEP_ID=0",
			}, 5, 6, "slurm-17-0", "", 0,
		},
		{
			[]string{
				"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=a/b",
				"TORCHELASTIC_RESTART_COUNT=1", "SLURM_JOB_ID=17",
			}, 0, 2, "pytorch-29500-1-a-b-fd00--1", "", 0,
		},
		{
			[]string{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1", "MASTER_ADDR=" + strings.Repeat("n", 64)},
			0, 2, "pytorch-1-" + strings.Repeat("n", 53), "", 0,
		},
		{
			[]string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=prterun-n1-77@1"},
			0, 2, "openmpi-prterun-n1-77-1", "", 0,
		},
		{[]string{"RANK=8", "WORLD_SIZE=8", "MASTER_PORT=29500"}, -1, 0, unnamed, "", 0},
		{
			[]string{"CARILLON_STALL_THRESHOLD=1h2m3.5s"},
			-1, 0, unnamed, "",
			time.Hour + 2*time.Minute + 3500*time.Millisecond,
		},
		{[]string{"CARILLON_STALL_THRESHOLD=1250ms"}, -1, 0, unnamed, "", 1250 * time.Millisecond},
		{[]string{"CARILLON_STALL_THRESHOLD=off"}, -1, 0, unnamed, "", 0},
		{[]string{"CARILLON_STALL_THRESHOLD=5"}, -1, 0, unnamed, "", 0},
		{nil, -1, 0, unnamed, "", 0},
	} {
		before := time.Now()
		path := playOn(t, world, c.env...)
		r, err := tape.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		h := r.Header()
		_ = r.Close()
		me := process.Self()
		if c.bootID == "" {
			c.bootID = me.BootID.String()
		}
		host, _ := os.Hostname()
		if h.Rank != c.rank || h.JobSize != c.size || h.BootID != c.bootID || h.KernelBoot != me.BootID ||
			h.Host != host || h.Job != c.job || h.Program != "player" || !h.Closed {
			t.Errorf("%q: the header is %+v", c.env, h)
		}
		slow := time.Hour // the player's own, or the stall threshold
		if c.stall > 0 {
			slow = min(slow, c.stall)
		}
		if h.StallAfter != c.stall || h.SlowAfter != slow {
			t.Errorf("%q: it stalls after %v and is slow after %v, want %v and %v", c.env, h.StallAfter, h.SlowAfter,
				c.stall, slow)
		}
		if name := fmt.Sprintf("%s-%d.tape", host, h.PID); filepath.Base(path) != name {
			t.Errorf("the tape is %s, not %s", path, name)
		}
		if h.Created.Before(before) || h.Created.After(time.Now()) {
			t.Errorf("it was created at %v, after %v", h.Created, before)
		}
		for path, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			if is, err := os.Stat(path); err != nil || is.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %v", path, is.Mode(), err, want)
			}
		}
	}
}

// A file that another process left under the name of the tape is renamed.
func TestInTheWay(t *testing.T) {
	dir := t.TempDir()
	job := filepath.Join(dir, unnamedJob(t))
	script := fmt.Sprintf("mkdir -m 700 %s && echo old >%s/$(uname -n)-$$.tape && exec %s", job, job, player)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), dirVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(job, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil || (string(text) == "old\n") != strings.HasSuffix(path, ".old.tape") {
			t.Errorf("%s has %d bytes, %v", path, len(text), err)
		}
	}
}

// If no tape can be made, the process runs without one, and one line says why.
func TestWithoutTape(t *testing.T) {
	for _, c := range []struct {
		name, says string
		make       func(dir string) error // makes an existing directory unusable
	}{
		{"a file", "can't be created: Not a directory", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "tapes"), nil, 0o600)
		}},
		{"below a file", "can't be created: Not a directory", func(dir string) error {
			return os.Symlink("/dev/null", filepath.Join(dir, "tapes"))
		}},
		{"writable by others", "is writable by others (mode 0777)", func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "tapes"), 0o700); err != nil {
				return err
			}
			return os.Chmod(filepath.Join(dir, "tapes"), 0o777) //nolint:gosec // it is refused
		}},
		{"a link for the job", "can't be opened as a directory", func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "tapes"), 0o700); err != nil {
				return err
			}
			return os.Symlink(dir, filepath.Join(dir, "tapes", unnamedJob(t)))
		}},
		{"a job that others see", "is not private (mode 0755)", func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "tapes", unnamedJob(t)), 0o755)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(player)
			cmd.Env = append(os.Environ(), dirVariable+"="+filepath.Join(dir, "tapes"))
			cmd.Stdin = strings.NewReader(world + "describe 1 w 1 nccl\nstate 1 2\nsite f f 1 2 3\n" +
				"life 1 1 1 1 0 0 0 1 -1 0 0 0 00000000000000000000000000000000 text\n" +
				"start 1 0 16 7 0 -1 8 1\nphase 1 5\nwait 1 1\nend 1 1 0\nboth 1 1 10\nclose 1\n")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "\n") != 1 ||
				!strings.HasPrefix(string(out), "carillon: no tape") || !strings.Contains(string(out), c.says) ||
				!strings.Contains(string(out), dir) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A process survives the truncation of its tape; any other SIGBUS has the same effect as before.
func TestTruncated(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hole")
	if err := compile("testdata/hole.c", program); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before, kind string
		code         int // -1: SIGBUS ends it
	}{
		{"default", "fault", -1},
		{"default", "sent", -1},
		{"ignore", "fault", -1},
		{"ignore", "sent", 0},
		{"plain", "fault", 41},
		{"info", "fault", 42},
		{"info", "sent", 42},
	} {
		t.Run(c.before+" "+c.kind, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), program, c.before, c.kind)
			cmd.Env = append(os.Environ(), tape.DirVariable+"="+dir, "CARILLON_JOB=job")
			out, err := cmd.CombinedOutput()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if cmd.ProcessState.ExitCode() != c.code || c.code < 0 && status.Signal() != syscall.SIGBUS {
				t.Errorf("%v, want %d\n%s", err, c.code, out)
			}
			tapes, err := filepath.Glob(filepath.Join(dir, "job", "*"))
			if err != nil || len(tapes) != 1 {
				t.Fatalf("%q, %v", tapes, err)
			}
			if is, err := os.Stat(tapes[0]); err != nil || is.Size() != 0 {
				t.Errorf("%v, %v: it was written to", is, err)
			}
		})
	}
}

// The clock of the tape follows the kernel's, and never goes back.
func TestClock(t *testing.T) {
	program := filepath.Join(t.TempDir(), "clock")
	if err := compile("testdata/clock.c", program); err != nil {
		t.Fatal(err)
	}
	run(t, program)
}

func TestJobIsNoPath(t *testing.T) {
	for _, job := range []string{"../job", ".job", "a\nb", strings.Repeat("j", 64)} {
		cmd := exec.Command(player)
		cmd.Env = append(os.Environ(), dirVariable+"="+t.TempDir(), "CARILLON_JOB="+job)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "CARILLON_JOB") {
			t.Errorf("%q: %v: %s", job, err, out)
		}
	}
}

// The budget is 100 ns, the same as for Go's writer.
func BenchmarkStartEnd(b *testing.B) {
	const times = 1_000_000
	program := filepath.Join(b.TempDir(), "bench")
	if err := compile("testdata/bench.c", program); err != nil {
		b.Fatal(err)
	}
	var spent int64
	for b.Loop() {
		cmd := exec.Command(program, strconv.Itoa(times))
		cmd.Env = append(os.Environ(), tape.DirVariable+"="+b.TempDir())
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		spent += ns
	}
	b.ReportMetric(float64(spent)/float64(b.N)/times, "ns/op")
}
