// Package node assembles one process's Carillon: configuration, tape, runtime, telemetry, RAS and health. It is the
// only package that knows fx, and users need not: Start and Stop do without.
//
//	n, err := node.Start(ctx, node.FromEnv())          // or, in an fx program:
//	defer n.Stop(context.WithoutCancel(ctx))           // fx.New(node.Module, fx.Invoke(train))
//	world, err := n.Runtime().World(ctx)
//
// A rank that will make calls on device memory (ccl.AllReduceOn) says so in two places:
//
//	n, err := node.Start(ctx, node.FromEnv(), node.WithGPU(cuda.Options{}))
//	world, err := n.Runtime().World(ctx, ccl.WithDevice(n.GPU()))
//	stream, err := n.GPU().Context().Stream(0)
//
// Both take the same options. A program that has a registry of metrics, a log, a description of itself, processors or
// exporters of spans, or a mux of its own can make Carillon use them (WithRegisterer, WithLog, WithResource,
// WithSpanProcessor, WithSpanExporter, Node.HealthHandler), and is told about events by an Observer, or, for each
// operation, by a profiler plug-in (WithProfiler). The program itself ends what it lent, after Stop. examples/service
// is such a program.
//
// The parts are made in this order and end in reverse order, except that the runtime ends first, so that its last acts
// are still read, judged and shown:
//
//	Config → logs → tape → RAS → telemetry → watch of GPUs → health endpoint → the rank's GPU → profiler → runtime
//
// An Agent has the same parts for other processes of the host that have none: readers of a tape for each process, RAS
// for each job, and one endpoint.
//
// Start never waits for other ranks; that is for World and InitRank, under the caller's context. README.md has the
// environment variables that FromEnv reads, made from the tags and comments of Config's fields.
package node
