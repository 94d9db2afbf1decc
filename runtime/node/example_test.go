package node_test

import (
	"context"
	"fmt"
	"log"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
)

// A process of a job starts its Carillon, joins the other ranks, and stops. Without a launcher it is a job of its own.
func ExampleStart() {
	ctx := context.Background()
	n, err := node.Start(ctx, node.WithoutTape()) // real programs leave the tape on, and add FromEnv
	if err != nil {
		log.Fatal(err)
	}
	defer n.Stop(ctx)

	world, err := n.Runtime().World(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	defer world.Close()
	sum := []float32{float32(world.Rank() + 1)}
	if err := ccl.AllReduce(ctx, world, sum, sum, ccl.Sum); err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("%d rank, sum %v\n", world.Size(), sum[0])
	// Output: 1 rank, sum 1
}
