// Package node is one process's Carillon, put together: configuration, tape, runtime, telemetry and health. It is the
// only package that knows fx, and a user need not: Start and Stop do without.
//
//	n, err := node.Start(ctx, node.FromEnv())          // or, in an fx program:
//	defer n.Stop(ctx)                                  // fx.New(node.Module, fx.Invoke(train))
//	world, err := n.Runtime().World(ctx)
//
// What is wired, and in which order it starts (it stops the other way round, so that the last records are read before
// the readers end):
//
//	Config → tape.Writer → pipeline (follower → trace, metric, observers) → ccl.Runtime → health.Server
//
// Start never waits for other ranks; that is for World and InitRank, under the caller's context.
package node
