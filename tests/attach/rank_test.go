package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test's binary a rank of a job.
const roleVariable = "CARILLONTEST_ATTACH_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := rank(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	var err error
	if built, err = os.MkdirTemp("", "carillon-attach-"); err != nil {
		panic(err)
	}
	code := e2e.Main(m)
	os.RemoveAll(built)
	os.Exit(code)
}

// built is a folder for what several tests need to build.
var built string

// stays is the role of a rank that goes on running after the second collective has failed.
const stays = "stays"

// rank makes two collectives. Rank 2 makes the second when it gets SIGUSR1; all end at SIGUSR2.
func rank() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
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
	err = ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum)
	if err != nil && os.Getenv(roleVariable) != stays {
		return err
	}
	select {
	case <-end:
	case <-ctx.Done():
	}
	return errors.Join(err, world.Destroy(ctx))
}

// Variables that give ranks telemetry of their own, or switch it off.
var (
	own = []string{
		roleVariable + "=1", "CARILLON_STALL_THRESHOLD=500ms", "CARILLON_SLOW_THRESHOLD=off", "CARILLON_HEALTH_ADDR=",
		"CARILLON_HEALTH_TOKEN=", "CARILLON_TAPE_DIR=",
	}
	none = []string{
		roleVariable + "=1", "CARILLON_STALL_THRESHOLD=off", "CARILLON_RAS=off", "CARILLON_HEALTH_ADDR=off",
		"CARILLON_TAPE_DIR=",
	}
)

// start starts a job of four ranks with their tapes in a folder, and returns their pids once rank 2 holds the others
// up.
func start(t *testing.T, tapes string, env []string) (job *e2e.Job, pids [4]int) {
	t.Helper()
	job = e2e.Start(t, env, "carillon", "run", "-n", "4", "--linger", "1h", "--tape-dir", tapes, "--job", "held-up",
		"--", os.Args[0])
	for r := range pids {
		pids[r] = job.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, r))
	}
	return job, pids
}

// agent starts carillon agent for the tapes in a folder, and returns its endpoint.
func agent(t *testing.T, tapes string, env ...string) (a *e2e.Job, url string) {
	t.Helper()
	a = e2e.Start(t, append([]string{
		"CARILLON_STALL_THRESHOLD=500ms", "CARILLON_HEALTH_TOKEN=", "CARILLON_HEALTH_ADDR=",
		"CARILLON_RAS_MIN_POLL_INTERVAL=off",
	}, env...), "carillon", "agent", "--tape-dir", tapes)
	return a, a.Await(`agent: a page for each process is at (http://\S+)/`)[1]
}
