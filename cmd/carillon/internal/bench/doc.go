// Package bench measures all-reduce between processes and between ranks of one process, from a few bytes to many
// megabytes. Where Open MPI is installed, the same call also measures its all-reduce.
//
// One measurement is one operation on one rank, from call to return. The latency of a size is the median over the
// iterations of each rank, and of those the largest over the ranks. Bus bandwidth is as nccl-tests define it for
// all-reduce: 2(n−1)/n · bytes / latency, which is comparable over numbers of ranks.
//
// The iterations of a size are bounded in count and in time. A comparison measures its two sides in turn, size by size,
// so that other load on the machine affects both.
//
// On GPUs it also measures all-gather and reduce-scatter, in batches by the GPU's clock: our calls, eager and in a
// graph, a copy, the launch of an empty kernel, and NCCL, all in turn on the same stream and buffers.
package bench
