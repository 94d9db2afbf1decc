package carrier

import (
	"context"
	"errors"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// faultVariable makes the test's binary a rank, and has the fault of rank 1, which carries what rank 0 sends to rank 3.
const faultVariable = "CARILLONTEST_CARRIER_FAULT"

var faults = map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL}

func TestMain(m *testing.M) {
	if fault := os.Getenv(faultVariable); fault != "" {
		if err := rank(faults[fault]); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(e2e.Main(m))
}

// rank is one of two ranks on each of two nodes.
func rank(fault syscall.Signal) error {
	ctx := context.Background()
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer n.Stop(ctx)
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close() //nolint:errcheck // the ranks end together
	err = ccl.Barrier(ctx, world)
	past := make([]byte, 1) // with it, ranks 0 and 3 tell rank 1 that they are past the barrier
	switch world.Rank() {
	case 0, 3:
		err = errors.Join(err, ccl.Send(ctx, world, past, 1))
	case 1:
		err = errors.Join(err, ccl.Recv(ctx, world, past, 0), ccl.Recv(ctx, world, past, 3),
			syscall.Kill(os.Getpid(), fault))
	}
	if err != nil {
		return err
	}
	data := make([]byte, 1<<20)
	for range 300 { // this takes far longer than rank 1 needs to end
		switch world.Rank() {
		case 0:
			err = ccl.Send(ctx, world, data, 3)
		case 3:
			err = ccl.Recv(ctx, world, data, 0)
		}
		if err != nil {
			return err
		}
	}
	return ccl.Barrier(ctx, world)
}

func start(t *testing.T, fault, tapes string) *e2e.Job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return e2e.Start(t, []string{faultVariable + "=" + fault, "CARILLON_STALL_THRESHOLD=500ms"},
		"carillon", "run", "-n", "4", "--simulate-nodes", "2", "--tape-dir", tapes, "--", self)
}

// TestStopped: ranks 0 and 3 exchange messages, in which rank 1's only part is that its proxy sends them. Only rank 1
// is named, all others wait for it, and when it goes on, all ranks succeed.
func TestStopped(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	job := start(t, "stopped", tapes)
	carrier := job.AwaitPID(`"rank 1 \(\S+, pid (\d+)\) stopped \S+ ago: `) // the waiting ranks may be reported later
	for said := ""; t.Context().Err() == nil && !strings.Contains(said, "; ranks 0, 2 and 3 wait"); {
		status := e2e.Start(t, nil, "carillon", "status", tapes)
		status.ExitCode()
		said = status.Output()
	}
	e2e.Kill(t, carrier, syscall.SIGCONT)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	named := regexp.MustCompile(`reason=(\S+) culprit=(\S+) type=dev.carillon.verdict.opened`).
		FindAllString(job.Output(), -1)
	named = slices.DeleteFunc(named, func(v string) bool { // a busy machine starts a rank late
		return strings.HasPrefix(v, "reason=not_joined ")
	})
	if len(named) != 1 {
		t.Errorf("the verdicts are %q", named)
	}
}

// TestKilled: the errors of both ranks name the rank that was killed, and the sender's error says what that rank
// carried, unless a rank of the other node told the sender of the death first.
func TestKilled(t *testing.T) {
	t.Parallel()
	const died = `the process of rank 1 of "world" has ended: `
	for range 10 {
		job := start(t, "killed", t.TempDir())
		job.Await(`^\[0\] .*send \(operation \d+\) .*: ` + died)
		job.Await(`^\[3\] .*recv \(operation \d+\) .*: ` + died)
		if code := job.ExitCode(); code == 0 {
			t.Error("the job ended well")
		}
		if wrong := regexp.MustCompile(`culprit=[023] `).FindString(job.Output()); wrong != "" {
			t.Errorf("a verdict has %s", wrong)
		}
		if regexp.MustCompile(`(?m)^\[0\] .* it carried what`).MatchString(job.Output()) {
			return
		}
	}
	t.Error("no sender's error says what rank 1 carried")
}
