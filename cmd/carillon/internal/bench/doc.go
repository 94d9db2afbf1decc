// Package bench measures all-reduce between processes and between ranks of one process, from a few bytes to many
// megabytes. Where Open MPI is installed, the same call also measures its all-reduce.
//
// One measurement is one operation on one rank, from call to return. The latency of a size is the largest over the
// ranks of each rank's median over the iterations. Bus bandwidth is as nccl-tests define it for all-reduce: 2(n−1)/n ·
// bytes / latency, which is comparable across numbers of ranks.
//
// Both the number of iterations of a size and their total time are bounded. A comparison measures its two sides in
// turn, size by size, so that other load on the machine affects both.
//
// On GPUs it also measures all-gather and reduce-scatter, in batches by the GPU's clock. It measures Carillon's calls,
// eager and in a graph, a copy, the launch of an empty kernel, and NCCL, all in turn on the same stream and buffers.
package bench
