// A profiler plug-in that counts the calls that it gets, in each interface, and prints the counts when a communicator
// ends: one line for each type of event with its parent's type. PLUGIN_MASK is its mask, PLUGIN_MASK_LATER the mask
// after the first group. Like real plug-ins of that time, it uses the context that it is given if the event says that
// the context is of this process.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl.h"

enum { TYPES = 18, FOREIGN = TYPES - 1 };

struct context {
  int rank, version;
  struct count {
    int started, stopped, states;
  } counts[TYPES][TYPES];
};

struct event {
  struct context *context;
  int type, parent;
  bool stopped;
};

static const struct {
  int version;
  const char *name;
  int offset, size;
} abi[] = {
#include "abi.inc"
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *mask, foreign, late;

static uint64_t field(int version, const char *name, const void *descr) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof abi / sizeof *abi; i++)
    if (abi[i].version == version && !strcmp(abi[i].name, name))
      memcpy(&value, (const char *)descr + abi[i].offset, abi[i].size);
  return value;
}

// Contexts are at addresses that other ranks' processes don't use, so that a foreign one can't be taken for an own one.
static ncclResult_t open_context(void **out, int *activation, int version, int rank) {
  static int opened;
  pthread_mutex_lock(&lock);
  void *at = (void *)(0x200000000000 + ((uintptr_t)getpid() << 24) + ((uintptr_t)opened++ << 16));
  pthread_mutex_unlock(&lock);
  struct context *c = mmap(at, sizeof *c, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c == MAP_FAILED) return ncclSystemError;
  c->version = version;
  c->rank = rank;
  *out = c;
  *(mask = activation) = (int)strtol(getenv("PLUGIN_MASK"), NULL, 0);
  return ncclSuccess;
}

static int index_of(uint64_t type) {
  return type ? __builtin_ctzll(type) : FOREIGN;
}

static ncclResult_t start(int version, void *context, void **handle, void *descr) {
  struct context *c = context;
  int type = index_of(field(version, "-.type", descr));
  if (version < 4 && type < 3) c->rank = (int)field(version, "-.rank", descr); // init doesn't tell it
  struct event *e = calloc(1, sizeof *e);
  *handle = e;
  e->type = type;
  if (type == 3 && (int)field(version, "proxyOp.pid", descr) != getpid()) {
    pthread_mutex_lock(&lock);
    foreign++;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
  }
  if (type != 4) { // a step uses the context of its operation
    struct event *parent = (struct event *)(uintptr_t)field(version, "-.parentObj", descr);
    e->context = c;
    e->parent = c->rank > -2 && parent ? parent->type : FOREIGN; // reads both: the event claims to be ours
  } else {
    struct event *parent = (struct event *)(uintptr_t)field(version, "-.parentObj", descr);
    if (!(e->context = parent->context)) return ncclSuccess;
    e->parent = parent->type;
  }
  pthread_mutex_lock(&lock);
  e->context->counts[e->type][e->parent].started++;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t stop(void *handle) {
  struct event *e = handle; // never freed: later calls may refer to it
  if (!e->context) return ncclSuccess;
  pthread_mutex_lock(&lock);
  e->stopped = true;
  e->context->counts[e->type][e->parent].stopped++;
  if (e->type == 0 && getenv("PLUGIN_MASK_LATER")) *mask = (int)strtol(getenv("PLUGIN_MASK_LATER"), NULL, 0);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t state(void *handle, int s, void *args) {
  struct event *e = handle;
  (void)s;
  (void)args;
  if (!e->context) return ncclSuccess;
  pthread_mutex_lock(&lock);
  e->context->counts[e->type][e->parent].states++;
  late += e->stopped;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t finalize(void *context) {
  static const char *const names[TYPES] = {
      "group", "coll", "p2p", "proxyOp", "proxyStep", "proxyCtrl", "kernelCh", "netPlugin", "groupApi", "collApi",
      "p2pApi", "kernelLaunch", "ceColl", "ceCollSync", "ceCollBatch", "kernelPhase", "?", "-"};
  struct context *c = context;
  pthread_mutex_lock(&lock);
  for (int t = 0; t < TYPES; t++)
    for (int p = 0; p < TYPES; p++)
      if (c->counts[t][p].started)
        printf("v%d rank %d: %s of %s: %d started, %d stopped, %d states\n", c->version, c->rank, names[t], names[p],
               c->counts[t][p].started, c->counts[t][p].stopped, c->counts[t][p].states);
  if (foreign) printf("v%d rank %d: %d proxy operations of another process\n", c->version, c->rank, foreign);
  if (late) printf("v%d rank %d: %d states after a stop\n", c->version, c->rank, late);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

struct plugin {
  const char *name;
  void *init;
  ncclResult_t (*start)(void *, void **, void *);
  ncclResult_t (*stop)(void *);
  ncclResult_t (*state)(void *, int, void *);
  ncclResult_t (*finalize)(void *);
};

#define INIT_1(v) (void **context, int *m) { return open_context(context, m, v, -1); }
#define INIT_4(v) \
  (void **context, int *m, const char *name, uint64_t hash, int nodes, int nranks, int rank, void *log) { \
    (void)name, (void)hash, (void)nodes, (void)nranks, (void)log; \
    return open_context(context, m, v, rank); \
  }
#define INIT_5(v) \
  (void **context, uint64_t id, int *m, const char *name, int nodes, int nranks, int rank, void *log) { \
    (void)name, (void)id, (void)nodes, (void)nranks, (void)log; \
    return open_context(context, m, v, rank); \
  }
#define INTERFACE(v, INIT) \
  static ncclResult_t init_##v INIT(v) \
  static ncclResult_t start_##v(void *context, void **handle, void *descr) { \
    return start(v, context, handle, descr); \
  } \
  __attribute__((visibility("default"))) struct plugin ncclProfiler_v##v = { \
      "counter", init_##v, start_##v, stop, state, finalize};
INTERFACE(1, INIT_1)
INTERFACE(2, INIT_1)
INTERFACE(3, INIT_1)
INTERFACE(4, INIT_4)
INTERFACE(5, INIT_5)
INTERFACE(6, INIT_5)
INTERFACE(7, INIT_5)
