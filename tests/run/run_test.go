package run

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test's binary a rank of a job.
const roleVariable = "CARILLONTEST_RUN_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := quietRank(role); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(e2e.Main(m))
}

// waiting is a rank that prints its process id and then waits for a signal.
const waiting = `echo ready $$; exec sleep infinity`

// start starts n ranks of a shell script, and returns their process ids once they have printed them.
func start(t *testing.T, n int, script string, flags ...string) (*e2e.Job, []int) {
	t.Helper()
	args := append([]string{"run", "-n", fmt.Sprint(n)}, flags...)
	j := e2e.Start(t, nil, "carillon", append(args, "--", "sh", "-c", script)...)
	pids := make([]int, n)
	for rank := range pids {
		pids[rank] = j.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, rank))
	}
	return j, pids
}

// check compares the exit code, and looks for texts in the output.
func check(t *testing.T, j *e2e.Job, code int, texts ...string) {
	t.Helper()
	if got := j.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, text := range texts {
		if !strings.Contains(j.Output(), text) {
			t.Errorf("the output lacks %q", text)
		}
	}
}

func TestKilledRankEndsTheJob(t *testing.T) {
	j, pids := start(t, 4, waiting, "--linger", "0s")
	e2e.Kill(t, pids[2], syscall.SIGKILL)
	check(t, j, 128+9,
		fmt.Sprintf("carillon: rank 2 (pid %d) was killed by SIGKILL after ", pids[2]),
		"; ranks 0, 1 and 3 were ended by the launcher's SIGTERM\n")
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
}

func TestOthersMayEndByThemselves(t *testing.T) {
	// Rank 1 fails; rank 0 sees that as it would in a collective, and has its own exit code.
	dir := t.TempDir()
	fifo := filepath.Join(dir, "line")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `if [ $RANK = 1 ]; then exec 3>` + fifo + `; echo ready $$; exec sleep infinity; fi
		exec 3<` + fifo + `; echo ready $$; read line <&3; echo rank 1 is gone; exit 4`
	j, pids := start(t, 2, script, "--linger", "1h")
	e2e.Kill(t, pids[1], syscall.SIGSEGV)
	check(t, j, 128+11, "[0] rank 1 is gone\n", "; rank 0 exited with 4\n")
}

// TestRestart: when a rank is killed, all ranks are started again, and their logs are continued.
func TestRestart(t *testing.T) {
	logs := t.TempDir()
	script := `echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS
		[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; ` + waiting
	j := e2e.Start(t, nil, "carillon", "run", "-n", "2", "--max-restarts", "5", "--linger", "0s", "--tee", logs, "--",
		"sh", "-c", script)
	first := j.AwaitPID(`^\[1\] ready (\d+)$`)
	e2e.Kill(t, first, syscall.SIGKILL)
	j.Await(`^carillon: restarting all ranks: restart 1 of 5$`)
	j.Await(`^\[1\] attempt 1 of 5$`)
	second := j.AwaitPID(`restart 1 of 5\n(?s:.*)^\[0\] ready (\d+)$`)
	e2e.Kill(t, second, syscall.SIGKILL)
	check(t, j, 0, "restart 2 of 5", "[1] attempt 2 of 5\n")
	e2e.AwaitEnd(t, first)
	e2e.AwaitEnd(t, second)
	log, err := os.ReadFile(filepath.Join(logs, "rank-1.log"))
	if err != nil || strings.Count(string(log), "attempt ") != 3 {
		t.Errorf("the log of rank 1, %v:\n%s", err, log)
	}
}

// TestNoRestartOfAJobThatWasToldToEnd: a job that was told to end is not restarted, although its ranks fail then.
func TestNoRestartOfAJobThatWasToldToEnd(t *testing.T) {
	j, _ := start(t, 2, waiting, "--max-restarts", "5")
	j.Signal(syscall.SIGTERM)
	check(t, j, 128+15)
	if strings.Contains(j.Output(), "restart") {
		t.Error("it was started again")
	}
}

func TestJobGoesOnWithoutSomeRanks(t *testing.T) {
	j, pids := start(t, 4, `trap 'kill $!; exit 0' USR1; sleep infinity & echo ready $$; wait`, "--min-ranks", "2",
		"--linger", "0s")
	for _, rank := range []int{0, 3} {
		e2e.Kill(t, pids[rank], syscall.SIGKILL)
		j.Await(fmt.Sprintf(`^carillon: rank %d \(pid %d\) was killed by SIGKILL after .*; the job goes on with rank`,
			rank, pids[rank]))
	}
	j.Signal(syscall.SIGUSR1)
	check(t, j, 0, "the job goes on with ranks 1 and 2\n", "carillon: ranks 1 and 2 ended well after ",
		fmt.Sprintf("; rank 0 (pid %d) was lost: killed by SIGKILL after ",
			pids[0]), fmt.Sprintf("; rank 3 (pid %d) was lost", pids[3]))
}

