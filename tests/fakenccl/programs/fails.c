// Every rank fails right after its first operation: it uses a communicator REFUSED times after its end, and exits with
// EXIT, or aborts if EXIT is not set.
#include "program.h"

static int number(const char *variable) {
  const char *text = getenv(variable);
  return text ? atoi(text) : 0;
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  float x = 1;
  cudaStreamCreate(&stream);
  MUST(ncclCommInitRank(&comm, n, id, rank));
  MUST(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, stream));
  cudaStreamSynchronize(stream);
  MUST(ncclCommDestroy(comm));
  const int refused = number("REFUSED");
  if (refused > 0) CHECK(ncclCommDestroy(comm) != ncclSuccess);
  for (int i = 0; i < refused; i++) CHECK(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, stream) != ncclSuccess);
  if (!getenv("EXIT")) abort();
  return number("EXIT");
}
