// After an all-reduce, all ranks but the last make the call AT: split, shrink (which leaves out the first rank) or
// destroy, which follows one more all-reduce. The last rank doesn't make its call until its standard input ends. With
// "group split" and "group finalize" the call is in a group, which the last rank doesn't end until then. With "connect"
// and "unasked" the last rank doesn't make the first all-reduce until then; the other ranks ask whether it is launched
// at once, or with "unasked" only at the end. With "connect in a group", the last rank doesn't end the group of that
// all-reduce. "refused" is "destroy" after a call of the last rank that NCCL refuses; "refused split" is "split" after
// a split of the last rank that NCCL refuses. "burst" is a reduce to the first rank right after 40 all-reduces.
#include "program.h"

// Waits until a communicator, which may be non-blocking, has done what a call began.
static void done(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) MUST(ncclCommGetAsyncError(comm, &result));
  MUST(result);
}

static void await_end_of_input(void) {
  char c;
  while (read(0, &c, 1) > 0) continue;
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm, child = NULL;
  cudaStream_t stream;
  int one = 1, sum = 0, first = 0;
  const char *at = getenv("AT");
  const bool refused = !strcmp(at, "refused"), ends = refused || !strcmp(at, "destroy");
  const bool shrinks = !strcmp(at, "shrink"), groups = !strncmp(at, "group ", 6);
  const bool refused_split = !strcmp(at, "refused split"), splits = refused_split || !strcmp(at, "split");
  const bool unasks = !strcmp(at, "unasked"), connects_in_group = !strcmp(at, "connect in a group");
  const ncclResult_t result = ncclCommInitRank(&comm, n, id, rank);
  done(comm, result);
  cudaStreamCreate(&stream);
  if (rank == n - 1 && (unasks || !strcmp(at, "connect"))) await_end_of_input();
  if (refused && rank == n - 1)
    CHECK(ncclAllReduce(&one, &sum, 1, ncclNumTypes, ncclSum, comm, stream) == ncclInvalidArgument);
  if (connects_in_group) MUST(ncclGroupStart());
  ncclResult_t launched = ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, stream);
  if (connects_in_group) {
    if (rank == n - 1) await_end_of_input();
    launched = ncclGroupEnd();
  }
  if (unasks) await_end_of_input();
  done(comm, launched);
  cudaStreamSynchronize(stream);
  if (refused_split && rank == n - 1) CHECK(ncclCommSplit(comm, -2, rank, &child, NULL) == ncclInvalidArgument);
  const bool bursts = !strcmp(at, "burst");
  for (int i = 0; bursts && i < 40; i++) done(comm, ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, stream));
  if (rank == n - 1 && !groups) await_end_of_input();
  if (bursts) done(comm, ncclReduce(&one, &sum, 1, ncclInt32, ncclSum, 0, comm, stream));
  if (ends) done(comm, ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, stream));
  if (shrinks && rank > 0) done(comm, ncclCommShrink(comm, &first, 1, &child, NULL, 0));
  if (splits) done(comm, ncclCommSplit(comm, 0, rank, &child, NULL));
  if (groups) {
    MUST(ncclGroupStart());
    MUST(strcmp(at, "group split") ? ncclCommFinalize(comm) : ncclCommSplit(comm, 0, rank, &child, NULL));
    if (rank == n - 1) await_end_of_input();
    done(comm, ncclGroupEnd());
  }
  if (child) {
    done(child, ncclInProgress);
    MUST(ncclCommDestroy(child));
  }
  MUST(ncclCommDestroy(comm));
  return 0;
}
