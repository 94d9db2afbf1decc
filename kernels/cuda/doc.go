// Package cuda has the kernels that run collectives on NVIDIA GPUs of one host. Every rank launches the same kernel,
// and the kernels synchronize through memory that all of them can access. Package kernels defines what a reduction
// means; these kernels produce the same bits, on all ranks and in every run.
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
// takes seconds to compile; a cubin for a common GPU loads at once (see [Images]). The same sources also compile as C++
// for the host, where each thread of a grid is a real one: the tests run them that way, under ThreadSanitizer.
//
// # Waiting
//
// A rank counts its launches and collectives in GPU memory, so that a replayed CUDA graph continues the counts. A flag
// is the last 24 bits of such a number and 8 bits of the call's signature. A kernel gives up if it finds the right
// number with another signature, since the ranks made different calls; if it waits for a rank that has closed its end
// ([Closing]); and if the abort word is set. That word is in host memory, so it is read only after 30 microseconds of
// waiting, and by one thread for all: if 32,768 threads read it, that takes a millisecond. At the same time, the kernel
// reports to host memory, once, which rank it waits for ([Words]). The first kernel of a rank that gives up records
// why; later ones leave after the same wait, without a record. A kernel that is done records that in GPU memory or, if
// [Args].Tells is 1, in host memory. The latter costs nothing in a graph, but most of a microsecond between launches if
// the GPU already has the next one: that one begins when the word has arrived.
//
// # Direct access
//
// No host knows which buffers the other ranks passed, least of all when graphs are replayed. So the kernels exchange
// addresses when they start; this is called a meeting. If every rank can access all buffers that the call needs, each
// reads its share from all ranks and writes the result to all; otherwise all of them use FIFOs. In a large all-reduce,
// only the results are written directly, and the data goes through FIFOs ([Reach].Pushes), as in a large reduce-scatter
// of more than two ranks: over NVLink, an H100 writes 366 GB/s and reads 336. A kernel ends once the other ranks have
// left its rank's buffers, so the caller owns these again when the stream gets there, also after an abort.
//
// # FIFOs
//
// A sender writes into a slot in the receiver's window, executes a fence, and raises the slot's flag; the receiver
// returns the slot as a credit. No rank reads another GPU's memory, and only the caller's own GPU accesses its buffers,
// so that nothing needs to be registered. FIFOs keep their positions from launch to launch: only the two ends of a FIFO
// need to be in step, and a message doesn't wait for a third rank.
//
// One thread of a block waits for peers and signals them; the other threads move data, one step behind it. So a fence
// or a flag that takes a microsecond to arrive delays no data.
//
// # Residency
//
// Blocks wait for blocks of other ranks, and for each other. So all blocks of a launch must be resident at once, grids
// of collectives must be the same on all ranks, and where ranks share a GPU, their streams need separate hardware
// queues (CUDA_DEVICE_MAX_CONNECTIONS). runtime/engine/cuda, which launches the kernels, ensures that.
//
// # From one kernel to the next
//
// On GPUs of compute capability 9 and newer, a kernel lets the next one on its stream start as soon as it no longer
// waits for any rank (CUDA's programmatic dependent launch). The next kernel waits until this one is complete before it
// does anything, but is already on the GPU, which saves 0.4 microseconds in a graph and 1.4 between launches.
package cuda
