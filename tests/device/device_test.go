package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// Variables that make the test's binary a rank of a job, with its role, and that make ranks share a GPU.
const (
	roleVariable   = "CARILLONTEST_DEVICE_ROLE"
	sharedVariable = "CARILLONTEST_DEVICE_SHARED"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := rank(role); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "carillon-device-")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := e2e.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// jobRanks is how many ranks a job has.
const jobRanks = 3

// fake has the paths of the fake driver's libraries.
var fake struct{ libcuda, kernels string }

func build(dir string) (err error) {
	if fake.libcuda, err = fakecuda.Build(dir); err != nil {
		return err
	}
	fake.kernels, err = fakecuda.BuildKernels(dir, filepath.Join("..", "..", "kernels", "cuda", "*.cu"))
	return err
}

// rank joins the world on a GPU and makes two all-reduces there. In the second, rank 1 acts as its role says.
func rank(role string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	shared := os.Getenv(sharedVariable) != ""
	n, err := node.Start(ctx, node.FromEnv(), node.WithGPU(gpu.Options{Shared: shared}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	c := n.GPU().Context()
	if at, want := fmt.Sprint(c.Device().Ordinal()), os.Getenv("LOCAL_RANK"); at != want && !shared {
		return fmt.Errorf("local rank %s is on device %s", want, at)
	}
	world, err := n.Runtime().World(ctx, ccl.WithDevice(n.GPU()))
	if err != nil {
		return err
	}
	defer world.Close()
	s, err := c.Stream(0)
	if err != nil {
		return err
	}
	b, err := cuda.Alloc[int32](c, 100)
	if err != nil {
		return err
	}
	numbers := make([]int32, 100)
	if err := errors.Join(c.CopyToDevice(b.Pointer(), kernels.Bytes(numbers)),
		ccl.AllReduceOn(ctx, world, s, b, b, ccl.Sum), world.Wait(ctx)); err != nil {
		return err
	}
	fmt.Printf("ready %d\n", os.Getpid())
	if role == "graph" {
		return graph(ctx, c, world, s, b)
	}
	if world.Rank() == 1 {
		switch role {
		case "absent":
			<-ctx.Done()
			return ctx.Err()
		case "busy", "impatient": // with work that never ends on its stream, before the all-reduce
			flag, err := cuda.Alloc[uint32](c, 1)
			if err != nil {
				return err
			}
			if err := errors.Join(c.CopyToDevice(flag.Pointer(), make([]byte, 4)),
				s.WaitValue(flag.Pointer(), 1)); err != nil {
				return err
			}
		case "mismatch":
			return errors.Join(ccl.BroadcastOn(ctx, world, s, b, b, 0), world.Wait(ctx))
		}
	}
	patience := ctx
	if role == "impatient" {
		var stop context.CancelFunc
		patience, stop = context.WithTimeout(ctx, 3*time.Second)
		defer stop()
	}
	return errors.Join(ccl.AllReduceOn(ctx, world, s, b, b, ccl.Sum), world.Wait(patience))
}

// graph captures two all-reduces, launches the graph twice, and makes one more all-reduce; rank 1 launches the graph
// only once.
func graph(ctx context.Context, c *cuda.Context, world *ccl.Comm, s *cuda.Stream, b cuda.Buffer[int32]) error {
	sum := func() error { return ccl.AllReduceOn(ctx, world, s, b, b, ccl.Sum) }
	if err := errors.Join(s.BeginCapture(), sum(), sum()); err != nil {
		return err
	}
	g, err := s.EndCapture()
	if err != nil {
		return err
	}
	x, err := g.Instantiate()
	if err != nil {
		return err
	}
	if err := x.Launch(s); err != nil {
		return err
	}
	if world.Rank() == 1 {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.Join(x.Launch(s), sum(), world.Wait(ctx))
}

// start starts three ranks, and returns their process ids once all are in the world.
func start(t *testing.T, role, tapes string) (*e2e.Job, []int) {
	t.Helper()
	j := e2e.Start(t, []string{
		roleVariable + "=" + role, fmt.Sprint("FAKECUDA_DEVICES=", jobRanks),
		"LD_LIBRARY_PATH=" + filepath.Dir(fake.libcuda), "FAKECUDA_KERNELS=" + fake.kernels,
		"CARILLON_STALL_THRESHOLD=1s",
	}, "carillon", "run", "-n", strconv.Itoa(jobRanks), "--tape-dir", tapes, "--job", role, "--", os.Args[0])
	pids := make([]int, jobRanks)
	for r := range pids {
		pids[r] = j.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, r))
	}
	t.Cleanup(func() { // runs before the job is ended and its output printed
		for _, pid := range pids {
			if t.Failed() && syscall.Kill(pid, syscall.SIGQUIT) == nil { // it prints the stacks of its goroutines
				e2e.AwaitEnd(t, pid)
			}
		}
	})
	return j, pids
}

// await runs a command until its output matches an expression.
func await(t *testing.T, expr string, command ...string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		asked := e2e.Start(t, nil, "carillon", command...)
		asked.ExitCode()
		said := regexp.MustCompile(`\s+`).ReplaceAllString(asked.Output(), " ")
		if regexp.MustCompile(expr).MatchString(said) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v does not say %s:\n%s", command, expr, asked.Output())
		}
	}
}

