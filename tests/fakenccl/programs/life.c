// The life of communicators: init of every kind, split, shrink, grow, revoke, finalize, abort, and refused calls.
#include "program.h"

static void sum(ncclComm_t comm, cudaStream_t stream, int n) {
  int one = 1, all = 0;
  MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream));
  cudaStreamSynchronize(stream);
  CHECK(all == n);
}

static void await(ncclComm_t comm, ncclResult_t expected) {
  ncclResult_t async;
  do MUST(ncclCommGetAsyncError(comm, &async));
  while (async == ncclInProgress);
  CHECK(async == expected);
}

// Rank 0 makes a unique id, and sends it to all ranks through a communicator.
static ncclUniqueId share(ncclComm_t comm, cudaStream_t stream, int rank) {
  ncclUniqueId id;
  if (rank == 0) MUST(ncclGetUniqueId(&id));
  MUST(ncclBcast(&id, sizeof id, ncclInt8, 0, comm, stream));
  cudaStreamSynchronize(stream);
  return id;
}

static void refuses(ncclComm_t comm, int n, ncclUniqueId id) {
  ncclComm_t none;
  char data[8] = {0};
  CHECK(ncclCommInitRank(&none, n, id, n) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(NULL, n, id, 0) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, 1, ncclInt8, ncclSum, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, 1, (ncclDataType_t)77, ncclSum, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, 1, ncclInt8, (ncclRedOp_t)77, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclBroadcast(data, data, 1, ncclInt8, n, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(ncclCommSplit(comm, -7, 0, &none, NULL) == ncclInvalidArgument);
  MUST(ncclGroupStart()); // one mistake spoils the group
  CHECK(ncclSend(data, 1, ncclInt8, n, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
}

// Null pointers, and pointers to something that is no NCCL configuration.
static void refuses_pointers(ncclComm_t comm, int n, ncclUniqueId id) {
  ncclComm_t none;
  ncclConfig_t config;
  memset(&config, 0xff, sizeof config);
  CHECK(ncclGetUniqueId(NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitRankConfig(&none, n, id, 0, &config) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(NULL, 2, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(NULL, INT32_MAX, NULL) == ncclInvalidArgument);
  CHECK(ncclCommSplit(comm, 0, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclCommCount(comm, NULL) == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(comm, NULL) == ncclInvalidArgument);
  if (ncclCommInitRankScalable) {
    CHECK(ncclCommInitRankScalable(&none, n, 0, 0, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclCommInitRankScalable(&none, n, 0, 0, (ncclUniqueId *)8, NULL) == ncclInvalidArgument);
    CHECK(ncclCommInitRankScalable(NULL, n, 0, 1, &id, NULL) == ncclInvalidArgument);
  }
  if (ncclCommShrink) {
    int first = 0;
    CHECK(ncclCommShrink(comm, NULL, 1, &none, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommShrink(comm, &first, 1, NULL, NULL, 0) == ncclInvalidArgument);
  }
  if (ncclCommGrow) {
    CHECK(ncclCommGrow(NULL, n, NULL, 0, &none, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(NULL, n, &id, 0, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(comm, n + 1, NULL, -1, NULL, NULL) == ncclInvalidArgument);
  }
}

static void splits(ncclComm_t comm, cudaStream_t stream, int rank, int n) {
  ncclComm_t half, back;
  int at, size;
  MUST(ncclCommSplit(comm, rank % 2, -rank, &half, NULL)); // in reverse
  MUST(ncclCommUserRank(half, &at));
  MUST(ncclCommCount(half, &size));
  CHECK(size == (n + 1 - rank % 2) / 2 && at == size - 1 - rank / 2);
  sum(half, stream, size);
  MUST(ncclCommSplit(comm, rank ? NCCL_SPLIT_NOCOLOR : 0, 0, &back, NULL));
  CHECK(!back == (rank > 0));
  if (back) MUST(ncclCommDestroy(back));
  MUST(ncclCommDestroy(half));
}

static void changes(ncclComm_t comm, cudaStream_t stream, int rank, int n) {
  ncclComm_t fewer, more;
  int last = n - 1;
  if (!ncclCommShrink || n < 2) return;
  if (rank != last) {
    MUST(ncclCommShrink(comm, &last, 1, &fewer, NULL, 0));
    sum(fewer, stream, n - 1);
  }
  if (ncclCommGrow) {
    ncclUniqueId id;
    if (rank == 0) MUST(ncclCommGetUniqueId(fewer, &id));
    MUST(ncclBcast(&id, sizeof id, ncclInt8, 0, comm, stream));
    cudaStreamSynchronize(stream);
    if (rank != last)
      MUST(ncclCommGrow(fewer, n, rank == 0 ? &id : NULL, -1, &more, NULL));
    else
      MUST(ncclCommGrow(NULL, n, &id, last, &more, NULL));
    sum(more, stream, n);
    MUST(ncclCommDestroy(more));
  }
  if (rank != last) MUST(ncclCommDestroy(fewer));
}

// An operation that the last rank never calls is ended by an abort, or by a revoke.
static void hangs(ncclComm_t comm, int rank, int n, bool revoke) {
  cudaStream_t stream;
  int one = 1, all = 0;
  cudaStreamCreate(&stream);
  if (rank != n - 1) MUST(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream));
  if (rank != n - 1) CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  if (revoke) {
    MUST(ncclCommRevoke(comm, 0));
    await(comm, ncclSuccess);
    CHECK(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, comm, stream) == ncclInvalidUsage);
    CHECK(ncclCommFinalize(comm) == ncclInvalidUsage);
    ncclComm_t again;
    MUST(ncclCommSplit(comm, 0, rank, &again, NULL));
    cudaStreamSynchronize(stream);
    sum(again, stream, n);
    MUST(ncclCommDestroy(again));
    MUST(ncclCommDestroy(comm));
  } else
    MUST(ncclCommAbort(comm));
  cudaStreamSynchronize(stream);
  CHECK(all == 0 || revoke);
  cudaStreamDestroy(stream);
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm, other;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  MUST(ncclCommInitRank(&comm, n, id, rank));
  sum(comm, stream, n);
  refuses(comm, n, id);
  refuses_pointers(comm, n, id);
  sum(comm, stream, n);
  splits(comm, stream, rank, n);
  changes(comm, stream, rank, n);

  ncclConfig_t config; // non-blocking
  memset(&config, 0, sizeof config);
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.magic = NCCL_CONFIG_MAGIC;
  id = share(comm, stream, rank);
  ncclResult_t result = ncclCommInitRankConfig(&other, n, id, rank, &config);
  CHECK(result == ncclInProgress);
  await(other, ncclSuccess);
  int one = 1, all = 0;
  CHECK(ncclAllReduce(&one, &all, 1, ncclInt32, ncclSum, other, stream) == ncclInProgress);
  await(other, ncclSuccess);
  cudaStreamSynchronize(stream);
  CHECK(all == n);
  CHECK(ncclCommFinalize(other) == ncclInProgress);
  await(other, ncclSuccess);
  MUST(ncclCommDestroy(other));
  config.magic = 1;
  CHECK(ncclCommInitRankConfig(&other, n, id, rank, &config) == ncclInvalidArgument);

  id = share(comm, stream, rank);
  if (ncclCommInitRankScalable)
    MUST(ncclCommInitRankScalable(&other, n, rank, 1, &id, NULL));
  else
    MUST(ncclCommInitRank(&other, n, id, rank));
  hangs(other, rank, n, ncclCommRevoke);
  id = share(comm, stream, rank);
  MUST(ncclCommInitRank(&other, n, id, rank));
  MUST(ncclCommFinalize(comm));
  CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
  MUST(ncclCommDestroy(comm));
  if (n > 1) hangs(other, rank, n, false);

  ncclComm_t devices[3]; // three ranks on one thread
  cudaStream_t streams[3];
  int sums[3] = {0};
  MUST(ncclCommInitAll(devices, 3, NULL));
  MUST(ncclGroupStart());
  for (int i = 0; i < 3; i++) {
    cudaStreamCreate(&streams[i]);
    MUST(ncclAllReduce(&one, &sums[i], 1, ncclInt32, ncclSum, devices[i], streams[i]));
  }
  MUST(ncclGroupEnd());
  for (int i = 0; i < 3; i++) {
    cudaStreamSynchronize(streams[i]);
    CHECK(sums[i] == 3);
    MUST(ncclCommDestroy(devices[i]));
  }
  return 0;
}
