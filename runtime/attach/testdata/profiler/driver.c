/*
 * Calls the plug-in as NCCL does, following the lines on stdin. Contexts and handles are test numbers; 0 is NULL.
 *
 *   version V                             the next lines use version V
 *   expect RANK SIZE                      interposition expects a communicator
 *   init CONTEXT HASH NODES SIZE RANK NAME
 *   start CONTEXT HANDLE TYPE PARENT GROUP RANK FUNC COUNT DATATYPE ROOT PEER PID NUMBER HASH NAME
 *                                         of a proxy's operation, ROOT is whether it sends
 *   stop HANDLE, state HANDLE STATE NUMBER, finalize CONTEXT
 *   look CONTEXT N, launched CONTEXT, seen CONTEXT       looks into operation N, an all-reduce
 *   mask, setmask BITS, filter 0|1    with 1, only events in the mask are passed on, as by NCCL
 *   raw HANDLE VALUE, poison HANDLE|CONTEXT N            any value; the address of memory that nobody may touch
 *   bench N                               prints what the callbacks of a collective take
 *   threads N M                           N threads make M collectives each, and stop each other's events
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../ops.h"
#include "../../profiler.h"
#include "../../profiler_depth.h"
#include "../../tape.h"

extern const struct profiler_v1 ncclProfiler_v1;
extern const struct profiler_v2 ncclProfiler_v2;
extern const struct profiler_v3 ncclProfiler_v3;
extern const struct profiler_v4 ncclProfiler_v4;
extern const struct profiler_v5 ncclProfiler_v5;
extern const struct profiler_v6 ncclProfiler_v6;
extern const struct profiler_v7 ncclProfiler_v7;

enum { CONTEXTS = 2048, HANDLES = 1 << 17, EXPECTED = 8 };
static void *contexts[CONTEXTS], *handles[HANDLES];
static struct ops_comm expected[EXPECTED];
static int version = 5, mask;
static bool filter;

static void nccl_log(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  char text[1024];
  __builtin_va_list args;
  __builtin_va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  __builtin_va_end(args);
  printf("log %d %lu %s\n", level, flags, text);
  (void)file;
  (void)line;
}

static void init(void **context, uint64_t hash, const char *name, int nodes, int size, int rank) {
  switch (version) {
  case 1:
    ncclProfiler_v1.init(context, &mask);
    break;
  case 2:
    ncclProfiler_v2.init(context, &mask);
    break;
  case 3:
    ncclProfiler_v3.init(context, &mask);
    break;
  case 4:
    ncclProfiler_v4.init(context, &mask, name, hash, nodes, size, rank, nccl_log);
    break;
#define INIT(V)                                                                             \
  case V:                                                                                   \
    ncclProfiler_v##V.init(context, hash, &mask, name, nodes, size, rank, nccl_log); \
    break
    INIT(5);
    INIT(6);
    INIT(7);
  }
}

static void start(void *context, void **handle, const struct profiler_event *e) {
  switch (version) {
#define START(V)                                          \
  case V: {                                               \
    struct profiler_descr_v##V d;                         \
    profiler_write_v##V(&d, e);                           \
    ncclProfiler_v##V.startEvent(context, handle, &d);    \
    break;                                                \
  }
    START(1)
    START(2)
    START(3)
    START(4)
    START(5)
    START(6)
    START(7)
  }
}

static bool told(uint64_t type) {
  return !filter || (mask & (int)type) != 0 || (mask != 0 && (type == PROFILER_GROUP_API || type == PROFILER_GROUP));
}

static struct profiler_event event(uint64_t type, void *parent, void *group, int rank, const char *func, uint64_t count,
                                   const char *datatype, int root, int peer, int pid, uint64_t number, uint64_t hash,
                                   const char *name) {
  struct profiler_event e = {.type = type, .parentObj = parent, .rank = rank};
  switch (type) {
  case PROFILER_GROUP_API:
    e.groupApi.groupDepth = (int32_t)number;
    break;
  case PROFILER_COLL_API:
    e.collApi.func = func;
    e.collApi.count = count;
    e.collApi.datatype = datatype;
    e.collApi.root = root;
    break;
  case PROFILER_P2P_API:
    e.p2pApi.func = func;
    e.p2pApi.count = count;
    e.p2pApi.datatype = datatype;
    break;
  case PROFILER_COLL:
    e.parentObj = version < 5 ? group : parent;
    e.coll.parentGroup = group;
    e.coll.func = func;
    e.coll.count = count;
    e.coll.datatype = datatype;
    e.coll.root = root;
    e.coll.seqNumber = number;
    e.coll.algo = "RING";
    e.coll.proto = "LL";
    e.coll.commHash = hash;
    e.coll.name = name;
    break;
  case PROFILER_P2P:
    e.parentObj = version < 5 ? group : parent;
    e.p2p.parentGroup = group;
    e.p2p.func = func;
    e.p2p.count = count;
    e.p2p.datatype = datatype;
    e.p2p.peer = peer;
    e.p2p.commHash = hash;
    e.p2p.name = name;
    break;
  case PROFILER_PROXY_OP:
    e.proxyOp.pid = pid != 0 ? pid : getpid();
    e.proxyOp.peer = peer;
    e.proxyOp.isSend = root;
    break;
  case PROFILER_PROXY_STEP:
    e.proxyStep.step = (int32_t)number;
    break;
  case PROFILER_KERNEL_CH:
    e.kernelCh.pTimer = number;
    break;
  }
  return e;
}

/* Measures the callbacks of a collective with version 5, in ns: the least of many rounds. Like NCCL, it makes no stop
   call for an event without a handle. */
