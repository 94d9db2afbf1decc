// nccl#1605: splits a non-blocking communicator after an all-reduce that was waited for on the GPU, but not on the
// communicator; then makes an all-gather from another thread, as autograd does. With DRAIN, asks the communicator for
// the result first.
#include "program.h"

static void await(ncclComm_t comm) {
  ncclResult_t async;
  do MUST(ncclCommGetAsyncError(comm, &async));
  while (async == ncclInProgress);
  CHECK(async == ncclSuccess);
}

// Waits for an operation's result on the GPU, not for the communicator.
static void barrier(ncclComm_t comm, int n) {
  float one = 1, *sum = malloc(sizeof *sum);
  *(volatile float *)sum = 0;
  ncclResult_t result = ncclAllReduce(&one, sum, 1, ncclFloat32, ncclSum, comm, NULL);
  CHECK(result == ncclSuccess || result == ncclInProgress);
  while (*(volatile float *)sum != (float)n) usleep(100);
}

static ncclComm_t rails;

static void *autograd(void *data) {
  float mine = *(int *)data, all[2];
  cudaSetDevice(*(int *)data);
  ncclResult_t result = ncclAllGather(&mine, all, 1, ncclFloat32, rails, NULL);
  CHECK(result == ncclSuccess || result == ncclInProgress);
  await(rails);
  cudaDeviceSynchronize();
  CHECK(all[1] == all[0] + 2);
  return NULL;
}

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t world = NULL;
  ncclConfig_t config;
  memset(&config, 0, sizeof config);
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.magic = NCCL_CONFIG_MAGIC;
  config.blocking = 0;
  ncclResult_t result = ncclCommInitRankConfig(&world, n, id, rank, &config);
  CHECK(result == ncclSuccess || result == ncclInProgress);
  await(world);
  barrier(world, n);
  if (getenv("DRAIN")) await(world);
  do result = ncclCommSplit(world, rank % 2, rank, &rails, NULL);
  while (result == ncclInvalidArgument); // the operation is done, but its call has not ended yet
  CHECK(result == ncclSuccess || result == ncclInProgress);
  await(world);
  CHECK(rails);
  pthread_t thread;
  pthread_create(&thread, NULL, autograd, &rank);
  pthread_join(thread, NULL);
  MUST(ncclCommDestroy(rails));
  MUST(ncclCommDestroy(world));
  return 0;
}
