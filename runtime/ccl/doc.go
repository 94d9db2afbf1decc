// Package ccl is Carillon's public API: communicators, groups and collectives, with NCCL's names and meanings, on host
// memory and on GPU memory.
//
// A Runtime belongs to a process. It makes communicators. A communicator is a set of ranks that make the same calls in
// the same order:
//
//	world, err := rt.World(ctx)                                 // as torchrun, Slurm, mpirun or carillon run say
//	err = ccl.AllReduce(ctx, world, grads, grads, ccl.Sum)      // in place
//	rails, err := world.Split(ctx, world.Rank()%2, world.Rank())
//	err = rails.Destroy(ctx)
//
// The path of a call:
//
//	ccl.AllReduce → is it legal? (lifecycle) → its turn (calls on one communicator are ordered)
//	             → engine posts → tape: launched → engine runs the plan over the transports → tape: completed → return
//
// # Blocking and contexts
//
// A call blocks until its own part is done and its buffers may be reused, unless its name begins with I (it returns a
// Work), the communicator is non-blocking, or the call's context is a Group. Every blocking call obeys its context.
// When the context ends inside an operation, or had ended before it, the operation is abandoned and the communicator
// fails, here and on all other ranks: a communicator whose ranks disagree about what was done can't be used any more.
// Ranks that have not completed the operation return a PeerError that names this rank. This rank's own error names the
// rank that it waited for; errors.Is finds the context's error in it.
//
// # GPUs
//
// A communicator made WithDevice takes both kinds of buffers. Calls on device memory have names that end in On; they
// put kernels on the caller's stream, and return:
//
//	driver, err := cuda.Open("")                                 // runtime/cuda
//	device, err := driver.Device(local)
//	context, err := device.Retain()
//	gpu, err := enginecuda.New(context, enginecuda.Options{})    // runtime/engine/cuda
//	world, err := rt.World(ctx, ccl.WithDevice(gpu))
//	grads, err := cuda.Alloc[float32](context, n)
//	err = ccl.AllReduceOn(ctx, world, stream, grads, grads, ccl.Sum)
//	err = world.Wait(ctx)                                        // or the stream's own Synchronize
//
// Readers of the tape see the operation in flight until the GPU has completed it, so a hang is explained as on the
// host: which rank has not called, which stream is busy with something else, and which rank waits for which. Carillon's
// kernels connect up to 8 ranks of one host; NCCL, as the engine's Fallback, carries other communicators.
//
// # Errors
//
// UsageError is the caller's mistake, PeerError another rank's fault, SystemError the fault of a socket, a file or
// memory. Each has a Code, and works with errors.Is and the Err… values of this package.
package ccl
