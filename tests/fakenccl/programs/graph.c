// An all-reduce, and then a graph of five all-reduces and a group of two messages, which is launched three times. After
// that each rank waits for the end of its input.
#include "program.h"

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int one = 1, sums[6] = {0}, from = -1, to = (rank + 1) % n;
  char c;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  CHECK(!cudaStreamCreate(&stream));
  MUST(ncclAllReduce(&one, &sums[0], 1, ncclInt32, ncclSum, comm, stream));
  CHECK(!cudaStreamSynchronize(stream));
  CHECK(!cudaStreamBeginCapture(stream, 0));
  for (int i = 1; i < 6; i++) MUST(ncclAllReduce(&sums[i - 1], &sums[i], 1, ncclInt32, ncclSum, comm, stream));
  MUST(ncclGroupStart());
  MUST(ncclSend(&rank, 1, ncclInt32, to, comm, stream));
  MUST(ncclRecv(&from, 1, ncclInt32, (rank + n - 1) % n, comm, stream));
  MUST(ncclGroupEnd());
  CHECK(!cudaStreamEndCapture(stream, &graph));
  CHECK(!cudaStreamSynchronize(stream) && sums[1] == 0 && from == -1);
  CHECK(!cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; i++) {
    memset(&sums[1], 0, sizeof sums - sizeof sums[0]);
    CHECK(!cudaGraphLaunch(exec, stream));
    CHECK(!cudaStreamSynchronize(stream) && sums[1] == n * n && sums[5] == n * n * n * n * n * n);
    CHECK(from == (rank + n - 1) % n);
  }
  printf("rank %d of process %d has replayed\n", rank, getpid());
  while (read(0, &c, 1) > 0) continue;
  MUST(ncclAllReduce(&one, &sums[0], 1, ncclInt32, ncclSum, comm, stream));
  CHECK(!cudaStreamSynchronize(stream));
  MUST(ncclCommDestroy(comm));
  return 0;
}
