// Communicators.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static _Thread_local char last_error[256];

// Freed communicators, the newest first: like malloc, it tends to return the same address again.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *freed[1024];
static int nfreed;

ncclResult_t fail(ncclResult_t result, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  if (getenv("NCCL_DEBUG")) fprintf(stderr, "NCCL WARN %s\n", last_error);
  return result;
}

// A failing operation may set this before the call that launched it has returned, with success.
void comm_set_async(struct ncclComm *c, ncclResult_t result) {
  int was = ncclInProgress;
  if (result)
    atomic_store(&c->async, result);
  else
    atomic_compare_exchange_strong(&c->async, &was, result);
  if (c->segment) atomic_store(&seat(c, c->rank)->async, atomic_load(&c->async));
}

ncclResult_t comm_check(struct ncclComm *c, const char *what) {
  if (!c) return fail(ncclInvalidArgument, "%s: comm is NULL", what);
  if (c->start_magic == NCCL_CONFIG_MAGIC && c->end_magic == NCCL_CONFIG_MAGIC) return ncclSuccess;
  return fail(ncclInvalidArgument, "%s: corrupted comm object detected", what);
}

ncclResult_t comm_ensure_ready(struct ncclComm *c) {
  int async = atomic_load(&c->async);
  if (async == ncclInProgress)
    return fail(ncclInvalidArgument, "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (is_before(22602)) group_collect(c);
  return async;
}

static struct ncclComm *comm_new(int rank, int nranks) {
  pthread_mutex_lock(&lock);
  struct ncclComm *c = nfreed ? freed[--nfreed] : malloc(sizeof *c);
  pthread_mutex_unlock(&lock);
  if (!c) return NULL;
  memset(c, 0, sizeof *c);
  c->start_magic = c->end_magic = NCCL_CONFIG_MAGIC;
  c->rank = rank;
  c->nranks = nranks;
  c->blocking = true;
  c->abort = &c->aborted;
  c->group_next = NOT_IN_GROUP;
  c->lease = -1;
  c->sent = calloc(nranks, sizeof *c->sent);
  c->received = calloc(nranks, sizeof *c->received);
  c->puts = calloc(nranks, sizeof *c->puts);
  c->carried = calloc(nranks, sizeof *c->carried);
  c->gets = calloc(nranks, sizeof *c->gets);
  cudaGetDevice(&c->device);
  return c;
}

static void comm_free(struct ncclComm *c) {
  segment_leave(c);
  free(c->sent);
  free(c->received);
  free(c->puts);
  free(c->carried);
  free(c->gets);
  c->start_magic = c->end_magic = 0;
  c->rank = c->nranks = c->device = -1;
  dirty(c, sizeof *c);
  pthread_mutex_lock(&lock);
  if (nfreed < (int)(sizeof freed / sizeof *freed)) freed[nfreed++] = c;
  pthread_mutex_unlock(&lock);
}

#define KNOWS(config, field) ((config)->size >= offsetof(ncclConfig_t, field) + sizeof (config)->field)

static ncclResult_t configure(struct ncclComm *c, const ncclConfig_t *config) {
  if (config) {
    if (config->magic != NCCL_CONFIG_MAGIC)
      return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
      return fail(ncclInvalidArgument, "Invalid config blocking attribute value %d", config->blocking);
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) c->blocking = config->blocking;
    if (!is_before(22703) && KNOWS(config, commName) && config->commName)
      snprintf(c->name, sizeof c->name, "%s", config->commName);
  }
  const char *blocking = getenv("NCCL_COMM_BLOCKING");
  if (blocking && *blocking) c->blocking = *blocking != '0';
  return ncclSuccess;
}

// Joins the other ranks of a communicator whose rank and size are known.
static ncclResult_t comm_join(struct ncclComm *c, const ncclUniqueId *id) {
  ras_init_begins();
  ncclResult_t result = segment_join(c, id);
  ras_init_ends();
  if (result) return result;
  for (int r = 0; r < c->nranks; r++) {
    int s = 0;
    while (strcmp(seat(c, s)->host, seat(c, r)->host)) s++;
    c->nodes += s == r;
  }
  profiler_open(c);
  atomic_store(&seat(c, c->rank)->ready, true);
  ras_add(c);
  return ncclSuccess;
}

struct init_job {
  struct job job;
  ncclUniqueId id;
};

static ncclResult_t run_init(struct job *job) {
  return comm_join(job->comm, &((struct init_job *)job)->id);
}

static ncclResult_t init(ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config) {
  if (!out || !id) return fail(ncclInvalidArgument, "ncclCommInitRank: NULL argument");
  if (nranks < 1 || rank < 0 || rank >= nranks)
    return fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, nranks);
  struct ncclComm *c = *out = comm_new(rank, nranks);
  struct init_job *job = calloc(1, sizeof *job);
  if (!c || !job) return ncclSystemError;
  ncclResult_t result = configure(c, config);
  job->job = (struct job){.run = run_init, .comm = c};
  job->id = *id;
  group_begin();
  if (result)
    group_fail(result);
  else
    group_add_job(&job->job);
  result = group_end();
  if (result && result != ncclInProgress) *out = NULL;
  return result;
}

