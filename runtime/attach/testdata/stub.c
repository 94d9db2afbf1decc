//go:build ignore

/*
 * A libnccl.so.2 for one process that only prints its calls, and that goes wrong as NCCL does where it matters: it ends
 * the process when a freed communicator is used, or (before 2.27.3) when a communicator with an unfinished group job is
 * split. STUB_VERSION is the version that it reports.
 *
 * A communicator whose configuration says so is non-blocking: calls that take time answer ncclInProgress, and are done
 * once ncclCommGetAsyncError was asked twice. stub_hold makes the next call on a communicator wait inside until
 * stub_release.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../nccl.h"

#define API __attribute__((visibility("default")))

struct ncclComm {
  bool live, nonblocking, job;
  int rank, size, polls; /* polls: how many until it is done */
  ncclComm_t *out;       /* of the split that is in progress */
  ncclResult_t error;
};

static struct ncclComm comms[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hold, held;
static bool quiet;

API void stub_quiet(void) { quiet = true; }

API void stub_hold(void) { hold = true; }

API void stub_await(void) {
  pthread_mutex_lock(&lock);
  while (!held) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
}

API void stub_release(void) {
  pthread_mutex_lock(&lock);
  hold = held = false;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

API void stub_fail(ncclComm_t comm, ncclResult_t error) { comm->error = error; }

API void stub_stick(ncclComm_t comm) { comm->polls = 1 << 30; }

static void say(const char *what) {
  if (!quiet) {
    printf("  NCCL: %s\n", what);
    fflush(stdout);
  }
}

static int version(void) {
  const char *text = getenv("STUB_VERSION");
  return text != NULL ? atoi(text) : 22809;
}

/* Begins every call on a communicator. */
static void called(const char *name, ncclComm_t comm) {
  if (!quiet) {
    say(name);
  }
  if (!comm->live) {
    say("that communicator's memory is somebody else's");
    abort();
  }
  pthread_mutex_lock(&lock);
  if (hold && !held) {
    held = true;
    pthread_cond_broadcast(&changed);
    while (held) {
      pthread_cond_wait(&changed, &lock);
    }
  }
  pthread_mutex_unlock(&lock);
}

/* Completes a group job that is done. */
static void ensure_ready(ncclComm_t comm) {
  if (comm->polls == 0) {
    comm->job = false;
  }
}

static ncclResult_t takes_time(ncclComm_t comm) {
  if (!comm->nonblocking) {
    return ncclSuccess;
  }
  comm->polls = 2;
  comm->job = version() < 22703;
  return ncclInProgress;
}

static ncclComm_t make(int size, int rank, bool nonblocking) {
  for (int i = 0; i < 64; i++) {
    if (!comms[i].live) {
      comms[i] = (struct ncclComm){.live = true, .nonblocking = nonblocking, .rank = rank, .size = size};
      return &comms[i];
    }
  }
  abort();
}

API ncclResult_t ncclGetVersion(int *to) {
  *to = version();
  return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote error" : "some error";
}

API const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "a peer is gone";
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 7, sizeof *id);
  return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  (void)id;
  say("ncclCommInitRankConfig");
  *comm = make(nranks, rank, config != NULL && config->blocking == 0);
  return takes_time(*comm);
}

API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  (void)id;
  say("ncclCommInitRank");
  *comm = make(nranks, rank, false);
  return ncclSuccess;
}

API ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
  (void)devlist;
  say("ncclCommInitAll");
  for (int i = 0; i < ndev; i++) {
    comm[i] = make(ndev, i, false);
  }
  return ncclSuccess;
}

static __thread int depth;
static __thread ncclComm_t grouped; /* the communicator that was split last in the group */
static __thread bool refused;       /* one of the group's calls was refused */

API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  (void)key;
  (void)config;
  called("ncclCommSplit", comm);
  if (comm->job) {
    say("takes the group job up at the wrong time");
    abort();
  }
  *newcomm = NULL;
  if (color >= 0 && !comm->nonblocking) {
    *newcomm = make(1, 0, false);
  }
  comm->out = color >= 0 ? newcomm : NULL;
  if (depth > 0) {
    grouped = comm;
    return ncclSuccess;
  }
  return takes_time(comm);
}

API ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  ensure_ready(comm);
  *count = comm->size;
  return ncclSuccess;
}

API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  if (comm->polls > 0 && --comm->polls == 0 && comm->out != NULL) {
    *comm->out = make(1, 0, true);
    comm->out = NULL;
  }
  *state = comm->error != ncclSuccess ? comm->error : comm->polls > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

#define SLOW(name, params) \
  API ncclResult_t name params { \
    called(#name, comm); \
    return takes_time(comm); \
  }

#define ENDS(name) \
  API ncclResult_t name(ncclComm_t comm) { \
    called(#name, comm); \
    comm->live = false; \
    return ncclSuccess; \
  }

SLOW(ncclCommFinalize, (ncclComm_t comm))
SLOW(ncclCommRevoke, (ncclComm_t comm, int flags __attribute__((unused))))
ENDS(ncclCommDestroy)
ENDS(ncclCommAbort)

API ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)sendbuff, (void)recvbuff, (void)count, (void)op, (void)stream;
  called("ncclAllReduce", comm);
  if ((unsigned)datatype >= ncclNumTypes) {
    refused = depth > 0;
    return ncclInvalidArgument;
  }
  return depth > 0 ? ncclSuccess : comm->error != ncclSuccess ? comm->error : takes_time(comm);
}

API ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream) {
  (void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)root, (void)stream;
  called("ncclBroadcast", comm);
  return ncclSuccess;
}

/* NCCL calls another of its own functions, by its public name. */
API ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  called("ncclBcast", comm);
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

API ncclResult_t ncclGroupStart(void) {
  depth++;
  say("ncclGroupStart");
  return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void) {
  depth--;
  say("ncclGroupEnd");
  if (depth == 0 && refused) {
    refused = false;
    return ncclInvalidArgument;
  }
  if (depth > 0 || grouped == NULL) {
    return ncclSuccess;
  }
  const ncclComm_t comm = grouped;
  grouped = NULL;
  return comm->error != ncclSuccess ? comm->error : takes_time(comm);
}

API ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  (void)info;
  say("ncclGroupSimulateEnd");
  depth--;
  return ncclSuccess;
}
