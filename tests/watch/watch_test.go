package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test's binary a rank of a job.
const roleVariable = "CARILLONTEST_WATCH_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := rank(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(e2e.Main(m))
}

// rank makes two collectives. Rank 2 makes the second when it gets SIGUSR1; all end at SIGUSR2.
func rank() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	goOn, end := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGUSR1)
	signal.Notify(end, syscall.SIGUSR2)
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close()
	numbers := make([]float32, 1000)
	if err := ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum); err != nil {
		return err
	}
	fmt.Printf("ready %d\n", os.Getpid())
	if world.Rank() == 2 {
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}
	if err := ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum); err != nil {
		return err
	}
	select {
	case <-end:
	case <-ctx.Done():
	}
	return world.Destroy(ctx)
}

// start starts the job, and returns the folder of its tapes and the pid of rank 2 once it holds the others up.
func start(t *testing.T) (job *e2e.Job, tapes string, pid int) {
	t.Helper()
	tapes = t.TempDir()
	job = e2e.Start(t, []string{
		roleVariable + "=1", "CARILLON_STALL_THRESHOLD=500ms", "CARILLON_SLOW_THRESHOLD=off",
		"CARILLON_HEALTH_TOKEN=", "CARILLON_HEALTH_ADDR=",
	},
		"carillon", "run", "-n", "4", "--tape-dir", tapes, "--job", "held-up", "--", os.Args[0])
	for _, r := range []int{0, 1, 3} {
		job.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, r))
	}
	return job, tapes, job.AwaitPID(`^\[2\] ready (\d+)$`)
}

func TestWatchAndStatus(t *testing.T) {
	job, tapes, pid := start(t)
	watch := e2e.Start(t, []string{"CARILLON_TAPE_DIR=" + tapes}, "carillon", "watch", "held-up")
	watch.Await(
		`^\d\d:\d\d:\d\d CRITICAL verdict\.opened: rank 2 \([^)]*\) has not entered all_reduce 2 on "world".* ` +
			`\(reason not_entered\)$`)

	if text := awaitStatus(t, 2,
		tapes); !regexp.MustCompile(`(?s)^job held-up: CRITICAL, 1 verdict is open\n.*CRITICAL not_entered.*rank 2 ` +
		`\([^)]*\) has not entered.*not begun by rank 2`).MatchString(text) {
		t.Errorf("while it is held up:\n%s", text)
	}
	e2e.Kill(t, pid, syscall.SIGUSR1)
	watch.Await(`^\d\d:\d\d:\d\d .*verdict\.withdrawn: rank 2`)
	if text := awaitStatus(t, 0, filepath.Join(tapes, "held-up")); !strings.HasPrefix(text, "job held-up: healthy\n") {
		t.Errorf("when it goes on:\n%s", text)
	}
	job.Signal(syscall.SIGUSR2)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("the job's exit code is %d", code)
	}
	if code := watch.ExitCode(); code != 0 || !strings.Contains(watch.Output(), "carillon: job held-up has ended") {
		t.Errorf("watch: exit code %d, want 0", code)
	}
	if code, text := status(t, tapes, "--json"); code != 3 || !strings.Contains(text, "no job with tapes in") {
		t.Errorf("when the job has ended: exit code %d, want 3\n%s", code, text)
	}
}

// TestWatchGoesOnWithAnotherRank: the rank whose stream is followed is stopped, and the others report that.
func TestWatchGoesOnWithAnotherRank(t *testing.T) {
	job, tapes, _ := start(t)
	watch := e2e.Start(t, nil, "carillon", "watch", tapes)
	heard := watch.AwaitPID(`rank\.joined: rank \d+ \(.*-(\d+)\)`) // reported by another rank, so it is not this one
	watch.Await(`verdict\.opened: rank 2`)
	for rank := range 4 {
		if pid := job.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, rank)); pid != heard && rank != 2 {
			e2e.Kill(t, pid, syscall.SIGSTOP)
			watch.Await(fmt.Sprintf(`rank\.stopped: rank %d`, rank))
			e2e.Kill(t, pid, syscall.SIGCONT)
			watch.Await(fmt.Sprintf(`rank\.resumed: rank %d`, rank))
		}
	}
}

// status returns the exit code and the output of the command.
func status(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	j := e2e.Start(t, nil, "carillon", append([]string{"status"}, args...)...)
	return j.ExitCode(), j.Output()
}

// awaitStatus returns the command's output once it has an exit code: snapshots are some moments old.
func awaitStatus(t *testing.T, code int, args ...string) (text string) {
	t.Helper()
	var last int
	for range 500 {
		if last, text = status(t, args...); last == code {
			return text
		}
	}
	t.Fatalf("exit code %d, want %d\n%s", last, code, text)
	return ""
}
