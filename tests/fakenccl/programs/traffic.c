// Two all-reduces, and a send from the first rank to the last in a group with its receive, for plug-ins to see.
#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  int one = 1, all = 0;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  for (int i = 0; i < 2; i++) {
    MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream));
    cudaStreamSynchronize(stream);
  }
  MUST(ncclGroupStart());
  if (rank == 0) MUST(ncclSend(&one, 1, ncclInt32, n - 1, comm, stream));
  if (rank == n - 1) MUST(ncclRecv(&all, 1, ncclInt32, 0, comm, stream));
  MUST(ncclGroupEnd());
  MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream)); // nobody ends before all proxies are done
  cudaStreamSynchronize(stream);
  MUST(ncclCommDestroy(comm));
  return 0;
}
