// Shared by the programs of the tests: ranks are processes or threads of one program, which passes the unique id in a
// pipe.
//
//   PROGRAM threads|processes N
//   PROGRAM rank R N
//
// The latter is a single rank: rank 0 prints the unique id, and the others get it in ID, as hexadecimal digits.
//
// Exits with 0 if all ranks return 0. A rank that is killed by a signal is reported on stderr. The first rank that
// fails ends all others, unless SURVIVE is set.
#ifndef PROGRAM_H
#define PROGRAM_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime.h"
#include "nccl.h"

// Functions that some versions lack are NULL there.
#pragma weak ncclCommShrink
#pragma weak ncclCommRevoke
#pragma weak ncclCommGrow
#pragma weak ncclCommGetUniqueId
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter
#pragma weak ncclCommInitRankScalable
#pragma weak ncclCommWindowRegister
#pragma weak ncclPutSignal
#pragma weak ncclWaitSignal
#pragma weak ncclAllReduceConfig

#define MUST(call) \
  do { \
    ncclResult_t result_ = (call); \
    if (result_) { \
      fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, ncclGetErrorString(result_), \
              ncclGetLastError(NULL)); \
      exit(1); \
    } \
  } while (0)

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, ncclGetLastError(NULL)); \
      exit(1); \
    } \
  } while (0)

static int run_rank(int rank, int n, ncclUniqueId id); // defined by the program

static int pipes_[64][2], n_;

static void *one_rank_(void *data) {
  int rank = (int)(intptr_t)data;
  ncclUniqueId id;
  cudaSetDevice(rank % 16);
  if (rank == 0) {
    MUST(ncclGetUniqueId(&id));
    for (int r = 1; r < n_; r++) CHECK(write(pipes_[r][1], &id, sizeof id) == sizeof id);
  } else
    CHECK(read(pipes_[rank][0], &id, sizeof id) == sizeof id);
  return (void *)(intptr_t)run_rank(rank, n_, id);
}

static int lone_rank_(int rank, int n) {
  ncclUniqueId id;
  unsigned char *bytes = (unsigned char *)&id;
  const char *digits = getenv("ID");
  cudaSetDevice(rank % 16);
  if (rank == 0) {
    MUST(ncclGetUniqueId(&id));
    printf("id ");
    for (size_t i = 0; i < sizeof id; i++) printf("%02x", bytes[i]);
    printf("\n");
  } else
    for (size_t i = 0; i < sizeof id; i++) CHECK(digits && sscanf(digits + 2 * i, "%2hhx", &bytes[i]) == 1);
  return run_rank(rank, n, id);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 4 && !strcmp(argv[1], "rank")) return lone_rank_(atoi(argv[2]), atoi(argv[3]));
  if (argc < 3 || (n_ = atoi(argv[2])) < 1 || n_ > 64) {
    fprintf(stderr, "usage: %s threads|processes N | rank R N\n", argv[0]);
    return 2;
  }
  for (int r = 0; r < n_; r++) CHECK(!pipe(pipes_[r]));
  int failed = 0;
  if (!strcmp(argv[1], "threads")) {
    pthread_t threads[64];
    for (int r = 0; r < n_; r++) CHECK(!pthread_create(&threads[r], NULL, one_rank_, (void *)(intptr_t)r));
    for (int r = 0; r < n_; r++) {
      void *code;
      pthread_join(threads[r], &code);
      failed |= code != NULL;
    }
    return failed;
  }
  pid_t ranks[64];
  for (int r = 0; r < n_; r++)
    if (!(ranks[r] = fork())) {
      // With NODES, half of the ranks are on another node.
      const char *nodes = getenv("NODES");
      char host[64];
      snprintf(host, sizeof host, "%s%d", nodes ? nodes : "", r / ((n_ + 1) / 2));
      if (nodes) setenv("NCCL_HOSTID", host, 1);
      exit((int)(intptr_t)one_rank_((void *)(intptr_t)r));
    }
  for (int left = n_, status; left > 0; left--) {
    wait(&status);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
    for (int r = 0; r < n_ && status && !failed && !getenv("SURVIVE"); r++) kill(ranks[r], SIGKILL); // as launchers do
    failed |= status != 0;
  }
  return failed;
}

#endif
