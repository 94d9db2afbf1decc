package polling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
)

// runRank is a rank's main: rounds until SIGTERM. On SIGUSR1, rank 0 prints how many rounds there were so far, and
// when.
func runRank(ctx context.Context) (err error) {
	n, err := node.Start(ctx, node.FromEnv(), node.WithSignals(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	world, err := n.Runtime().World(ctx, ccl.WithName("world"))
	if err != nil {
		return err
	}
	defer world.Close() //nolint:errcheck // the job is over
	end, mark := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	signal.Notify(mark, syscall.SIGUSR1)
	for rounds := 0; ; rounds++ {
		stop, err := round(ctx, world, rounds, len(end) > 0)
		if err != nil {
			return fmt.Errorf("round %d: %w", rounds, err)
		}
		if rounds == 0 {
			fmt.Println("at work", os.Getpid(), n.HealthURL())
		}
		select {
		case <-mark:
			fmt.Println("mark", rounds+1, time.Now().UnixNano())
		default:
		}
		if stop {
			return nil
		}
	}
}

// round makes a communicator of all ranks in reverse order, uses it, and destroys it. Whether to stop is part of what
// is reduced, so that all ranks stop after the same round.
func round(ctx context.Context, world *ccl.Comm, number int, stop bool) (bool, error) {
	size, rank := world.Size(), world.Rank()
	comm, err := world.Split(ctx, 0, size-rank, ccl.WithName("round"))
	if err != nil {
		return false, err
	}
	if comm.Size() != size || comm.Rank() != size-1-rank {
		return false, fmt.Errorf("rank %d of %d is rank %d of %d", rank, size, comm.Rank(), comm.Size())
	}
	if err := ccl.Barrier(ctx, comm); err != nil {
		return false, err
	}
	numbers := []int64{int64(rank), int64(number), 0}
	if stop {
		numbers[2] = 1
	}
	if err := ccl.AllReduce(ctx, comm, numbers, numbers, ccl.Sum); err != nil {
		return false, err
	}
	if ranks, numbered := int64(size*(size-1)/2), int64(size*number); numbers[0] != ranks || numbers[1] != numbered {
		return false, fmt.Errorf("the sums are %d and %d, want %d and %d", numbers[0], numbers[1], ranks, numbered)
	}
	return numbers[2] > 0, comm.Destroy(ctx)
}
