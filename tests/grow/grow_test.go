package grow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// Variables that make the test's binary a process of a job: a member from the start, or a rank that joins later, with
// the id in joinVariable.
const (
	memberVariable = "CARILLONTEST_GROW_MEMBER"
	joinVariable   = "CARILLONTEST_GROW_JOIN"
)

// newSize is the number of ranks after the growth, and giveUp how long impatient members wait for the growth.
const (
	newSize = 3
	giveUp  = 2 * time.Second
)

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(context.Context, *node.Node, string) error{
		memberVariable: member,
		joinVariable:   newcomer,
	} {
		if value := os.Getenv(variable); value != "" {
			os.Exit(exitCode(asRank(run, value)))
		}
	}
	os.Exit(e2e.Main(m))
}

func exitCode(err error) int {
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// asRank runs a rank on a node of its own.
func asRank(run func(context.Context, *node.Node, string) error, value string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	return run(ctx, n, value)
}

// member is a rank of the world that grows. Rank 0 makes the id and prints it; the test passes it to the newcomer.
func member(ctx context.Context, n *node.Node, value string) error {
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close()
	if err := work(ctx, world); err != nil {
		return err
	}
	var id ccl.UniqueID
	if world.Rank() == 0 {
		if id, err = n.Runtime().NewUniqueID(); err != nil {
			return err
		}
		fmt.Printf("id %s\n", id)
	}
	patience := ctx
	if value == "impatient" {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, giveUp)
		defer cancel()
	}
	grown, err := world.Grow(patience, id, newSize)
	if err != nil {
		var peer *ccl.PeerError
		if errors.As(err, &peer) {
			fmt.Printf("misses rank %d\n", peer.Rank)
		}
		return errors.Join(err, work(ctx, world)) // the parent is unchanged
	}
	defer grown.Close()
	return errors.Join(work(ctx, grown), work(ctx, world), grown.Destroy(ctx), world.Destroy(ctx))
}

// newcomer joins with the id that it was given.
func newcomer(ctx context.Context, n *node.Node, value string) error {
	var id ccl.UniqueID
	if err := id.UnmarshalText([]byte(value)); err != nil {
		return err
	}
	grown, err := n.Runtime().JoinGrow(ctx, id, newSize, newSize-1)
	if err != nil {
		return err
	}
	defer grown.Close()
	return errors.Join(work(ctx, grown), grown.Destroy(ctx))
}

// work sums an array over all ranks that is large enough to be sent in pieces.
func work(ctx context.Context, c *ccl.Comm) error {
	numbers := make([]float32, 100_000)
	for i := range numbers {
		numbers[i] = float32(c.Rank() + 1)
	}
	if err := ccl.AllReduce(ctx, c, numbers, numbers, ccl.Sum); err != nil {
		return err
	}
	want := float32(c.Size() * (c.Size() + 1) / 2)
	for i, x := range numbers {
		if x != want {
			return fmt.Errorf("the sum of %d ranks is %g at %d, want %g", c.Size(), x, i, want)
		}
	}
	fmt.Printf("rank %d of %d is right\n", c.Rank(), c.Size())
	return nil
}

// members starts two processes that are to grow to three ranks, and returns the id that rank 0 printed.
func members(t *testing.T, patience string, flags ...string) (*e2e.Job, string) {
	t.Helper()
	args := append([]string{"run", "-n", strconv.Itoa(newSize - 1), "--linger", "1m"}, flags...)
	j := e2e.Start(t, []string{memberVariable + "=" + patience}, "carillon", append(args, "--", os.Args[0])...)
	return j, j.Await(`^\[0\] id (\S+)$`)[1]
}

func TestTwoProcessesGrowToThree(t *testing.T) {
	for name, flags := range map[string][]string{"one node": nil, "two nodes": {"--simulate-nodes", "2"}} {
		t.Run(name, func(t *testing.T) {
			j, id := members(t, "patient", flags...)
			third := e2e.Start(t, []string{joinVariable + "=" + id}, os.Args[0])
			if code := third.ExitCode(); code != 0 {
				t.Errorf("the newcomer's exit code is %d: %s", code, third.Output())
			}
			third.Await(`^rank 2 of 3 is right$`)
			if code := j.ExitCode(); code != 0 {
				t.Errorf("the members' exit code is %d", code)
			}
			for rank := range newSize - 1 {
				j.Await(fmt.Sprintf(`^\[%d\] rank %d of 3 is right$`, rank, rank))
			}
		})
	}
}

func TestNewcomerThatNeverComesIsNamed(t *testing.T) {
	j, _ := members(t, "impatient")
	if code := j.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for rank := range newSize - 1 {
		j.Await(fmt.Sprintf(`^\[%d\] misses rank 2$`, rank))
		// Once before the growth, and once after it failed: the parent is unchanged.
		j.Await(fmt.Sprintf(`(?s)\[%d\] misses rank 2\n.*^\[%d\] rank %d of 2 is right$`, rank, rank, rank))
	}
}

func TestNewcomerThatDiesIsNamed(t *testing.T) {
	// The members stop waiting after giveUp, however far the newcomer has come by then.
	j, id := members(t, "impatient")
	third := e2e.Start(t, []string{joinVariable + "=" + id}, os.Args[0])
	third.Signal(syscall.SIGKILL)
	if code := third.ExitCode(); code != 128+9 {
		t.Fatalf("the newcomer's exit code is %d", code)
	}
	for rank := range newSize - 1 {
		j.Await(fmt.Sprintf(`^\[%d\] misses rank 2$`, rank))
	}
	if code := j.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}
