// Package cuda has the kernels that run collectives on NVIDIA GPUs of one host. Every rank launches the same kernel,
// and the kernels synchronize through memory that all of them can access. Package kernels defines what a reduction
// means; these produce the same bits, on all ranks and in every run.
//
//	packets.cu   small messages  NCCL's LL: packets of 8 bytes of data and a flag, written into the peers' mailboxes
//	lines.cu     middle sizes    NCCL's LL128: lines of 120 bytes of data and a flag, which NVLink keeps whole
//	shots.h      both of those   the collectives
//	direct.h     large messages  ranks that can access each other's buffers read and write them in place
//	fifos.cu     large messages  everything else, and send/receive: staged through FIFOs in the receiver's memory
//	work.h       large messages  copies and reductions by the threads of a block
//	operation.h  all             epochs, waiting, and reporting to the host
//	element.h    all             types and reductions
//	args.h       all             the kernel parameter, [Args] here, and the layout of shared memory
//	platform.h   all             the GPU's primitives, and their counterparts on the host (host.h)
//
// The sources are CUDA C++ without a library. clang compiles them to PTX (go generate), which any driver accepts but
// takes seconds to compile; a cubin for a common GPU loads at once (see [Images]). The same sources are C++ for the
// host, where each thread of a grid is a real one: that is how the tests run them, under ThreadSanitizer.
//
// # Waiting
//
// A rank counts its launches and collectives in the GPU's memory, so that a CUDA graph that is replayed goes on
// counting. A flag is the last 24 bits of such a number and 8 bits of the call's signature. A rank that finds the right
// number with another signature gives up, since the ranks made different calls; so does one that waits for a rank which
// has closed its end ([Closing]), and one that finds the abort word set. That word is in host memory, so it is read
// only after 30 microseconds of waiting, and by one thread for all: 32,768 threads that read it take a millisecond. At
// the same time the kernel reports to host memory, once, for which rank it waits ([Words]). The first kernel of a rank
// that gives up says why; those behind it leave after as long a wait, and say nothing. A kernel that is done says so in
// the GPU's memory, or, if [Args].Tells is 1, in the host's. The latter costs nothing in a graph, but most of a
// microsecond between launches, if the GPU has the next one already: that one begins when the word has arrived.
//
// # Direct access
//
// No host knows which buffers the other ranks passed, least of all when graphs are replayed. So the kernels exchange
// addresses when they start: the ranks meet. If every rank can access all buffers that the call needs, each reads its
// share from all ranks and writes the result to all; otherwise all of them go through FIFOs. In a large all-reduce only
// the results are written directly, and data goes through FIFOs ([Reach].Pushes), as in a large reduce-scatter of more
// than two ranks: over NVLink an H100 writes 366 GB/s and reads 336. A kernel ends once the other ranks have left its
// rank's buffers, so that they are the caller's again when the stream gets there, also after an abort.
//
// # FIFOs
//
// A sender writes into a slot in the receiver's window, fences, and raises the slot's flag; the receiver returns the
// slot as a credit. No rank reads another GPU's memory, and only the caller's own GPU accesses its buffers, so that
// nothing need be registered. FIFOs keep their positions from launch to launch: only the two ends of a FIFO need to be
// in step, and a message waits for no third rank.
//
// One thread of a block waits for peers and signals them; the other threads move data, one step behind it. So a fence
// or a flag that takes a microsecond to arrive delays nobody.
//
// # Residency
//
// Blocks wait for blocks of other ranks, and for each other. So all blocks of a launch must be resident at once, grids
// of collectives are the same on all ranks, and where ranks share a GPU their streams need hardware queues of their own
// (CUDA_DEVICE_MAX_CONNECTIONS). runtime/engine/cuda, which launches the kernels, sees to that.
//
// # From one kernel to the next
//
// On GPUs of compute capability 9 and newer a kernel lets the next one on its stream start as soon as it waits for no
// rank any more (CUDA's programmatic dependent launch). The next one waits until this one is complete before it does
// anything, but is on the GPU by then, which saves 0.4 microseconds in a graph and 1.4 between launches.
package cuda
