// A communicator of all ranks but the last grows by the last rank, which has no communicator before, and gets the
// unique id through the fifo GROWTH. The rank AWAY doesn't make the call until its standard input ends.
#include <fcntl.h>

#include "program.h"

// Waits until a communicator, which may be non-blocking, has done what a call began.
static void done(ncclComm_t *comm, ncclResult_t result) {
  while (result == ncclInProgress) MUST(ncclCommGetAsyncError(*comm, &result));
  MUST(result);
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t few = NULL, grown;
  cudaStream_t stream;
  int one = 1, sum = 0, joins = rank == n - 1;
  const char *away = getenv("AWAY");
  if (!joins) done(&few, ncclCommInitRank(&few, n - 1, id, rank));
  if (rank == 0 || joins) {
    int fifo = open(getenv("GROWTH"), rank == 0 ? O_WRONLY : O_RDONLY);
    if (rank == 0) MUST(ncclCommGetUniqueId(few, &id));
    CHECK((rank == 0 ? write(fifo, &id, sizeof id) : read(fifo, &id, sizeof id)) == sizeof id);
    close(fifo);
  }
  printf("rank %d of process %d grows\n", rank, getpid());
  char c;
  while (away && rank == atoi(away) && read(0, &c, 1) > 0) continue;
  done(joins ? &grown : &few,
       ncclCommGrow(few, n, rank == 0 || joins ? &id : NULL, joins ? rank : -1, &grown, NULL));
  done(&grown, ncclInProgress);
  cudaStreamCreate(&stream);
  done(&grown, ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, grown, stream));
  cudaStreamSynchronize(stream);
  CHECK(sum == n);
  if (few) MUST(ncclCommDestroy(few));
  MUST(ncclCommDestroy(grown));
  return 0;
}
