package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/ones"
)

// reportVariable sets how often a rank reports its progress.
const reportVariable = "SOAK_TEST_REPORT"

// sizes of the all-reduces, in float32: one that is sent in one piece, and one that isn't.
var sizes = []int{256, 1 << 14}

const splitEvery = 25 // steps

// runRank is a rank's main: steps until any rank gets SIGUSR2.
func runRank(ctx context.Context) (err error) {
	every, err := time.ParseDuration(os.Getenv(reportVariable))
	if err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGUSR2)
	pauses := watchPauses(ctx)
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close() //nolint:errcheck // the error that ended the loop says why
	second, err := world.Split(ctx, 0, 0, ccl.WithName("second"))
	if err != nil {
		return err
	}
	defer second.Close() //nolint:errcheck // as above
	said := time.Now()
	for steps := 1; ; steps++ {
		stop, err := step(ctx, world, second, steps, len(end) > 0)
		if err != nil {
			return fmt.Errorf("step %d: %w", steps, err)
		}
		if steps == 1 {
			fmt.Println("ready", os.Getpid(), n.HealthURL())
		}
		if stop || time.Since(said) >= every {
			said = time.Now()
			fmt.Println("steps", steps, "paused", time.Duration(pauses.longest.Load()))
		}
		if stop {
			return errors.Join(second.Destroy(ctx), world.Destroy(ctx))
		}
	}
}

// step computes, reduces over both communicators, and from time to time over a third one that it makes for that.
// Whether to stop is part of what is reduced, so that all ranks stop after the same step.
func step(ctx context.Context, world, second *ccl.Comm, number int, stop bool) (bool, error) {
	compute()
	for _, size := range sizes {
		for _, comm := range []*ccl.Comm{world, second} {
			if err := ones.AllReduce(ctx, comm, size); err != nil {
				return false, err
			}
		}
	}
	if number%splitEvery == 0 {
		third, err := world.Split(ctx, 0, -world.Rank(), ccl.WithName("third"))
		if err != nil {
			return false, err
		}
		if err := errors.Join(ones.AllReduce(ctx, third, sizes[0]), third.Destroy(ctx)); err != nil {
			return false, err
		}
	}
	votes := []int64{0}
	if stop {
		votes[0] = 1
	}
	err := ccl.AllReduce(ctx, world, votes, votes, ccl.Sum)
	return votes[0] > 0, err
}

// compute uses a core for a few milliseconds.
func compute() {
	x := 1.0
	for i := range 1 << 20 {
		x += 1 / (x + float64(i))
	}
	work.Store(uint64(x))
}

// work keeps the compiler from optimizing compute away.
var work atomic.Uint64

// pauses records how long a runnable goroutine of this process had to wait to run.
type pauses struct{ longest atomic.Int64 } // in nanoseconds

// watchPauses watches until ctx ends.
func watchPauses(ctx context.Context) *pauses {
	const interval = 10 * time.Millisecond
	p := &pauses{}
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for last := time.Now(); ctx.Err() == nil; {
			<-ticker.C
			now := time.Now()
			if late := int64(now.Sub(last) - interval); late > p.longest.Load() {
				p.longest.Store(late)
			}
			last = now
		}
	}()
	return p
}
