package jaeger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test binary a rank of a job, with one of the roles.
const roleVariable = "JAEGER_TEST_ROLE"

// roles are the things that a rank can do with its world.
var roles = map[string]func(ctx context.Context, world *ccl.Comm) error{
	"late":  late,
	"twice": twice,
	"stay":  stay,
}

// missing is the rank that comes late.
const missing = 2

// startRole starts a job of four such ranks, and waits until every rank has printed a line that matches said.
func startRole(t *testing.T, role, job, said string, env []string, flags ...string) (run *e2e.Job, pids []int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"run", "-n", "4", "--job", job}, flags...)
	run = e2e.Start(t, append(env, roleVariable+"="+role), "carillon", append(args, "--", program)...)
	for rank := range 4 {
		pids = append(pids, run.AwaitPID(fmt.Sprintf(`^\[%d\] pid (\d+) `+said, rank)))
	}
	return run, pids
}

// play is a rank's main. It returns the exit code.
func play(name string) int {
	if err := run(context.Background(), roles[name]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, role func(context.Context, *ccl.Comm) error) (err error) {
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
	say("health " + n.HealthURL())
	return role(ctx, world)
}

func say(text string) { fmt.Println("pid", os.Getpid(), text) }

// late is an all-reduce that one rank makes late: when it gets SIGUSR1.
func late(ctx context.Context, world *ccl.Comm) error {
	numbers := make([]float32, 1024)
	if world.Rank() == missing {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGUSR1)
		say("is late")
		<-told
	} else {
		say("makes the call")
	}
	if err := ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum); err != nil {
		return err
	}
	return world.Destroy(ctx)
}

// twice destroys a communicator twice.
func twice(ctx context.Context, world *ccl.Comm) error {
	if err := world.Destroy(ctx); err != nil {
		return err
	}
	if err := world.Destroy(ctx); !errors.Is(err, ccl.ErrDestroyed) {
		return errors.New("the second destroy was answered with " + strconv.Quote(fmt.Sprint(err)))
	}
	say("has destroyed it twice")
	return nil
}

// stay makes a communicator, destroys it twice, and stays until a signal that nothing handles ends the process.
func stay(ctx context.Context, world *ccl.Comm) error {
	part, err := world.Split(ctx, 0, world.Rank(), ccl.WithName("part"))
	if err != nil {
		return err
	}
	if err := twice(ctx, part); err != nil {
		return err
	}
	select {}
}
