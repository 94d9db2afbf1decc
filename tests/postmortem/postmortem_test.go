package postmortem

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

// rank joins the world and makes one all-reduce. Then it acts as its role says, in which rank 1 differs from the
// others.
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
	return ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum)
}

// start starts three ranks on two simulated nodes, and returns their process ids once all are in the world.
func start(t *testing.T, role, tapes string) (*e2e.Job, []int) {
	t.Helper()
	j := e2e.Start(t, []string{roleVariable + "=" + role, "CARILLON_STALL_THRESHOLD=1s"}, "carillon", "run", "-n", "3",
		"--simulate-nodes", "2", "--tape-dir", tapes,
		"--job", role, "--", os.Args[0])
	pids := make([]int, 3)
	for r := range pids {
		pids[r] = j.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, r))
	}
	return j, pids
}

// postmortem returns the post-mortem's output, on one line.
func postmortem(t *testing.T, tapes string) string {
	t.Helper()
	post := e2e.Start(t, nil, "carillon", "postmortem", tapes)
	if code := post.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return inOneLine(post.Output())
}

// inOneLine joins a text whose lines may be broken anywhere.
func inOneLine(text string) string { return regexp.MustCompile(`\s+`).ReplaceAllString(text, " ") }

// await runs the post-mortem until its output matches all expressions.
func await(t *testing.T, tapes string, exprs ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		post := e2e.Start(t, nil, "carillon", "postmortem", tapes)
		missing := ""
		if code := post.ExitCode(); code != 0 { // no tapes yet
			missing = fmt.Sprintf("anything (exit code %d)", code)
		}
		words := inOneLine(post.Output())
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
	culprit := fmt.Sprintf(`not_entered \(certain\): rank 1 \([^)]*pid %d\) has not entered all_reduce 2 on `+
		`"world"; .* ago; `+
		`ranks 0 and 2 wait\. `, pids[1])
	await(t, tapes, `WHAT HAPPENED `+culprit, `3 alive`, `all_reduce 2 \([^)]*\) ([2-9]|[1-9][0-9])[0-9.]*s `)
	j.Signal(syscall.SIGKILL) // the kernel then kills the ranks
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
	await(t, tapes, culprit, `3 died`)
}

// A job that hangs is cancelled: the finding is the hang, and not the ranks that were killed while they waited.
func TestCancelledHang(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "hang", tapes)
	culprit := fmt.Sprintf(`not_entered \(certain\): rank 1 \([^)]*pid %d\) has not entered all_reduce 2 on "world"`,
		pids[1])
	await(t, tapes, culprit)
	j.Signal(syscall.SIGTERM)
	j.ExitCode()
	await(t, tapes, `WHAT HAPPENED The job was ended from outside by SIGTERM at [0-9:.]+, while it hung\. `+culprit)
	if text := postmortem(t, tapes); strings.Contains(text, "rank_dead (") || strings.Contains(text, "all_reduce 3") {
		t.Errorf("those that were ended are accused:\n%s", text)
	}
}

// A healthy job is cancelled: the post-mortem reports only that.
func TestCancelledTraining(t *testing.T) {
	tapes := t.TempDir()
	j := e2e.Start(t, nil, "carillon", "run", "-v", "-n", "4", "--simulate-nodes", "2", "--tape-dir", tapes, "--",
		"digits", "-epochs", "1000000")
	await(t, tapes, `all_reduce \d+`)
	j.Signal(syscall.SIGTERM)
	j.ExitCode()
	await(t, tapes,
		`WHAT HAPPENED The job was ended from outside by SIGTERM at [0-9:.]+, while all was well\. PROCESSES`)
}

func TestKilledRank(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "hang", tapes)
	e2e.Kill(t, pids[1], syscall.SIGKILL)
	if code := j.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
	await(t, tapes, fmt.Sprintf(
		`rank_dead \(certain\): rank 1 \([^)]*pid %d\) ended .* ago: it was ended by SIGKILL; ranks 0 and 2 wait\.`,
		pids[1]))
}

// A rank pauses until the others have waited for longer than the threshold, and then all is well: the post-mortem
// reports what held the job up.
func TestPause(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "pause", tapes)
	j.Await(`^\[1\] pauses$`)
	await(t, tapes,
		`COLLECTIVE IN FOR .* 0 ready 1 2 all_reduce 2 \([^)]*\) [1-9][0-9.]*s .* 2 ready 1 2 all_reduce 2 \([^)]*\) `+
			`[1-9][0-9.]*s `)
	e2e.Kill(t, pids[1], syscall.SIGUSR1)
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	await(t, tapes,
		`WHAT HAPPENED Nothing was wrong in the end: .* The job was held up at [0-9:.]+: not_entered \(certain\): `+
			`rank 1 \([^)]*\) has not entered all_reduce 2 on "world"; .* ranks 0 and 2 wait\.`)
}

// The tape of a rank is truncated: the job goes on, and that rank and the post-mortem each report it once. A follower
// that is about to sleep may still set its flag in the file, so that it is not always empty.
func TestTruncatedTape(t *testing.T) {
	tapes := t.TempDir()
	j, pids := start(t, "pause", tapes)
	j.Await(`^\[1\] pauses$`)
	all, err := filepath.Glob(filepath.Join(tapes, "*", fmt.Sprintf("*-%d.tape", pids[0])))
	if err != nil || len(all) != 1 {
		t.Fatalf("rank 0's tapes are %v, %v", all, err)
	}
	if err := os.Truncate(all[0], 0); err != nil {
		t.Fatal(err)
	}
	j.Await(`^\[0\] .*level=ERROR msg="the tape is given up: the process goes on.* was cut short: it has \d+ bytes of `)
	e2e.Kill(t, pids[1], syscall.SIGUSR1)
	if code := j.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(j.Output(), "the tape is given up"); n > 1 {
		t.Errorf("it is told in %d lines", n)
	}
	await(t, tapes, `There is no tape of rank 0 of world: what is missing may matter\. Somebody truncated `+
		filepath.Base(all[0])+`\.`, `2 closed`)
}

func TestMismatch(t *testing.T) {
	tapes := t.TempDir()
	j, _ := start(t, "mismatch", tapes)
	if code := j.ExitCode(); code == 0 {
		t.Error("the job ended well")
	}
	await(t, tapes, `mismatch \(certain\): rank 1 \([^)]*\) made a different call`+
		` than the others as number 2 on "world": `+
		`.*all_reduce of float32, 4000 bytes; .*broadcast`)
}

func TestTrainingThatLosesARank(t *testing.T) {
	tapes := t.TempDir()
	j := e2e.Start(t, nil, "carillon", "run", "-v", "-n", "4", "--simulate-nodes", "2", "--tape-dir", tapes, "--",
		"digits", "-epochs", "1000000")
	pid := j.AwaitPID(`rank 2: pid (\d+),`)
	await(t, tapes, `COMMUNICATOR world .* 4 ranks on 2 nodes`, `all_reduce \d+`)
	e2e.Kill(t, pid, syscall.SIGKILL)
	j.ExitCode()
	await(t, tapes, fmt.Sprintf(`rank_dead \(certain\): rank 2 \([^)]*pid %d\) ended .* ago: it was ended by SIGKILL; `+
		`ranks 0, 1 and 3 wait\.`, pid), `1 died, 3 closed`)
}
