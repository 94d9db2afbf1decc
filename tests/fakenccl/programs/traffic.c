// Two all-reduces, and a send from the first rank to the last in a group with its receive, for plug-ins to see. With
// RING set, each rank first sends to the next rank and receives from the previous one, in a group.
#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  int one = 1, all = 0;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  if (getenv("RING")) {
    MUST(ncclGroupStart());
    MUST(ncclRecv(&all, 1, ncclInt32, (rank + n - 1) % n, comm, stream));
    MUST(ncclSend(&one, 1, ncclInt32, (rank + 1) % n, comm, stream));
    MUST(ncclGroupEnd());
    cudaStreamSynchronize(stream);
  }
  for (int i = 0; i < 2; i++) {
    MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream));
    cudaStreamSynchronize(stream);
  }
  MUST(ncclGroupStart());
  if (rank == 0) MUST(ncclSend(&one, 1, ncclInt32, n - 1, comm, stream));
  if (rank == n - 1) MUST(ncclRecv(&all, 1, ncclInt32, 0, comm, stream));
  MUST(ncclGroupEnd());
  MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream)); // no rank ends before all proxies are done
  cudaStreamSynchronize(stream);
  MUST(ncclCommDestroy(comm));
  return 0;
}