// TestNoGPU: a rank that asks for a GPU without a driver or a device doesn't start, and says why.
func TestNoGPU(t *testing.T) {
	broken := t.TempDir() // found before any driver of the machine
	if err := os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, dir := range map[string]string{
		"comes with NVIDIA's driver": broken, "CUDA_ERROR_NO_DEVICE": filepath.Dir(fake.libcuda),
	} {
		j := e2e.Start(t, []string{roleVariable + "=none", "LD_LIBRARY_PATH=" + dir, "FAKECUDA_DEVICES=0"}, os.Args[0])
		if code := j.ExitCode(); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		if out := j.Output(); !strings.Contains(out, "failed: the GPU of rank 0: ") || !strings.Contains(out, says) {
			t.Errorf("the error does not say %q:\n%s", says, out)
		}
	}
}

// TestHangs: live, and after the job was killed, a rank that did not call is distinguished from one whose stream is
// busy.
func TestHangs(t *testing.T) {
	for role, says := range map[string]string{
		"absent": `not_entered \(certain\).* rank 1 \([^)]*pid %d\) has not entered all_reduce 2 on "world".* ` +
			`ranks 0 and 2 wait`,
		"busy": `stream_blocked.* rank 1 \([^)]*pid %d\) launched all_reduce 2 on "world" \S+ ago, and the stream of ` +
			`its device is busy with earlier work.* ranks 0 and 2 wait`,
		"graph": `not_entered \(certain\).* rank 1 \([^)]*pid %d\) has not entered all_reduce 3 on ` +
			`"world \(graphs\)".* ranks 0 and 2 wait`,
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			tapes := t.TempDir()
			j, pids := start(t, role, tapes)
			says := fmt.Sprintf(says, pids[1])
			await(t, says, "status", tapes)
			// The report must be a second old: a tape ends with the process's last sign of life, which may be older.
			await(t, `open for [\d.]+s\b`, "status", tapes)
			j.Signal(syscall.SIGKILL)
			for _, pid := range pids {
				e2e.AwaitEnd(t, pid)
			}
			await(t, says, "postmortem", tapes)
		})
	}
}

// TestGivenUp: ranks wait for the same stream, time out, destroy the communicator and exit.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	j, pids := start(t, "impatient", tapes)
	if code := j.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	await(t, fmt.Sprintf(`just before rank \d gave up an operation on world. stream_blocked \(\w+\): rank 1 \([^)]*`+
		`pid %d\) launched all_reduce 2 on "world".* ranks 0 and 2 wait`, pids[1]), "postmortem", tapes)
}

// TestMismatch: ranks that make different calls on their GPUs fail, and are reported.
func TestMismatch(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	j, _ := start(t, "mismatch", tapes)
	for r := range jobRanks {
		j.Await(fmt.Sprintf(`^\[%d\] failed: .*does not match.*rank 1 (says broadcast|makes another)`, r))
	}
	j.ExitCode()
	// A rank that got the error before it made its own call is no witness of what that would have been.
	await(t, `mismatch \((certain|likely)\): .* as number 2 on "world".*rank 1: broadcast`, "postmortem", tapes)
}

// TestBench: carillon bench measures on GPUs and finds the sums correct. It measures NCCL, too, or says why it can't.
// Like every measurement it doesn't run in parallel with other tests: fake GPUs take all processors, and a rank that
// gets none counts as stopped.
func TestBench(t *testing.T) {
	none := filepath.Join(t.TempDir(), "libnccl.so.2")
	nccl := fakenccl.BuildOn(t, t.TempDir(), "2.28.9", fake.libcuda)
	// The figures in a row of the table: ours, and NCCL's.
	const ours, theirs = `( +\S+ (µs|ms)){4} +\S+ +\S+ (µs|ms) +\S+( +\S+ (µs|ms)){2}`, `( +\S+ (µs|ms) +[0-9.]+){2}`
	for _, c := range []struct {
		name, library, ranks, collectives string
		rows                              []string
		why                               string // in the line that says why there are no columns for NCCL
	}{
		{
			"NCCL", nccl, "2", "all_reduce", []string{
				`all_reduce +2 +2 +8 B` + ours + theirs, `all_reduce +2 +2 +64 B` + ours + theirs,
			}, "",
		},
		{
			"others", nccl, "2", "all_gather,reduce_scatter", []string{
				`all_gather +2 +2 +8 B` + ours + theirs, `all_gather +2 +2 +64 B` + ours + theirs,
				`reduce_scatter +2 +2 +8 B` + ours + theirs, `reduce_scatter +2 +2 +64 B` + ours + theirs,
			}, "",
		},
		{"no library", none, "2", "all_reduce", []string{`all_reduce +2 +2 +8 B` + ours}, regexp.QuoteMeta(none)},
		// Each rank sends at least one element.
		{"shared GPUs", nccl, "3", "all_gather", []string{`all_gather +3 +2 +12 B` + ours}, "3 ranks share 2 GPUs, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := e2e.Start(t, []string{
				"LD_LIBRARY_PATH=" + filepath.Dir(fake.libcuda), "FAKECUDA_DEVICES=2",
				"FAKECUDA_KERNELS=" + fake.kernels, "CARILLON_NCCL_LIB=" + c.library,
			}, "carillon", "bench", "--gpu", c.ranks, "--collective", c.collectives, "--sizes", "8,64", "--min", "1",
				"--max", "2")
			for _, row := range c.rows {
				b.Await(`^ *` + row + ` *$`)
			}
			if code := b.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			compared := c.why == ""
			why := regexp.MustCompile(`(?m)^NCCL: not measured: .*$`).FindAllString(b.Output(), -1)
			if compared != (len(why) == 0) || !compared && !regexp.MustCompile(c.why).MatchString(why[0]) {
				t.Errorf("why NCCL was not measured: %q, want %q", why, c.why)
			}
			columns := regexp.MustCompile(`NCCL eager +ratio +NCCL graph +ratio`).MatchString(b.Output())
			if columns != compared {
				t.Errorf("the table has columns for NCCL: %v, want %v", columns, compared)
			}
		})
	}
}

