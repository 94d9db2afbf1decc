// A job of all-reduces until its standard input ends. Before each, one rank takes 30 ms longer than the others: the
// rank in LATE, or else each rank in turn.
#include <poll.h>

#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  const char *late = getenv("LATE");
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  for (int i = 0, goes_on = n; goes_on == n; i++) {
    if (rank == (late ? atoi(late) : i % n)) usleep(30000);
    struct pollfd input = {.fd = 0};
    goes_on = poll(&input, 1, 0) == 0;
    MUST(ncclAllReduce(&goes_on, &goes_on, 1, ncclInt32, ncclSum, comm, stream));
    cudaStreamSynchronize(stream);
  }
  MUST(ncclCommDestroy(comm));
  return 0;
}
