package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// Four goroutines work as four ranks: each adds its number, and all get the sum.
func ExampleAllReduce() {
	rt, err := ccl.New(ccl.Config{Engine: host.Kind()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer rt.Close(ctx)

	comms, err := rt.InitAll(ctx, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	sums := make([][]float32, len(comms))
	for rank, comm := range comms {
		wg.Go(func() {
			defer comm.Close()
			sums[rank] = []float32{float32(rank), 1}
			if err := ccl.AllReduce(ctx, comm, sums[rank], sums[rank], ccl.Sum); err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(sums)
	// Output: [[6 4] [6 4] [6 4] [6 4]]
}

// A group lets one goroutine work for several ranks, and makes sends and receives that need each other concurrently.
func ExampleRuntime_Group() {
	rt, err := ccl.New(ccl.Config{Engine: host.Kind()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer rt.Close(ctx)
	comms, err := rt.InitAll(ctx, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	mine := [][]int64{{10}, {20}}
	theirs := [][]int64{{0}, {0}}
	err = rt.Group(ctx, func(g *ccl.Group) error {
		for r, comm := range comms {
			if err := errors.Join(ccl.Send(g, comm, mine[r], 1-r), ccl.Recv(g, comm, theirs[r], 1-r)); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(theirs, err)
	for _, comm := range comms {
		fmt.Println(comm.Destroy(ctx))
	}
	// Output:
	// [[20] [10]] <nil>
	// <nil>
	// <nil>
}

// Destroying a communicator twice returns an error that says where the first time was; Close may be called repeatedly.
func ExampleComm_Destroy() {
	rt, err := ccl.New(ccl.Config{Engine: host.Kind()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer rt.Close(ctx)
	comm, err := rt.World(ctx) // without a launcher: one rank
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(comm.Destroy(ctx))
	fmt.Println(errors.Is(comm.Destroy(ctx), ccl.ErrDestroyed))
	fmt.Println(comm.Close())
	// Output:
	// <nil>
	// true
	// <nil>
}