// TestBenchBeside: other libraries' measurements are shown beside the sizes that they are for.
func TestBenchBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "others.jsonl")
	const others = `{"library":"PyTorch","collective":"all_reduce","ranks":2,"bytes":64,"graph":{"p50_ns":1000000000}}
{"library":"PyTorch","collective":"all_gather","ranks":2,"bytes":8,"graph":{"p50_ns":1000000000}}
`
	if err := os.WriteFile(path, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{
		"LD_LIBRARY_PATH=" + filepath.Dir(fake.libcuda), "FAKECUDA_DEVICES=2", "FAKECUDA_KERNELS=" + fake.kernels,
	}
	b := e2e.Start(t, environment, "carillon", "bench", "--gpu", "2", "--nccl=false", "--sizes", "8,64",
		"--min", "1", "--max", "1", "--beside", path)
	b.Await(`PyTorch eager +ratio +PyTorch graph +ratio *$`)
	b.Await(`^ *all_reduce +2 +2 +8 B .* µs *$`)
	b.Await(`^ *all_reduce +2 +2 +64 B .* µs +1000\.0 ms +0\.\d\d *$`)
	if code := b.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestBenchGoesOn: when NCCL fails during the measurement, its columns end with the reason, and ours go on.
func TestBenchGoesOn(t *testing.T) {
	b := e2e.Start(t, []string{
		"LD_LIBRARY_PATH=" + filepath.Dir(fake.libcuda), "FAKECUDA_DEVICES=2", "FAKECUDA_KERNELS=" + fake.kernels,
		"CARILLON_NCCL_LIB=" + fakenccl.BuildOn(t, t.TempDir(), "2.28.9", fake.libcuda), "FAKENCCL_BREAKS=64",
	}, "carillon", "bench", "--gpu", "2", "--sizes", "8,64,512", "--min", "1", "--max", "2")
	if code := b.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{
		`^NCCL: not measured: 64 B: .*unhandled system error`, // once, from whichever rank saw it first
		`^ *all_reduce +2 +2 +8 B( +\S+ (µs|ms)){4} .* \S+ (µs|ms)( +\S+ (µs|ms) +[0-9.]+){2} *$`,
		`^ *all_reduce +2 +2 +64 B( +\S+ (µs|ms)){4} .* \S+ (µs|ms) *$`,
		`^ *all_reduce +2 +2 +512 B( +\S+ (µs|ms)){4} .* \S+ (µs|ms) *$`,
	} {
		if n := len(regexp.MustCompile(`(?m)`+line).FindAllString(b.Output(), -1)); n != 1 {
			t.Errorf("%d lines are %s, want 1", n, line)
		}
	}
}

// TestTune: carillon tune writes limits, and programs can read them.
func TestTune(t *testing.T) {
	environment := []string{
		"LD_LIBRARY_PATH=" + filepath.Dir(fake.libcuda), "FAKECUDA_DEVICES=2", "FAKECUDA_KERNELS=" + fake.kernels,
	}
	path := filepath.Join(t.TempDir(), "tuning.json")
	c := e2e.Start(t, environment,
		"carillon", "tune", "--ranks", "2", "--sizes", "8", "--push-sizes", "64,128", "--min", "1", "--max", "1",
		"-o", path)
	if code := c.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var written map[string]map[string]int
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &written)
	}
	if err != nil || len(written) != 1 || len(written["2"]) != 9 {
		t.Errorf("tune has written %s (%v)", text, err)
	}
	c = e2e.Start(t, append(environment, "CARILLON_GPU_TUNING="+path+".none"), "carillon", "bench", "--gpu", "2")
	c.Await(`tuning: open .*\.none: no such file`)
	if c.ExitCode() == 0 {
		t.Error("a tuning file that isn't there is no error")
	}
}
