// Every rank destroys its communicator twice (nccl#1482), and makes another one if it survives.
#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  MUST(ncclCommDestroy(comm));
  ncclResult_t again = ncclCommDestroy(comm);
  printf("rank %d: destroying again: %s\n", rank, ncclGetErrorString(again));
  return 0;
}
