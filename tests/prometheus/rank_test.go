package prometheus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test binary a rank of a job, with one of the roles.
const roleVariable = "PROMETHEUS_TEST_ROLE"

// roles are the things that a rank can do with its world.
var roles = map[string]func(ctx context.Context, rt *ccl.Runtime, world *ccl.Comm) error{
	"steps":    steps,
	"mistakes": mistakes,
}

// pausing is the rank that can be told to pause: SIGUSR1 pauses it, SIGUSR2 resumes it.
const pausing = 1

// startJob starts a job of two such ranks with low thresholds, and waits until they are at work and their metrics show
// it. It returns the folder with the list of its targets.
func startJob(t *testing.T, role string, more ...string) (run *e2e.Job, targets string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	targets = t.TempDir()
	env := []string{roleVariable + "=" + role, "CARILLON_SLOW_THRESHOLD=100ms", "CARILLON_STALL_THRESHOLD=500ms"}
	run = e2e.Start(t, append(env, more...), "carillon", "run", "-n", "2", "--job", role, "--tape-dir", t.TempDir(),
		"--sd-file", targets+"/job.json", "--", program)
	for rank := range 2 {
		run.Await(fmt.Sprintf(`^\[%d\] at work$`, rank))
	}
	for _, tgt := range readTargets(t, targets+"/job.json") {
		for deadline := time.Now().Add(time.Minute); !strings.Contains(get(t, tgt.Targets[0], "text/plain"),
			`kind="all_reduce",size=`); {
			if time.Now().After(deadline) {
				t.Fatalf("rank %s has no all-reduce in its metrics", tgt.Labels["rank"])
			}
		}
	}
	return run, targets
}

// play is a rank's main. It returns the exit code.
func play(name string) int {
	if err := run(context.Background(), roles[name]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, role func(context.Context, *ccl.Runtime, *ccl.Comm) error) (err error) {
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	world, err := n.Runtime().World(ctx, ccl.WithName("world"))
	if err != nil {
		return err
	}
	defer world.Close() //nolint:errcheck // the job is over
	return role(ctx, n.Runtime(), world)
}

// steps makes an all-reduce fifty times a second until SIGTERM. Whether to go on is part of what is reduced, so that
// all ranks end at the same step.
func steps(ctx context.Context, _ *ccl.Runtime, world *ccl.Comm) error {
	end, pause, resume := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	signal.Notify(pause, syscall.SIGUSR1)
	signal.Notify(resume, syscall.SIGUSR2)
	fmt.Println("at work")
	numbers := make([]float32, 256)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		clear(numbers)
		select {
		case <-end:
			numbers[0] = 1
		case <-pause:
			if world.Rank() == pausing {
				<-resume
			}
		default:
		}
		if err := ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum); err != nil || numbers[0] > 0 {
			return err
		}
	}
}

// mistakes makes the mistakes that metrics count, so that each metric has a series, and then continues with steps.
func mistakes(ctx context.Context, rt *ccl.Runtime, world *ccl.Comm) error {
	twice, err := world.Split(ctx, 0, world.Rank(), ccl.WithName("twice"))
	if err != nil {
		return err
	}
	if err := twice.Destroy(ctx); err != nil {
		return err
	}
	if err := twice.Destroy(ctx); err == nil {
		return errors.New("a second Destroy was not refused")
	}
	// The other rank is at fault.
	left, err := world.Split(ctx, 0, world.Rank(), ccl.WithName("left"))
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		_ = left.Abort(errors.New("on purpose"))
	} else if err := ccl.Barrier(ctx, left); err == nil {
		return errors.New("a barrier with a rank that aborted went well")
	} else {
		_ = left.Abort(err)
	}
	// A call that comes too early, on a non-blocking communicator.
	early, err := rt.InitAll(ctx, 2, ccl.NonBlocking())
	if err != nil && !errors.Is(err, ccl.ErrInProgress) {
		return err
	}
	_, err = early[0].Split(ctx, 0, 0)
	if err == nil || !errors.Is(err, ccl.ErrInProgress) {
		return fmt.Errorf("a split during the init: %w", err)
	}
	for _, c := range early {
		if err := c.Wait(ctx); err != nil {
			return err
		}
	}
	for _, c := range slices.Backward(early) {
		_ = c.Close()
	}
	return steps(ctx, rt, world)
}
