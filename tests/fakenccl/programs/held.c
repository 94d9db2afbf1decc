// A job that stays as it is until its standard input ends: a split into odd and even ranks, an all-gather on each half,
// and an all-reduce of all ranks. With LATE, the last rank doesn't join before the input ends; with LATE=split it
// joins, but doesn't split before then. With SKIP, it skips the all-reduce. With ABORT, it stays for good, and the
// others abort in the end. With BURST, other all-reduces come before the last one, first 100 at intervals of 0.3 ms,
// and then eight at once; with OTHER, the last rank makes one of these eight an all-gather.
#include "program.h"

static void await_end_of_input(void) {
  char c;
  while (read(0, &c, 1) > 0) continue;
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm, half;
  cudaStream_t stream;
  int one = 1, all[64];
  const bool other = getenv("OTHER") != NULL, waits = !getenv("SKIP") && !other;
  const char *late = rank == n - 1 ? getenv("LATE") : NULL;
  if (late && strcmp(late, "split")) await_end_of_input();
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  if (late && !strcmp(late, "split")) await_end_of_input();
  MUST(ncclCommSplit(comm, rank % 2, rank, &half, NULL));
  MUST(ncclAllGather(&one, all, 1, ncclInt32, half, stream));
  cudaStreamSynchronize(stream);
  for (int i = 0; getenv("BURST") && i < 108; i++) {
    if (other && i == 104 && rank == n - 1) {
      MUST(ncclAllGather(&one, all, 1, ncclInt32, comm, stream));
    } else {
      MUST(ncclAllReduce(&one, all, 1, ncclInt32, ncclSum, comm, stream));
    }
    if (i < 100) {
      cudaStreamSynchronize(stream);
      usleep(i < 99 || other ? 300 : 20000);
    }
  }
  if (!getenv("SKIP") || rank != n - 1) MUST(ncclAllReduce(&one, all, 1, ncclInt32, ncclSum, comm, stream));
  if (waits) cudaStreamSynchronize(stream);
  printf("rank %d of process %d is held\n", rank, getpid());
  while (getenv("ABORT") && rank == n - 1) pause();
  await_end_of_input();
  if (getenv("ABORT")) {
    MUST(ncclCommAbort(comm));
    cudaStreamSynchronize(stream); // the stream goes on, as a GPU's does when a kernel is aborted
  }
  if (!waits) return 0;
  MUST(ncclCommDestroy(half));
  MUST(ncclCommDestroy(comm));
  return 0;
}