static void bench(int rounds) {
  enum { CALLS = 1000 };
  const struct profiler_v5 *p = &ncclProfiler_v5;
  struct profiler_descr_v5 api = {.type = PROFILER_GROUP_API}, call = {.type = PROFILER_COLL_API};
  struct profiler_descr_v5 group = {.type = PROFILER_GROUP}, coll = {.type = PROFILER_COLL};
  call.collApi.func = coll.coll.func = "AllReduce";
  call.collApi.datatype = coll.coll.datatype = "ncclFloat32";
  call.collApi.count = coll.coll.count = 1024;
  int64_t least = INT64_MAX;
  int callbacks = 0;
  void *context = NULL;
  init(&context, 1, "bench", 1, 8, 0);
  for (int round = 0; round < rounds; round++) {
    callbacks = 0;
    const int64_t began = tape_now();
    for (int i = 0; i < CALLS; i++) {
      void *handle[4];
      p->startEvent(context, &handle[0], &api);
      call.parentObj = handle[0];
      p->startEvent(context, &handle[1], &call);
      coll.parentObj = handle[1];
      if (handle[1] != NULL) {
        p->stopEvent(handle[1]);
        callbacks++;
      }
      p->startEvent(context, &handle[2], &group);
      coll.coll.parentGroup = handle[2];
      p->startEvent(context, &handle[3], &coll);
      for (int h = 3; h >= 0; h--) {
        if (h != 1 && handle[h] != NULL) {
          p->stopEvent(handle[h]);
          callbacks++;
        }
      }
      callbacks += 4;
    }
    const int64_t took = tape_now() - began;
    least = took < least ? took : least;
  }
  printf("bench %.1f ns a collective, of %d callbacks\n", (double)least / CALLS, callbacks / CALLS);
  p->finalize(context);
}

/* Looks into an operation of a communicator that interposition sees. */
static void look(void *context, uint64_t number) {
  static struct tape_comm *comm;
  const struct tape_signature all_reduce = {.call = 16, .data_type = 7, .peer = -1, .bytes = 4};
  if (comm == NULL) {
    tape_open();
    comm = tape_comm_new(&(struct tape_info){.id = "looked into", .size = 2, .engine = "nccl"}, NULL);
  }
  const int64_t start = tape_now();
  const uint64_t launched = tape_op_start(comm, number, &all_reduce, 0);
  tape_op_end(comm, launched, 0);
  const struct tape_look of = {number, launched, all_reduce.bytes, 16 | 7 << 8, -1, start};
  depth_begin((uintptr_t)context, comm, &of);
}

enum { THREADS = 8 };
static _Atomic(void *) shared[THREADS]; /* the last event of each thread, which all may stop */
static void *together;                  /* a communicator that all threads use */
static int rounds;

static void *work(void *number) {
  const struct profiler_v5 *p = &ncclProfiler_v5;
  const int self = (int)(intptr_t)number;
  struct profiler_descr_v5 api = {.type = PROFILER_GROUP_API}, call = {.type = PROFILER_COLL_API};
  call.collApi.func = "AllReduce";
  call.collApi.datatype = "ncclFloat32";
  void *own = NULL;
  int own_mask = 0;
  p->init(&own, (uint64_t)self + 1, &own_mask, NULL, 1, 2, 0, NULL);
  for (int i = 0; i < rounds; i++) {
    void *handle[3];
    p->startEvent(own, &handle[0], &api);
    call.parentObj = handle[0];
    call.collApi.count = (uint64_t)i;
    p->startEvent(own, &handle[1], &call);
    p->stopEvent(handle[1]);
    p->stopEvent(handle[0]);
    call.parentObj = NULL;
    p->startEvent(together, &handle[2], &call);
    atomic_store(&shared[self], handle[2]);
    p->stopEvent(atomic_load(&shared[i % THREADS]));
  }
  p->finalize(own);
  return NULL;
}

static void threads(int n, int m) {
  pthread_t thread[THREADS];
  rounds = m;
  init(&together, UINT64_C(1) << 32, NULL, 1, 2, 0);
  for (int i = 0; i < n && i < THREADS; i++) {
    pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i);
  }
  for (int i = 0; i < n && i < THREADS; i++) {
    pthread_join(thread[i], NULL);
  }
  ncclProfiler_v5.finalize(together);
}

