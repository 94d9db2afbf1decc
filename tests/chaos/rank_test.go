package chaos

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
	"github.com/carillon-rt/carillon/tests/ones"
)

// faultVariable makes the test binary a rank of a job, and names the wrong thing that the rank does on SIGUSR1.
const faultVariable = "CHAOS_TEST_FAULT"

// The wrong things that a rank can do.
const (
	faultSleep    = "sleep"    // it doesn't make its calls until SIGUSR2
	faultMismatch = "mismatch" // it makes a call of another size
	faultOrder    = "order"    // it uses the two communicators in opposite order
)

// sizes of the all-reduces, in float32: one that is sent in one piece, and one that isn't.
var sizes = []int{256, 1 << 14}

const (
	computes    = 50 * time.Millisecond // between two steps
	reportEvery = 5                     // steps
)

// runRank is a rank's main. It trains nothing: a step is a few all-reduces over two communicators of all ranks, and a
// pause in place of computing. SIGUSR1 makes the rank do the wrong thing from its next step on; SIGUSR2 ends the sleep
// of a rank that sleeps.
//
// It prints "ready" with its process id after its first step, and "fault" with the time in nanoseconds since 1970 when
// it does the wrong thing. Rank 0 regularly prints how many steps it has made.
func runRank(ctx context.Context, fault string) (err error) {
	t := trainer{fault: fault, begin: make(chan os.Signal, 1), end: make(chan os.Signal, 1)}
	signal.Notify(t.begin, syscall.SIGUSR1)
	signal.Notify(t.end, syscall.SIGUSR2)
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	if t.first, err = n.Runtime().World(ctx); err != nil {
		return err
	}
	defer t.first.Close() //nolint:errcheck // the error that ended the loop says why
	if t.second, err = t.first.Split(ctx, 0, 0, ccl.WithName("second")); err != nil {
		return err
	}
	defer t.second.Close() //nolint:errcheck // as above
	compute := time.NewTicker(computes)
	defer compute.Stop()
	for steps := 1; ; steps++ {
		if err := t.step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", steps, err)
		}
		switch {
		case steps == 1:
			fmt.Println("ready", os.Getpid(), n.HealthURL())
		case steps%reportEvery == 0 && t.first.Rank() == 0:
			fmt.Println("steps", steps)
		}
		<-compute.C
	}
}

type trainer struct {
	fault         string
	begin, end    chan os.Signal
	first, second *ccl.Comm
}

// step makes one step, right or wrong.
func (t *trainer) step(ctx context.Context) error {
	comms := []*ccl.Comm{t.first, t.second}
	sizes := sizes
	select {
	case <-t.begin:
		fmt.Println("fault", time.Now().UnixNano())
		switch t.fault {
		case faultSleep:
			<-t.end
		case faultMismatch:
			sizes = []int{sizes[0] / 2}
		case faultOrder:
			comms[0], comms[1] = comms[1], comms[0]
		}
	default:
	}
	for _, size := range sizes {
		for _, comm := range comms {
			if err := ones.AllReduce(ctx, comm, size); err != nil {
				return err
			}
		}
	}
	return nil
}
