// Package cuda has the kernels that run collectives on NVIDIA GPUs of one host: each rank launches the same one, and
// they find each other through memory that all of them reach. What a reduction means is package kernels'; these give
// the same bits, on all ranks and in every run.
//
//	packets.cu   little data    packets of 8 bytes and a flag, into the mailboxes of the others: no barrier
//	direct.cu    much data      ranks read and write each other's buffers, between two barriers
//	operation.h  all            epochs, waiting, and what is told to those who look on
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
// An operation's epoch is its number on each rank, and lives in the GPU's memory: a CUDA graph that is replayed goes on
// counting. A flag is the last 24 bits of the epoch and 8 bits of the call's signature. A rank that finds the right
// epoch and another signature gives up (the ranks made different calls), as does one that finds the abort word set; it
// looks at that word only when it has waited for 30 microseconds, and then says once in host memory whom it waits for
// ([Words]). An operation that ends writes one more word there, its epoch and the GPU's time, for 0.03 microseconds.
//
// # Who must be there
//
// Blocks wait for blocks of the same number on other ranks. So all blocks of a launch must be resident at once; grids
// are the same on all ranks; and where ranks share a GPU their streams need hardware queues of their own
// (CUDA_DEVICE_MAX_CONNECTIONS). Launching is not these kernels' business, but runtime/engine/cuda's.
package cuda