static const char *text(const char *s) { return strcmp(s, "-") == 0 ? NULL : s; }

static void run(const char *line) {
  char verb[16] = "", a[64] = "", b[64] = "", c[64] = "", which[16] = "";
  unsigned n = 0, m = 0, parent = 0, group = 0;
  uint64_t x = 0, y = 0, number = 0, hash = 0;
  int i = 0, j = 0, k = 0, l = 0;
  sscanf(line, "%15s", verb);
  if (sscanf(line, "version %d", &version) == 1 || sscanf(line, "setmask %i", &mask) == 1) {
    return;
  }
  if (sscanf(line, "filter %d", &i) == 1) {
    filter = i != 0;
  } else if (sscanf(line, "expect %d %d", &i, &j) == 2) {
    static int used;
    ops_expect(&expected[used++ % EXPECTED], i, j);
  } else if (sscanf(line, "init %u %" SCNx64 " %d %d %d %63s", &n, &x, &i, &j, &k, a) == 6) {
    init(&contexts[n % CONTEXTS], x, text(a), i, j, k);
  } else if (sscanf(line,
                    "start %u %u %" SCNu64 " %u %u %d %63s %" SCNu64 " %63s %d %d %d %" SCNu64 " %" SCNx64 " %63s",
                    &n, &m, &x, &parent, &group, &i, a, &y, b, &j, &k, &l, &number, &hash, c) == 15) {
    struct profiler_event e = event(x, handles[parent % HANDLES], handles[group % HANDLES], i, text(a), y, text(b), j,
                                    k, l, number, hash, text(c));
    void **handle = &handles[m % HANDLES];
    *handle = NULL;
    if (told(x)) {
      start(contexts[n % CONTEXTS], handle, &e);
    }
    handles[0] = NULL;
  } else if (sscanf(line, "stop %u", &n) == 1) {
    ncclProfiler_v5.stopEvent(handles[n % HANDLES]);
  } else if (sscanf(line, "state %u %d %" SCNu64, &n, &i, &x) == 3) {
    union profiler_args args = {.kernelCh = {x}};
    ncclProfiler_v5.recordEventState(handles[n % HANDLES], i, i == 23 || i == 24 ? NULL : &args);
  } else if (sscanf(line, "finalize %u", &n) == 1) {
    ncclProfiler_v5.finalize(contexts[n % CONTEXTS]);
  } else if (sscanf(line, "look %u %" SCNu64, &n, &x) == 2) {
    look(contexts[n % CONTEXTS], x);
  } else if (sscanf(line, "launched %u", &n) == 1) {
    depth_launched((uintptr_t)contexts[n % CONTEXTS]);
  } else if (sscanf(line, "seen %u", &n) == 1) {
    depth_end((uintptr_t)contexts[n % CONTEXTS]);
  } else if (strcmp(verb, "mask") == 0) {
    printf("mask 0x%x\n", (unsigned)mask);
  } else if (strcmp(verb, "handle") == 0 && sscanf(line, "handle %u", &n) == 1) {
    printf("handle %s\n", handles[n % HANDLES] == NULL ? "none" : "some");
  } else if (sscanf(line, "raw %u %" SCNx64, &n, &x) == 2) {
    handles[n % HANDLES] = (void *)(uintptr_t)x;
  } else if (sscanf(line, "poison %15s %u", which, &n) == 2) {
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(strcmp(which, "context") == 0 ? &contexts[n % CONTEXTS] : &handles[n % HANDLES]) = page;
  } else if (sscanf(line, "threads %d %d", &i, &j) == 2) {
    threads(i, j);
  } else if (sscanf(line, "bench %d", &i) == 1) {
    bench(i);
  } else {
    fprintf(stderr, "driver: what is %s", line);
    exit(1);
  }
}

int main(void) {
  if (getenv("CARILLON_TAPE_DIR") != NULL) {
    const struct tape_config everything = {.sample_every = 1};
    tape_open_with(&everything);
  }
  char *line = NULL;
  size_t size = 0;
  while (getline(&line, &size, stdin) > 0) {
    run(line);
  }
  free(line);
  static const char *const kinds[TAPE_UNEXPECTED_KINDS] = {
      "foreign",    "no_communicator", "unknown_event", "stopped_twice", "late",
      "after_stop", "never_stopped",   "no_room",       "not_written",   "overruled",
  };
  printf("counts");
  for (size_t i = 0; i < TAPE_UNEXPECTED_KINDS; i++) {
    printf(" %s=%" PRIu64, kinds[i], profiler_counts[i]);
  }
  printf("\n");
  for (int i = 0; i < EXPECTED; i++) {
    if (expected[i].hash != 0) {
      printf("claimed %d hash=%" PRIx64 " nodes=%d\n", i, expected[i].hash, expected[i].nodes);
    }
    ops_forget(&expected[i]);
  }
  return 0;
}
