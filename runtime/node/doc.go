// Package node is one process's Carillon, put together: configuration, tape, runtime, telemetry, RAS and health. It is
// the only package that knows fx, and a user need not: Start and Stop do without.
//
//	n, err := node.Start(ctx, node.FromEnv())          // or, in an fx program:
//	defer n.Stop(ctx)                                  // fx.New(node.Module, fx.Invoke(train))
//	world, err := n.Runtime().World(ctx)
//
// Each part has a plain constructor. They are made in this order; they end the other way round, but for the runtime,
// which goes first, so that what it does last is still read, judged and shown:
//
//	Config → logs → tape → RAS → telemetry → GPUs → health endpoint → runtime
//
// Start never waits for other ranks; that is for World and InitRank, under the caller's context. README.md has the
// environment variables that FromEnv reads, made from the tags and comments of Config's fields.
package node