func TestTooFewRanksEndTheJob(t *testing.T) {
	j, pids := start(t, 3, waiting, "--min-ranks", "2", "--linger", "0s")
	e2e.Kill(t, pids[0], syscall.SIGKILL)
	j.Await(`the job goes on with ranks 1 and 2$`)
	e2e.Kill(t, pids[2], syscall.SIGABRT)
	check(t, j, 128+6, fmt.Sprintf("carillon: rank 2 (pid %d) was killed by SIGABRT", pids[2]),
		"; rank 0 was killed by SIGKILL; rank 1 was ended by the launcher's SIGTERM\n")
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
}

func TestExitCode(t *testing.T) {
	j := e2e.Start(t, nil, "carillon", "run", "-n", "3", "--", "sh", "-c", `exit $((RANK == 1 ? 42 : 0))`)
	check(t, j, 42, "carillon: rank 1 (pid ", "exited with 42 after ", "; ranks 0 and 2 exited with 0\n")
}

func TestSignalsReachTheRanks(t *testing.T) {
	script := `trap 'echo heard USR1' USR1; trap 'echo heard HUP' HUP; trap 'echo bye; kill $!; exit 9' TERM
		sleep infinity & echo ready $$; while :; do wait; done`
	// A signal that is ignored here, as under nohup, would be ignored by the ranks, and a shell could not trap it.
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangUp) })
	j, _ := start(t, 2, script)
	j.Signal(syscall.SIGUSR1)
	j.Await(`^\[0\] heard USR1$`)
	j.Await(`^\[1\] heard USR1$`)
	j.Signal(syscall.SIGHUP)
	j.Await(`^\[0\] heard HUP$`)
	j.Await(`^\[1\] heard HUP$`)
	j.Signal(syscall.SIGTERM)
	check(t, j, 9, "[0] bye\n", "[1] bye\n", "carillon: ranks 0 and 1 exited with 9 on the launcher's SIGTERM after ")
}

func TestSecondInterruptKills(t *testing.T) {
	j, pids := start(t, 2, `trap '' INT TERM; echo ready $$; sleep infinity`, "--grace", "1h")
	j.Signal(syscall.SIGINT)
	j.Await("SIGINT: forwarded to the ranks")
	j.Signal(syscall.SIGINT)
	check(t, j, 128+9, "ranks 0 and 1 were ended by the launcher's SIGKILL after ")
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
}

func TestRanksDoNotOutliveTheLauncher(t *testing.T) {
	j, pids := start(t, 3, waiting)
	j.Signal(syscall.SIGKILL)
	for _, pid := range pids {
		e2e.AwaitEnd(t, pid)
	}
}

func TestStoppedRankEndsToo(t *testing.T) {
	j, pids := start(t, 2, waiting, "--linger", "0s", "--grace", "1h")
	e2e.Kill(t, pids[0], syscall.SIGSTOP)
	e2e.Kill(t, pids[1], syscall.SIGKILL)
	check(t, j, 128+9, "rank 0 was ended by the launcher's SIGTERM")
}

func TestClosedPipeEndsTheJob(t *testing.T) {
	// The reader takes one line and exits. Both ranks print without end.
	j := e2e.Start(t, nil, "bash", "-c", `set -o pipefail; carillon run -n 2 -- yes | head -n 1`)
	check(t, j, 128+13, "] y\n", "the job was ended, as its output can't be shown")
}

func TestLogPerRank(t *testing.T) {
	dir := t.TempDir()
	j := e2e.Start(t, nil, "carillon", "run", "-q", "-n", "2", "--tee", dir, "--", "sh", "-c",
		`echo rank $RANK; echo oops >&2`)
	check(t, j, 0)
	for rank := range 2 {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rank-%d.log", rank)))
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("rank %d\n", rank)) ||
			!strings.Contains(string(text),
				"oops\n") {
			t.Errorf("log of rank %d: %q, %v", rank, text, err)
		}
	}
}

func TestManyRanksAndMuchOutput(t *testing.T) {
	const ranks, lines = 24, 2000
	j := e2e.Start(t, nil, "carillon", "run", "-q", "-n", fmt.Sprint(ranks), "--", "seq", "-f", "line %g",
		fmt.Sprint(lines))
	check(t, j, 0)
	const prefix = len("[10] ") // all prefixes have this length
	var want strings.Builder
	for n := range lines {
		fmt.Fprintf(&want, "line %d", n+1)
	}
	// A line in which a rank pauses is shown in pieces, so the texts are compared without line ends.
	got := make([]strings.Builder, ranks)
	for line := range strings.Lines(j.Output()) {
		var rank int
		if _, err := fmt.Sscanf(line, "[%d] ", &rank); err != nil || rank >= ranks {
			t.Fatalf("%q: %v", line, err)
		}
		got[rank].WriteString(strings.TrimSuffix(line[prefix:], "\n"))
	}
	for rank := range got {
		if got[rank].String() != want.String() {
			t.Errorf("rank %d printed %d bytes, want %d, and these ones: %.200q", rank, got[rank].Len(), want.Len(),
				got[rank].String())
		}
	}
}
