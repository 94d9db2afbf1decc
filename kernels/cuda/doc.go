// Package cuda has the kernels that run collectives on NVIDIA GPUs of one host: each rank launches the same one, and
// they find each other through memory that all of them reach. What a reduction means is package kernels'; these give
// the same bits, on all ranks and in every run.
//
//	packets.cu   little data    packets of 8 bytes and a flag, into the mailboxes of the others
//	fifos.cu     much data      slots of FIFOs, in the memory of whoever reads them; messages, too
//	operation.h  all            counting, waiting, and what is told to those outside
//	element.h    all            types and reductions
//	args.h       all            the parameter, which is [Args] here
//	platform.h   all            what they need of a GPU, and of the host (host.h)
//
// The sources are CUDA C++ without a library. clang makes PTX of them (go generate), which any driver compiles when it
// loads it, and takes seconds for; a cubin for a GPU that is often met is loaded at once (see [Images]). The same
// sources are C++ for the host, where every thread of a grid is a real one: so the tests run them, under
// ThreadSanitizer.
//
// # Waiting
//
// A rank counts its launches and collectives in the GPU's memory: a CUDA graph that is replayed goes on counting. A
// flag is the last 24 bits of such a number and 8 bits of the call's signature. A rank that finds the right number and
// another signature gives up (the ranks made different calls), as does one that finds the abort word set. It looks at
// that word, which is in the host's memory, only when it has waited for 30 microseconds, and one thread does it for
// all: 32,768 threads that read it take a millisecond. Then it says once in host memory whom it waits for ([Words]). An
// operation that ends writes one more word there, with the GPU's time, for 0.03 microseconds.
//
// # FIFOs
//
// A sender writes into the receiver's window, fences, and raises a flag; the receiver gives the slot back as a credit.
// Nobody reads another GPU's memory, and nobody but its own GPU touches a caller's buffer, so that buffers need not be
// registered anywhere. FIFOs keep their positions from launch to launch: beside the two ends of each, nothing need be
// in step, and a message waits for no other rank's.
//
// One thread of a block waits for the other ranks and tells them; the others move data, and are one step behind it. So
// a fence or a flag that takes a microsecond on its way delays nobody.
//
// # Who must be there
//
// Blocks wait for blocks of other ranks, and for each other. So all blocks of a launch must be resident at once; grids
// of collectives are the same on all ranks; and where ranks share a GPU their streams need hardware queues of their own
// (CUDA_DEVICE_MAX_CONNECTIONS). Launching is not these kernels' business, but runtime/engine/cuda's.
package cuda
