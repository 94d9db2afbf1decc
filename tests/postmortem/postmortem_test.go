package postmortem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test's binary a rank of a job.
const roleVariable = "CARILLONTEST_POSTMORTEM_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := rank(role); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(e2e.Main(m))
}

// rank joins the world and makes one all-reduce. Then it does as its role says, in which rank 1 is different.
func rank(role string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
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
	if world.Rank() == 1 {
		switch role {
		case "hang":
			<-ctx.Done()
			return ctx.Err()
		case "mismatch":
			return ccl.Broadcast(ctx, world, numbers, numbers, 0)
		case "pause":
			goOn := make(chan os.Signal, 1)
			signal.Notify(goOn, syscall.SIGUSR1)
			fmt.Println("pauses")
			<-goOn
		}
	}
	if role == "late" {
		return steps(ctx, world, numbers)
	}
	return ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum)
}

// lateSteps is how many steps a job makes in which rank 1 is late.
const lateSteps = 300

// steps trains, as it were; rank 1 gets its samples from something that takes 5 ms.
func steps(ctx context.Context, world *ccl.Comm, numbers []float32) error {
	samples := make(chan struct{})
	close(samples)
	var slow <-chan time.Time
	if world.Rank() == 1 {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		samples, slow = nil, ticker.C
	}
	for range lateSteps {
		select {
		case <-samples:
		case <-slow:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum); err != nil {
			return err
		}
	}
	return nil
}

// start starts three ranks on two simulated nodes, and returns their process ids once all are in the world.
func start(t *testing.T, role, tapes string) (*e2e.Job, []int) {
	t.Helper()
	j := e2e.Start(t, []string{roleVariable + "=" + role}, "carillon", "run", "-n", "3", "--nodes", "2", "--tape-dir", tapes,
		"--job", role, "--", os.Args[0])
	pids := make([]int, 3)
	for r := range pids {
		pids[r] = j.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, r))
	}
	return j, pids
}

// await asks for the post-mortem until it says all that is expected.
func await(t *testing.T, tapes string, exprs ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		post := e2e.Start(t, nil, "carillon", "postmortem", tapes)
		missing := ""
		if code := post.ExitCode(); code != 0 { // no tapes yet
			missing = fmt.Sprintf("anything (exit code %d)", code)
		}
		words := regexp.MustCompile(`\s+`).ReplaceAllString(post.Output(), " ") // lines may be broken anywhere
		for _, e := range exprs {
			if !regexp.MustCompile(e).MatchString(words) {
				missing = e
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the post-mortem does not say %s:\n%s", missing, post.Output())
		}
	}
}

func TestHang(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "hang", tapes)
	culprit := fmt.Sprintf(`WHAT HAPPENED Rank 1 \([^)]*pid %d\) is not in all_reduce 2 of world \(its last operation there ended at [0-9:.]+\); it is `, pids[1])
	await(t, tapes, culprit+`alive\. Ranks 0 and 2 wait for it\.`, `3 alive`,
		`rank [02] is in all_reduce 2 of world since [0-9:.]+ and waits for rank 1`)
	j.Signal(syscall.SIGKILL) // and the kernel kills the ranks
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
	await(t, tapes, culprit+`dead\. Ranks 0 and 2 wait for it\.`, `3 died`)
}

func TestKilledRank(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "hang", tapes)
	e2e.Kill(t, pids[1], syscall.SIGKILL)
	if code := j.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
	await(t, tapes, fmt.Sprintf(`WHAT HAPPENED Rank 1 \([^)]*pid %d\) died\..* It was in no call\.`, pids[1]),
		`[Rr]anks 0 and 2 said at [0-9:.]+: all_reduce .* the process of rank 1 has ended`)
}

// Nothing goes wrong, but one rank is late for every step: the post-mortem says who, and how many operations it took.
func TestLateRank(t *testing.T) {
	tapes := t.TempDir()
	j, _ := start(t, "late", tapes)
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all := lateSteps + 1
	await(t, tapes, fmt.Sprintf(`WHAT HAPPENED Nothing went wrong: .* Rank 1 was waited for: it spent \S+ in %d all_reduce of world \(up to 4.0 KiB\), the others \S+s( to \S+s)?\.`, all),
		fmt.Sprintf(`OPERATIONS THAT ENDED WELL COMMUNICATOR .* world all_reduce up to 4.0 KiB %d .* 3\.4 MiB`, all))
}

// A rank pauses until the others have waited for more than a second, and all is well then: the post-mortem tells what held the job up.
func TestPause(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "pause", tapes)
	j.Await(`^\[1\] pauses$`)
	await(t, tapes, `COLLECTIVE IN FOR .* 0 ready 1 2 all_reduce 2 \([^)]*\) [1-9][0-9.]*s .* 2 ready 1 2 all_reduce 2 \([^)]*\) [1-9][0-9.]*s `)
	e2e.Kill(t, pids[1], syscall.SIGUSR1)
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	await(t, tapes, `WHAT HAPPENED Nothing was wrong in the end: .* The job was held up for [1-9][0-9.]*m?s: ranks 0 and 2 were in all_reduce 2 of world from \S+ to \S+, and waited for rank 1\.`)
}

func TestMismatch(t *testing.T) {
	tapes := t.TempDir()
	j, _ := start(t, "mismatch", tapes)
	if code := j.ExitCode(); code == 0 {
		t.Error("the job ended well")
	}
	await(t, tapes, `WHAT HAPPENED The ranks of world made different calls: `)
}

func TestTrainingThatLosesARank(t *testing.T) {
	tapes := t.TempDir()
	j := e2e.Start(t, nil, "carillon", "run", "-v", "-n", "4", "--nodes", "2", "--tape-dir", tapes, "--", "digits", "-epochs", "1000000")
	pid := j.AwaitPID(`rank 2: pid (\d+),`)
	await(t, tapes, `COMMUNICATOR world .* 4 ranks on 2 nodes`, `all_reduce \d+`)
	e2e.Kill(t, pid, syscall.SIGKILL)
	j.ExitCode()
	await(t, tapes, fmt.Sprintf(`WHAT HAPPENED Rank 2 \([^)]*pid %d\) died\.`, pid), `ranks 0, 1 and 3 said`, `1 died, 3 closed`)
}