ncclResult_t ncclGetVersion(int *out) {
  if (!out) return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *out = version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  return id ? id_make(id) : fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  return init(comm, nranks, &id, rank, config);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  return init(comm, nranks, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int n, ncclUniqueId *ids,
                                      ncclConfig_t *config) {
  if (n < 1 || n > nranks) return fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d unique ids", n);
  return init(comm, nranks, ids, rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
  ncclUniqueId id;
  int before;
  if (!comms || n < 1) return fail(ncclInvalidArgument, "ncclCommInitAll: %d devices", n);
  ncclResult_t result = id_make(&id);
  if (result) return result;
  cudaGetDevice(&before);
  group_begin();
  for (int i = 0; i < n && !result; i++)
    result = cudaSetDevice(devices ? devices[i] : i) ? ncclInvalidArgument : init(&comms[i], n, &id, i, NULL);
  if (result) group_fail(result);
  result = group_end();
  cudaSetDevice(before);
  return result;
}

// Splitting and shrinking: the members agree on the members of each child. The lowest rank of a child makes its unique
// id.

struct split_job {
  struct job job;
  ncclComm_t *out;
  uint64_t tag;
  struct member {
    int color, key, rank;
  } own;
  ncclConfig_t config;
  bool configured, abort;
  int nmembers;
  int members[]; // the ranks of the parent that make the call
};

static int by_key(const void *a, const void *b) {
  const struct member *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->rank > y->rank) - (x->rank < y->rank);
}

static ncclResult_t run_split(struct job *job) {
  struct split_job *s = (struct split_job *)job;
  struct ncclComm *parent = job->comm;
  int n = s->nmembers, own = 0, size = 0, rank = 0;
  struct member *all = calloc(n, sizeof *all);
  ncclUniqueId *ids = calloc(n, sizeof *ids);
  int *ranks = calloc(n, sizeof *ranks);
  ncclResult_t result = all && ids && ranks ? ncclSuccess : ncclSystemError;
  if (s->abort) {
    atomic_store(&parent->revoked, true);
    ring_all(parent);
    task_drain(parent);
  }
  if (result) goto out;
  while (s->members[own] != parent->rank) own++;
  all[own] = s->own;
  result = exchange(parent, s->tag, s->members, n, all, sizeof *all);
  *s->out = NULL;
  if (result || s->own.color < 0) goto out;
  qsort(all, n, sizeof *all, by_key);
  for (int i = 0; i < n; i++)
    if (all[i].color == s->own.color) {
      if (all[i].rank == parent->rank) rank = size;
      ranks[size++] = all[i].rank;
    }
  if (rank == 0) result = id_make(&ids[0]);
  if (!result) result = exchange(parent, mix(s->tag, s->own.color), ranks, size, ids, sizeof *ids);
  if (result) goto out;
  struct ncclComm *child = comm_new(rank, size);
  if (!child) {
    result = ncclSystemError;
    goto out;
  }
  child->device = parent->device;
  child->blocking = parent->blocking;
  result = configure(child, s->configured ? &s->config : NULL);
  if (!result) result = comm_join(child, &ids[0]);
  if (!result && rank == 0) segment_register(parent, &ids[0]);
  if (!result) *s->out = child;
out:
  free(all);
  free(ids);
  free(ranks);
  return result;
}

static ncclResult_t split(struct ncclComm *c, int color, int key, ncclComm_t *out, const ncclConfig_t *config,
                          const int *without, int nwithout, bool abort) {
  struct split_job *s = calloc(1, sizeof *s + c->nranks * sizeof s->members[0]);
  if (!s) return ncclSystemError;
  s->job = (struct job){.run = run_split, .comm = c};
  s->out = out;
  s->tag = mix(c->control++, 1);
  s->own = (struct member){color, key, c->rank};
  s->abort = abort;
  for (int r = 0; r < c->nranks; r++) {
    bool in = true;
    for (int i = 0; i < nwithout; i++) in &= without[i] != r;
    if (in) s->members[s->nmembers++] = r;
  }
  for (int i = 0; i < s->nmembers; i++) s->tag = mix(s->tag, s->members[i]);
  if ((s->configured = config))
    memcpy(&s->config, config, config->size < sizeof *config ? config->size : sizeof *config);
  group_add_job(&s->job);
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  ncclResult_t result = comm_check(c, "ncclCommSplit");
  if (result) return result;
  if (!out) return fail(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
  if (color < NCCL_SPLIT_NOCOLOR) return fail(ncclInvalidArgument, "ncclCommSplit: color must be at least 0");
  if (is_before(22602) && c->job) {
    group_await(c);
    poison_group(c);
  }
  group_begin();
  if (!(result = comm_ensure_ready(c))) result = split(c, color, key, out, config, NULL, 0, false);
  if (result) group_fail(result);
  return group_end();
}

ncclResult_t ncclCommShrink(ncclComm_t c, int *without, int n, ncclComm_t *out, ncclConfig_t *config, int flags) {
  ncclResult_t result = comm_check(c, "ncclCommShrink");
  if (result) return result;
  if (!out || !without || n < 1 || n >= c->nranks) return fail(ncclInvalidArgument, "ncclCommShrink: %d ranks", n);
  for (int i = 0; i < n; i++)
    if (without[i] < 0 || without[i] >= c->nranks || without[i] == c->rank)
      return fail(ncclInvalidArgument, "ncclCommShrink: rank %d can't be left out", without[i]);
  group_begin();
  bool abort = flags & 1; // NCCL_SHRINK_ABORT: errors of the parent are the reason for the shrink
  if (!abort) result = comm_ensure_ready(c);
  if (!result) result = split(c, 0, c->rank, out, config, without, n, abort);
  if (result) group_fail(result);
  return group_end();
}

// Growing: one rank of the parent has a unique id for the ranks that join, and sends it to the other ranks.

struct grow_job {
  struct job job;
  struct ncclComm *parent;
  ncclUniqueId id;
  bool has_id;
};

static ncclResult_t run_grow(struct job *job) {
  struct grow_job *g = (struct grow_job *)job;
  struct ncclComm *parent = g->parent;
  if (!parent) return comm_join(job->comm, &g->id);
  int n = parent->nranks;
  ncclUniqueId *ids = calloc(n, sizeof *ids);
  int *all = calloc(n, sizeof *all);
  ncclResult_t result = ids && all ? ncclSuccess : ncclSystemError;
  for (int r = 0; r < n && !result; r++) all[r] = r;
  if (!result) {
    if (g->has_id) ids[parent->rank] = g->id;
    result = exchange(parent, mix(parent->control++, 2), all, n, ids, sizeof *ids);
  }
  static const ncclUniqueId none;
  int from = 0;
  while (!result && from < n && !memcmp(&ids[from], &none, sizeof none)) from++;
  if (!result && from == n) result = fail(ncclInvalidUsage, "no rank gave a unique id");
  if (!result) result = comm_join(job->comm, &ids[from]);
  free(ids);
  free(all);
  return result;
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t c, ncclUniqueId *id) {
  ncclResult_t result = comm_check(c, "ncclCommGetUniqueId");
  return result ? result : ncclGetUniqueId(id);
}

ncclResult_t ncclCommGrow(ncclComm_t c, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *out,
                          ncclConfig_t *config) {
  if (!out) return fail(ncclInvalidArgument, "ncclCommGrow: newcomm is NULL");
  ncclResult_t result = c ? comm_check(c, "ncclCommGrow") : ncclSuccess;
  if (!result && c) result = comm_ensure_ready(c);
  if (result) return result;
  if (c ? rank != -1 || nranks <= c->nranks : !id || rank < 0 || rank >= nranks)
    return fail(ncclInvalidArgument, "ncclCommGrow: rank %d of %d", rank, nranks);
  struct grow_job *job = calloc(1, sizeof *job);
  struct ncclComm *grown = *out = comm_new(c ? c->rank : rank, nranks);
  if (!job || !grown) return ncclSystemError;
  if (c) grown->blocking = c->blocking;
  job->job = (struct job){.run = run_grow, .comm = grown};
  job->parent = c;
  if ((job->has_id = id)) job->id = *id;
  group_begin();
  result = configure(grown, config);
  if (result)
    group_fail(result);
  else
    group_add_job(&job->job);
  return group_end();
}

// Ending.

static ncclResult_t run_finalize(struct job *job) {
  task_drain(job->comm);
  atomic_store(&seat(job->comm, job->comm->rank)->finalized, true);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ncclResult_t result = comm_check(c, "ncclCommFinalize");
  if (result) return result;
  if (atomic_load(&c->revoked)) return fail(ncclInvalidUsage, "ncclCommFinalize: the communicator is revoked");
  if ((result = comm_ensure_ready(c))) return result;
  if (atomic_exchange(&c->finalized, true)) return fail(ncclInvalidArgument, "ncclCommFinalize: called twice");
  struct job *job = calloc(1, sizeof *job);
  if (!job) return ncclSystemError;
  *job = (struct job){.run = run_finalize, .comm = c};
  group_begin();
  group_add_job(job);
  return group_end();
}

static ncclResult_t run_destroy(struct job *job) {
  struct ncclComm *c = job->comm;
  group_collect(c);
  task_drain(c);
  profiler_close(c);
  ras_remove(c);
  if (c->segment) {
    atomic_store(&seat(c, c->rank)->destroyed, true);
    ring_all(c);
  }
  comm_free(c);
  return ncclSuccess;
}

// Before the group is ended, the check for nccl#1482 reads memory that may have been freed.
static ncclResult_t destroy(struct ncclComm *c, bool abort) {
  if (!c) return ncclSuccess;
  group_begin();
  if (c->rank == -1) return fail(ncclInvalidArgument, "comm %p has already been destroyed", (void *)c);
  if (abort) {
    atomic_store(c->abort, true);
    if (c->segment) atomic_store(&seat(c, c->rank)->aborted, true);
    if (c->segment) ring_all(c);
  } else
    atomic_load(c->abort);
  struct job *job = calloc(1, sizeof *job);
  if (!job) return ncclSystemError;
  *job = (struct job){.run = run_destroy, .comm = c, .must_block = true};
  group_add_job(job);
  return group_end();
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  return destroy(c, false);
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  return destroy(c, true);
}

ncclResult_t ncclCommRevoke(ncclComm_t c, int flags) {
  ncclResult_t result = comm_check(c, "ncclCommRevoke");
  if (result) return result;
  if (flags) return fail(ncclInvalidArgument, "ncclCommRevoke: flags %d", flags);
  atomic_store(&c->revoked, true);
  if (c->segment) ring_all(c);
  if (!c->blocking) return atomic_load(&c->running) ? ncclInProgress : ncclSuccess;
  task_drain(c);
  return ncclSuccess;
}

// Queries.

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
  ncclResult_t result = comm_check(c, "ncclCommGetAsyncError");
  if (result) return result;
  if (!out) return fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
  *out = atomic_load(&c->async);
  if (*out != ncclInProgress) group_collect(c);
  if (*out == ncclSuccess && atomic_load(&c->revoked) && atomic_load(&c->running)) *out = ncclInProgress;
  return ncclSuccess;
}

static ncclResult_t ask(struct ncclComm *c, int *out, const int *field, const char *what) {
  ncclResult_t result = comm_check(c, what);
  if (!result) result = comm_ensure_ready(c);
  if (result) return result;
  if (!out) return fail(ncclInvalidArgument, "%s: NULL argument", what);
  *out = *field;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *count) {
  return ask(c, count, &c->nranks, "ncclCommCount");
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *device) {
  return ask(c, device, &c->device, "ncclCommCuDevice");
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) {
  return ask(c, rank, &c->rank, "ncclCommUserRank");
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const text[] = {"no error",
                                     "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                     "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                     "internal error - please report this issue to the NCCL developers",
                                     "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                     "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                     "remote process exited or there was a network error",
                                     "NCCL operation in progress",
                                     "operation timed out"};
  return (unsigned)result < sizeof text / sizeof *text ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) {
  (void)c;
  return last_error;
}

void ncclResetDebugInit(void) {}

// Memory, which is host memory: nothing needs to be registered but windows, which ranks identify by number.

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  return cudaMalloc(memory, bytes) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory) {
  return cudaFree(memory) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *memory, size_t bytes, void **handle) {
  (void)bytes;
  *handle = memory;
  return comm_check(c, "ncclCommRegister");
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
  (void)handle;
  return comm_check(c, "ncclCommDeregister");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *out, int flags) {
  (void)flags;
  ncclResult_t result = comm_check(c, "ncclCommWindowRegister");
  if (result) return result;
  if (c->nwindows == WINDOWS) return fail(ncclInvalidUsage, "ncclCommWindowRegister: %d windows are enough", WINDOWS);
  if (!(*out = malloc(sizeof **out))) return ncclSystemError;
  **out = (struct ncclWindow_vidmem){memory, bytes, c->nwindows};
  c->windows[c->nwindows++] = *out;
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window) {
  ncclResult_t result = comm_check(c, "ncclCommWindowDeregister");
  if (result) return result;
  c->windows[window->number] = NULL;
  free(window);
  return ncclSuccess;
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t c, ncclWindow_t window, void **out) {
  ncclResult_t result = comm_check(c, "ncclWinGetUserPtr");
  if (!result) *out = window->memory;
  return result;
}

ncclResult_t ncclCommSuspend(ncclComm_t c, int flags) {
  (void)flags;
  return comm_check(c, "ncclCommSuspend");
}

ncclResult_t ncclCommResume(ncclComm_t c) {
  return comm_check(c, "ncclCommResume");
}

ncclResult_t ncclCommMemStats(ncclComm_t c, ncclCommMemStat_t stat, uint64_t *value) {
  (void)stat;
  ncclResult_t result = comm_check(c, "ncclCommMemStats");
  if (!result) *value = c->segment_bytes;
  return result;
}
