// Messages between ranks 0 and 1 that never end, each launched on its own: each rank first sends more than NCCL
// buffers, and then receives. With SIZES, rank 0 sends less than rank 1 expects. All ranks go on to an all-reduce.
#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  enum { MANY = 1 << 20 };
  static int data[MANY];
  ncclComm_t comm;
  cudaStream_t stream;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  if (rank < 2 && !getenv("SIZES")) {
    MUST(ncclSend(data, MANY, ncclInt32, 1 - rank, comm, stream));
    MUST(ncclRecv(data, MANY, ncclInt32, 1 - rank, comm, stream));
  } else if (rank == 0)
    MUST(ncclSend(data, 2, ncclInt32, 1, comm, stream));
  else if (rank == 1)
    MUST(ncclRecv(data, 4, ncclInt32, 0, comm, stream));
  MUST(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
  printf("rank %d of process %d is held\n", rank, getpid());
  cudaStreamSynchronize(stream);
  return 0;
}
