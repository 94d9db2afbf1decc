//go:build ignore

/*
 * Makes the NCCL calls that it reads from stdin, one a line, on communicators that have letters as names:
 *
 *   init w, init_nonblocking w, init_all w x, split w c [color], all_reduce w, bcast w, finalize w, revoke w,
 *   destroy w, abort w, count w, async w, group_start, group_end
 *   elsewhere CALL   makes the call on another thread
 *   meanwhile CALL   begins the call on another thread, which stays in NCCL until: release
 *   child CALL       forks; the child makes the call and exits
 *   fail w, stick w  makes the communicator find an error, or never get done
 *   calls N          makes N all-reduces on w and prints how many ns each takes
 *
 * It is built as a program, or (with -shared) as a library with drive for another program to load.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../nccl.h"

void stub_hold(void), stub_await(void), stub_release(void), stub_quiet(void);
void stub_fail(ncclComm_t, ncclResult_t), stub_stick(ncclComm_t);

static ncclComm_t comms[128];
static pthread_t other;

static const char *answer(ncclResult_t result) {
  static const char *const names[] = {"ok", "cuda", "system", "internal", "invalid argument", "invalid usage",
                                      "remote error", "in progress", "timeout"};
  return names[result];
}

static void measure(ncclComm_t comm, long calls) {
  long best = 1L << 40;
  stub_quiet();
  for (int round = 0; round < 20; round++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (long i = 0; i < calls; i++) {
      ncclAllReduce(NULL, NULL, 256, ncclFloat32, ncclSum, comm, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    const long took = (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec;
    best = took < best ? took : best;
  }
  printf("calls: %.1f ns each\n", (double)best / (double)calls);
}

void *run(void *text); /* exported, so that its name is on the tape */
void *run(void *text) {
  char call[32] = "", name = 0, arg[8] = "";
  sscanf(text, "%31s %c %7s", call, &name, arg);
  ncclComm_t *comm = &comms[(unsigned char)name];
  ncclUniqueId id = {{0}};
  ncclResult_t result = ncclSuccess, state = ncclSuccess;
  int count;
  char label[] = {name, 0};
  ncclConfig_t config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = 22809,
                         .blocking = 0, .commName = label};
  if (strcmp(call, "init") == 0) {
    config.blocking = 1;
    result = ncclCommInitRankConfig(comm, 4, id, 2, &config);
  } else if (strcmp(call, "init_nonblocking") == 0) {
    result = ncclCommInitRankConfig(comm, 4, id, 2, &config);
  } else if (strcmp(call, "init_all") == 0) {
    ncclComm_t both[2];
    result = ncclCommInitAll(both, 2, NULL);
    *comm = both[0];
    comms[(unsigned char)arg[0]] = both[1];
  } else if (strcmp(call, "split") == 0) {
    int color = 1;
    sscanf(text, "%*s %*s %*s %d", &color);
    label[0] = arg[0];
    result = ncclCommSplit(*comm, color, 0, &comms[(unsigned char)arg[0]], &config);
  } else if (strcmp(call, "all_reduce") == 0) {
    const ncclDataType_t type = arg[0] != 0 ? (ncclDataType_t)atoi(arg) : ncclFloat32;
    result = ncclAllReduce(NULL, NULL, 256, type, ncclSum, *comm, NULL);
  } else if (strcmp(call, "bcast") == 0) {
    result = ncclBcast(NULL, 256, ncclFloat32, 1, *comm, NULL);
  } else if (strcmp(call, "finalize") == 0) {
    result = ncclCommFinalize(*comm);
  } else if (strcmp(call, "revoke") == 0) {
    result = ncclCommRevoke(*comm, 0);
  } else if (strcmp(call, "destroy") == 0) {
    result = ncclCommDestroy(*comm);
  } else if (strcmp(call, "abort") == 0) {
    result = ncclCommAbort(*comm);
  } else if (strcmp(call, "count") == 0) {
    result = ncclCommCount(*comm, &count);
  } else if (strcmp(call, "async") == 0) {
    result = ncclCommGetAsyncError(*comm, &state);
    result = result == ncclSuccess ? state : result;
  } else if (strcmp(call, "why") == 0) {
    printf("why: %s\n", ncclGetLastError(NULL));
    fflush(stdout);
    return NULL;
  } else if (strcmp(call, "group_start") == 0) {
    result = ncclGroupStart();
  } else if (strcmp(call, "group_end") == 0) {
    result = ncclGroupEnd();
  } else if (strcmp(call, "group_simulate") == 0) {
    result = ncclGroupSimulateEnd(NULL);
  } else if (strcmp(call, "fail") == 0) {
    stub_fail(*comm, ncclRemoteError);
  } else if (strcmp(call, "stick") == 0) {
    stub_stick(*comm);
  } else {
    printf("%s: unknown\n", call);
    exit(2);
  }
  printf("%s: %s\n", (const char *)text, answer(result));
  fflush(stdout);
  return NULL;
}

int drive(void);
int drive(void) {
  char line[128];
  long calls;
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "elsewhere ", 10) == 0) {
      pthread_create(&other, NULL, run, line + 10);
      pthread_join(other, NULL);
    } else if (strncmp(line, "meanwhile ", 10) == 0) {
      stub_hold();
      pthread_create(&other, NULL, run, strdup(line + 10));
      stub_await();
    } else if (strcmp(line, "release") == 0) {
      stub_release();
      pthread_join(other, NULL);
    } else if (strncmp(line, "child ", 6) == 0) {
      const pid_t pid = fork();
      if (pid == 0) {
        run(line + 6);
        exit(0);
      }
      int status;
      waitpid(pid, &status, 0);
      if (WIFSIGNALED(status)) {
        printf("%s: the child died\n", line + 6);
      }
    } else if (sscanf(line, "calls %ld", &calls) == 1) {
      measure(comms['w'], calls);
    } else {
      run(line);
    }
  }
  return 0;
}

#ifndef SHARED
int main(void) { return drive(); }
#endif
