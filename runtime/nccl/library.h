// NCCL's API, as far as the package uses it. Declarations are our own, by NVIDIA's reference of version 2.18.
#pragma once

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int ncclResult_t;
typedef struct ncclComm *ncclComm_t;

typedef struct {
  char bytes[128];
} ncclUniqueId;

// The fields that version 2.18 has: a later one takes the others for unset, by the size.
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} ncclConfig_t;

#define LIBRARY_FUNCTIONS(F)                                                                                           \
  F(ncclResult_t, ncclGetVersion, (int *version))                                                                      \
  F(const char *, ncclGetErrorString, (ncclResult_t result))                                                           \
  F(const char *, ncclGetLastError, (ncclComm_t comm))                                                                 \
  F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                                                \
  F(ncclResult_t, ncclCommInitRankConfig,                                                                              \
    (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))                                  \
  F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))                                       \
  F(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                                                 \
  F(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                                                  \
  F(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                                                    \
  F(ncclResult_t, ncclRedOpCreatePreMulSum, (int *op, void *scalar, int type, int residence, ncclComm_t comm))         \
  F(ncclResult_t, ncclRedOpDestroy, (int op, ncclComm_t comm))                                                         \
  F(ncclResult_t, ncclGroupStart, (void))                                                                              \
  F(ncclResult_t, ncclGroupEnd, (void))                                                                                \
  F(ncclResult_t, ncclAllReduce,                                                                                       \
    (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, void *stream))                     \
  F(ncclResult_t, ncclReduceScatter,                                                                                   \
    (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, void *stream))                     \
  F(ncclResult_t, ncclReduce,                                                                                          \
    (const void *send, void *recv, size_t count, int type, int op, int root, ncclComm_t comm, void *stream))           \
  F(ncclResult_t, ncclBroadcast,                                                                                       \
    (const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, void *stream))                   \
  F(ncclResult_t, ncclAllGather,                                                                                       \
    (const void *send, void *recv, size_t count, int type, ncclComm_t comm, void *stream))                             \
  F(ncclResult_t, ncclSend, (const void *send, size_t count, int type, int peer, ncclComm_t comm, void *stream))       \
  F(ncclResult_t, ncclRecv, (void *recv, size_t count, int type, int peer, ncclComm_t comm, void *stream))

typedef struct {
  void *library;
#define F(result, name, args) result(*name) args;
  LIBRARY_FUNCTIONS(F)
#undef F
} library;

// open_library loads a library. What it answers is NULL, and text says why, if it can't be loaded or lacks a function.
static inline library *open_library(const char *path, const char **text) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *text = dlerror();
    return NULL;
  }
  library *l = calloc(1, sizeof *l);
  if (!l) abort();
  l->library = handle;
  *text = NULL;
#define F(result, name, args)                                                                                          \
  *(void **)&l->name = dlsym(handle, #name);                                                                           \
  if (!l->name) *text = "it has no " #name ": it is no NCCL, or older than 2.18.1";
  LIBRARY_FUNCTIONS(F)
#undef F
  if (!*text) return l;
  dlclose(handle);
  free(l);
  return NULL;
}

static inline ncclResult_t shim_version(const library *l, int *version) { return l->ncclGetVersion(version); }
static inline ncclResult_t shim_id(const library *l, void *id) { return l->ncclGetUniqueId(id); }
static inline const char *shim_text(const library *l, ncclResult_t r) { return l->ncclGetErrorString(r); }
static inline const char *shim_last(const library *l, ncclComm_t comm) { return l->ncclGetLastError(comm); }

static inline ncclResult_t shim_init(const library *l, ncclComm_t *comm, int nranks, const void *id, int rank) {
  ncclConfig_t config = {
      .size = sizeof config, .magic = 0xcafebeef, .version = 21801, .blocking = 0,
      .cga_cluster_size = INT_MIN, .min_ctas = INT_MIN, .max_ctas = INT_MIN, .split_share = INT_MIN,
  };
  return l->ncclCommInitRankConfig(comm, nranks, *(const ncclUniqueId *)id, rank, &config);
}

static inline ncclResult_t shim_async(const library *l, ncclComm_t comm) {
  ncclResult_t error = 0, r = l->ncclCommGetAsyncError(comm, &error);
  return r ? r : error;
}

static inline ncclResult_t shim_finalize(const library *l, ncclComm_t comm) { return l->ncclCommFinalize(comm); }
static inline ncclResult_t shim_destroy(const library *l, ncclComm_t comm) { return l->ncclCommDestroy(comm); }
static inline ncclResult_t shim_abort(const library *l, ncclComm_t comm) { return l->ncclCommAbort(comm); }

static inline ncclResult_t shim_scaled(const library *l, ncclComm_t comm, int *op, uint64_t scalar, int type) {
  return l->ncclRedOpCreatePreMulSum(op, &scalar, type, 1, comm); // 1: the scalar is read at once, on the host
}

static inline ncclResult_t shim_unscale(const library *l, ncclComm_t comm, int op) {
  return l->ncclRedOpDestroy(op, comm);
}

enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

typedef struct {
  int call, type, reduction, peer;
  uint64_t send, recv;
  size_t count;
} operation;

static inline ncclResult_t run_one(const library *l, ncclComm_t comm, void *stream, const operation *o) {
  const void *send = (const void *)(uintptr_t)o->send;
  void *recv = (void *)(uintptr_t)o->recv;
  switch (o->call) {
  case ALL_REDUCE: return l->ncclAllReduce(send, recv, o->count, o->type, o->reduction, comm, stream);
  case BROADCAST: return l->ncclBroadcast(send, recv, o->count, o->type, o->peer, comm, stream);
  case REDUCE: return l->ncclReduce(send, recv, o->count, o->type, o->reduction, o->peer, comm, stream);
  case ALL_GATHER: return l->ncclAllGather(send, recv, o->count, o->type, comm, stream);
  case REDUCE_SCATTER: return l->ncclReduceScatter(send, recv, o->count, o->type, o->reduction, comm, stream);
  case SEND: return l->ncclSend(send, o->count, o->type, o->peer, comm, stream);
  default: return l->ncclRecv(recv, o->count, o->type, o->peer, comm, stream);
  }
}

// shim_run is one call for all operations, since a group belongs to a thread. The first error counts.
static inline ncclResult_t shim_run(const library *l, ncclComm_t comm, uint64_t on, const operation *o, int n) {
  void *stream = (void *)(uintptr_t)on;
  if (n == 1) return run_one(l, comm, stream, o);
  ncclResult_t r = l->ncclGroupStart();
  if (r) return r;
  for (int i = 0; i < n && (r == 0 || r == 7); i++) r = run_one(l, comm, stream, o + i); // 7: in progress
  ncclResult_t end = l->ncclGroupEnd();
  return r == 0 || r == 7 ? end : r;
}
