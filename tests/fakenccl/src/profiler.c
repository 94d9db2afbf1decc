// Profiler plug-ins, called as the version calls them. The layout of descriptors comes from nccl-profiler-abi.tsv, and
// is looked up by name at each event.
//
// The events of an operation: the calling thread reports groupApi, collApi and kernelLaunch, group and coll; the
// stream's thread, as if it were NCCL's proxy thread, reports kernelCh and the events below it. Proxy operations are
// those of a ring between nodes (NCCL_HOSTID). With PXN, a send to a rank on another node is done by the rank of the
// own node that has the same place as the receiver: its proxy reports with the context of the sending rank, a pointer
// of that rank's process. Before 2.24.3 (nccl#1586) it also says that the operation is of its own process. With
// FAKENCCL_PROXY=unpaired, the last step of a proxy operation never stops (nccl#1658), and its first step records a
// state after it has stopped (nccl#1992).
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { // bits of the mask, and types
  GROUP = 1 << 0, COLL = 1 << 1, P2P = 1 << 2, PROXY_OP = 1 << 3, PROXY_STEP = 1 << 4, PROXY_CTRL = 1 << 5,
  KERNEL_CH = 1 << 6, GROUP_API = 1 << 8, COLL_API = 1 << 9, P2P_API = 1 << 10, KERNEL_LAUNCH = 1 << 11,
  KERNEL_PHASE = 1 << 15
};

enum { // states
  OP_SEND_POSTED = 0, OP_SEND_DONE = 3, OP_RECV_POSTED = 4, OP_RECV_DONE = 7, SEND_GPU_WAIT = 8, SEND_WAIT = 9,
  RECV_WAIT = 10, RECV_FLUSH_WAIT = 11, RECV_GPU_WAIT = 12, CTRL_APPEND = 17, CTRL_APPEND_END = 18,
  OP_IN_PROGRESS = 19, SEND_PEER_WAIT = 20, KERNEL_CH_STOP = 22, END_GROUP_API_START = 23, BEGIN_GROUP_API_END = 24,
  KERNEL_PHASE_STOP = 31
};

enum { CHANNELS = 2, STEPS = 2, WARPS = 8 };

// The mask bits that include an event: NCCL also reports the parents of the events that are asked for.
enum {
  NEEDS_STEP = PROXY_STEP,
  NEEDS_OP = PROXY_OP | NEEDS_STEP,
  NEEDS_KERNEL_CH = KERNEL_CH | KERNEL_PHASE,
  NEEDS_COLL = COLL | NEEDS_OP | NEEDS_KERNEL_CH,
  NEEDS_P2P = P2P | NEEDS_OP | NEEDS_KERNEL_CH,
  NEEDS_GROUP = GROUP | NEEDS_COLL | NEEDS_P2P,
  NEEDS_COLL_API = COLL_API | NEEDS_COLL,
  NEEDS_P2P_API = P2P_API | NEEDS_P2P,
  NEEDS_GROUP_API = GROUP_API | KERNEL_LAUNCH | NEEDS_COLL_API | NEEDS_P2P_API | GROUP
};

static const struct {
  int version;
  const char *name; // "coll.count"
  int offset, size;
} abi[] = {
#include "abi.inc"
};

typedef void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct plugin { // the same functions in the same order in every version, apart from the arguments of init
  const char *name;
  void *init;
  ncclResult_t (*start)(void *context, void **handle, void *descr);
  ncclResult_t (*stop)(void *handle);
  ncclResult_t (*state)(void *handle, int state, void *args);
  ncclResult_t (*finalize)(void *context);
};

struct profiler {
  void *context;
  pthread_t proxy;
  _Atomic bool closing;
};

struct proxy_op {
  int n;
  struct {
    void *op, *steps[STEPS];
    bool send;
  } ops[2];
  void *channels[CHANNELS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static struct plugin *plugin;
static int plugin_version, users;
static int mask; // one per process: every init writes it, every group reads it

static _Thread_local struct {
  struct ncclComm *comm; // the first communicator of the group: events of the group have its context
  int mask;
  void *event;
} group;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

const char *func_name(enum func f) {
  static const char *const names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll",
                                      "Gather", "Scatter", "Send", "Recv", "PutSignal", "WaitSignal"};
  return names[f];
}

static const char *type_name(ncclDataType_t type) {
  static const char *const names[] = {"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
                                      "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3",
                                      "ncclFloat8e5m2"};
  return names[type];
}

// The newest interface that the version supports.
static int newest_interface(void) {
  static const int since[] = {22304, 22403, 22602, 22703, 22803, 22902, 23100};
  int v = 0;
  while (v < (int)(sizeof since / sizeof *since) && !is_before(since[v])) v++;
  return v;
}

static void *open_library(void) {
  const char *name = getenv("NCCL_PROFILER_PLUGIN");
  char path[4096];
  if (!name || !*name) name = "libnccl-profiler.so";
  if (!strcasecmp(name, "none")) return NULL;
  void *found = dlopen(strcasecmp(name, "STATIC_PLUGIN") ? name : NULL, RTLD_NOW | RTLD_LOCAL);
  if (found || strchr(name, '/') || (!strncmp(name, "lib", 3) && !strcmp(name + strlen(name) - 3, ".so"))) return found;
  snprintf(path, sizeof path, "libnccl-profiler-%s.so", name);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void load(void) {
  int newest = newest_interface();
  if (!newest || !(library = open_library())) return;
  for (plugin_version = newest; plugin_version > 0 && !plugin; plugin_version--) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", plugin_version);
    if ((plugin = dlsym(library, symbol))) break;
  }
  if (!plugin) dlclose(library);
}

__attribute__((format(printf, 5, 6))) static void log_line(int level, unsigned long flags, const char *file, int line,
                                                           const char *format, ...) {
  (void)flags;
  if (level > 2 || !getenv("NCCL_DEBUG")) return;
  va_list args;
  va_start(args, format);
  fprintf(stderr, "NCCL %s:%d ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

static ncclResult_t call_init(struct ncclComm *c, void **context) {
  union {
    void *any;
    ncclResult_t (*v1)(void **context, int *mask);
    ncclResult_t (*v4)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int nranks, int rank,
                       logger *log);
    ncclResult_t (*v5)(void **context, uint64_t id, int *mask, const char *name, int nodes, int nranks, int rank,
                       logger *log);
  } init = {plugin->init};
  if (plugin_version < 4) return init.v1(context, &mask);
  if (plugin_version < 5) return init.v4(context, &mask, c->name, c->hash, c->nodes, c->nranks, c->rank, log_line);
  return init.v5(context, c->hash, &mask, c->name, c->nodes, c->nranks, c->rank, log_line);
}

union descr {
  char bytes[256];
  void *aligned;
};

// Sets a field, a number or a pointer, if the interface has it.
static void put(union descr *d, const char *name, uint64_t value) {
  for (size_t i = 0; i < sizeof abi / sizeof *abi; i++)
    if (abi[i].version == plugin_version && !strcmp(abi[i].name, name))
      memcpy(d->bytes + abi[i].offset, &value, abi[i].size);
}

static void put_pointer(union descr *d, const char *name, const void *value) {
  put(d, name, (uintptr_t)value);
}

// Sets a field that is a number in v1, and a string in later versions.
static void put_name(union descr *d, const char *field, const char *name, int number) {
  if (plugin_version == 1)
    put(d, field, number);
  else
    put_pointer(d, field, name);
}

static union descr describe(int type, void *parent, int rank) {
  union descr d;
  memset(&d, 0, sizeof d);
  put(&d, "-.type", type);
  put_pointer(&d, "-.parentObj", parent);
  put(&d, "-.rank", rank);
  return d;
}

static void *start(void *context, union descr *d) {
  void *handle = NULL;
  plugin->start(context, &handle, d->bytes);
  return handle;
}

static void stop(void *handle) {
  if (handle) plugin->stop(handle);
}

// args is the first field of the state's union: a size, a count or a time.
static void state(void *handle, int s, uint64_t args) {
  uint64_t all[4] = {args, 1};
  bool bare = plugin_version < 3 && s >= SEND_GPU_WAIT && s <= RECV_GPU_WAIT; // proxy steps have no arguments
  if (handle) plugin->state(handle, s, bare ? NULL : all);
}

static void report_proxy_op(void *context, void *parent, int pid, int rank, int peer, bool send, int bytes, void **op,
                            void **steps) {
  union descr d = describe(PROXY_OP, parent, rank);
  put(&d, "proxyOp.pid", pid);
  put(&d, "proxyOp.channelId", 0);
  put(&d, "proxyOp.peer", peer);
  put(&d, "proxyOp.nSteps", STEPS);
  put(&d, "proxyOp.chunkSize", bytes);
  put(&d, "proxyOp.isSend", send);
  *op = start(context, &d);
  state(*op, plugin_version >= 4 ? OP_IN_PROGRESS : send ? OP_SEND_POSTED : OP_RECV_POSTED, 0);
  for (int i = 0; i < STEPS; i++) {
    d = describe(PROXY_STEP, *op, rank);
    put(&d, "proxyStep.step", i);
    steps[i] = start(context, &d);
    state(steps[i], send ? SEND_GPU_WAIT : RECV_WAIT, 0);
  }
}

static void end_proxy_op(void *op, void **steps, bool send) {
  const char *env = getenv("FAKENCCL_PROXY");
  bool unpaired = env && !strcmp(env, "unpaired");
  for (int i = 0; i < STEPS; i++) {
    if (send && plugin_version >= 4) state(steps[i], SEND_PEER_WAIT, 0);
    state(steps[i], send ? SEND_WAIT : RECV_FLUSH_WAIT, CHUNK);
    if (!send) state(steps[i], RECV_GPU_WAIT, 0);
    if (!unpaired || i < STEPS - 1) stop(steps[i]);
  }
  if (unpaired) state(steps[0], SEND_WAIT, CHUNK);
  if (plugin_version < 4) state(op, send ? OP_SEND_DONE : OP_RECV_DONE, 0);
  stop(op);
}

// PXN: runs in the process whose proxy does the send.
static void *run_proxy(void *data) {
  struct ncclComm *c = data;
  struct seat *mine = seat(c, c->rank);
  for (;;) {
    bool closing = atomic_load(&c->profiler->closing);
    uint32_t requested = atomic_load(&mine->requested);
    for (int i = 0; i < REQUESTS; i++) {
      struct request *r = &mine->requests[i];
      void *op, *steps[STEPS];
      if (atomic_load(&r->state) != FULL) continue;
      int pid = is_before(22403) ? getpid() : r->pid;
      report_proxy_op(r->context, r->parent, pid, r->rank, r->peer, true, r->bytes, &op, steps);
      end_proxy_op(op, steps, true);
      atomic_store(&r->state, EMPTY);
    }
    if (closing) return NULL;
    futex_wait(&mine->requested, requested);
  }
}

void profiler_open(struct ncclComm *c) {
  pthread_mutex_lock(&lock);
  if (!users++) load();
  c->counted = true;
  void *context = NULL;
  if (plugin && !call_init(c, &context)) {
    c->profiler = calloc(1, sizeof *c->profiler);
    c->profiler->context = context;
    pthread_create(&c->profiler->proxy, NULL, run_proxy, c);
  }
  pthread_mutex_unlock(&lock);
}

void profiler_close(struct ncclComm *c) {
  if (!c->counted) return;
  pthread_mutex_lock(&lock);
  if (c->profiler) {
    atomic_store(&c->profiler->closing, true);
    futex_wake(&seat(c, c->rank)->requested);
    pthread_join(c->profiler->proxy, NULL);
    plugin->finalize(c->profiler->context);
    free(c->profiler);
    c->profiler = NULL;
  }
  if (!--users && plugin) {
    dlclose(library);
    plugin = NULL;
  }
  pthread_mutex_unlock(&lock);
}

static bool is_p2p(const struct task *t) {
  return t->func == SEND || t->func == RECV;
}

void profiler_api(struct task *t) {
  if (!t->comm->profiler) return;
  if (!group.comm) {
    group.comm = t->comm;
    group.mask = __atomic_load_n(&mask, __ATOMIC_RELAXED);
    if (plugin_version >= 5 && group.mask & NEEDS_GROUP_API) {
      union descr d = describe(GROUP_API, NULL, 0);
      put(&d, "groupApi.groupDepth", group_depth());
      group.event = start(t->comm->profiler->context, &d);
      state(group.event, END_GROUP_API_START, 0);
    }
  }
  t->mask = group.mask;
  t->group_api = group.event;
  if (plugin_version < 5 || t->func > RECV || !(t->mask & (is_p2p(t) ? NEEDS_P2P_API : NEEDS_COLL_API))) return;
  union descr d = describe(is_p2p(t) ? P2P_API : COLL_API, group.event, 0);
  const char *of = is_p2p(t) ? "p2pApi" : "collApi";
  char field[32];
#define PUT_API(name, value) (snprintf(field, sizeof field, "%s." name, of), put(&d, field, (uint64_t)(value)))
  PUT_API("func", (uintptr_t)func_name(t->func));
  PUT_API("count", t->count);
  PUT_API("datatype", (uintptr_t)type_name(t->type));
  PUT_API("root", t->root);
  PUT_API("stream", (uintptr_t)t->stream);
  PUT_API("userTag", t->user_tag);
  int captured = 0;
  cudaStreamIsCapturing(t->stream, &captured);
  PUT_API("graphCaptured", captured);
  t->api = start(t->comm->profiler->context, &d);
  stop(t->api);
}

void profiler_api_end(void) {
  state(group.event, BEGIN_GROUP_API_END, 0);
}

void profiler_group_end(void) {
  stop(group.event);
  memset(&group, 0, sizeof group);
}

static void *start_coll(struct task *t, void *parent, void *group_event) {
  struct ncclComm *c = t->comm;
  union descr d = describe(COLL, parent, c->rank);
  put_pointer(&d, "coll.name", c->name);
  put(&d, "coll.commHash", c->hash);
  put(&d, "coll.seqNumber", c->counts[t->func]++);
  put_name(&d, "coll.func", func_name(t->func), t->func);
  put_pointer(&d, "coll.sendBuff", t->send);
  put_pointer(&d, "coll.recvBuff", t->recv);
  put(&d, "coll.count", t->count);
  put(&d, "coll.root", t->root);
  put_name(&d, "coll.datatype", type_name(t->type), t->type);
  put(&d, "coll.op", t->op);
  put(&d, "coll.trafficBytes", t->count * type_size(t->type));
  put(&d, "coll.nMaxChannels", CHANNELS);
  put(&d, "coll.nChannels", CHANNELS);
  put(&d, "coll.nWarps", WARPS);
  put_name(&d, "coll.algo", "RING", 1);
  put_name(&d, "coll.proto", "SIMPLE", 2);
  put_pointer(&d, "coll.parentGroup", group_event);
  put_pointer(&d, "coll.kernelVariant", "RING_SIMPLE");
  put(&d, "coll.userTag", t->user_tag);
  return start(c->profiler->context, &d);
}

static void *start_p2p(struct task *t, void *parent, void *group_event) {
  struct ncclComm *c = t->comm;
  union descr d = describe(P2P, parent, c->rank);
  put_pointer(&d, "p2p.name", c->name);
  put(&d, "p2p.commHash", c->hash);
  put_name(&d, "p2p.func", func_name(t->func), t->func - SEND + 6); // ncclFuncSend
  put_pointer(&d, "p2p.buff", t->func == SEND ? t->send : t->recv);
  put_name(&d, "p2p.datatype", type_name(t->type), t->type);
  put(&d, "p2p.count", t->count);
  put(&d, "p2p.peer", t->root);
  put(&d, "p2p.nChannels", CHANNELS);
  put_pointer(&d, "p2p.parentGroup", group_event);
  put(&d, "p2p.userTag", t->user_tag);
  return start(c->profiler->context, &d);
}

void profiler_launch(struct task *tasks, int n) {
  struct profiler *p = tasks->comm->profiler;
  int m = tasks->mask;
  if (!p || tasks->func > RECV) return;
  if (plugin_version >= 5 && m & KERNEL_LAUNCH) {
    union descr d = describe(KERNEL_LAUNCH, tasks->group_api, 0);
    put_pointer(&d, "kernelLaunch.stream", tasks->stream);
    stop(start(p->context, &d));
  }
  if (!(m & NEEDS_GROUP)) return;
  union descr d = describe(GROUP, NULL, tasks->comm->rank);
  void *event = start(p->context, &d);
  for (int i = 0; i < n; i++) {
    struct task *t = &tasks[i];
    if (!(m & (is_p2p(t) ? NEEDS_P2P : NEEDS_COLL))) continue;
    t->event = (is_p2p(t) ? start_p2p : start_coll)(t, plugin_version >= 5 ? t->api : event, event);
  }
  for (int i = 0; i < n; i++) stop(tasks[i].event);
  stop(event);
}

// The rank on this node whose proxy sends to peer.
static int proxy_of(struct ncclComm *c, int peer) {
  const char *pxn = getenv("NCCL_PXN_DISABLE"), *p2p = getenv("NCCL_P2P_DISABLE");
  if ((pxn && atoi(pxn)) || (p2p && atoi(p2p))) return c->rank;
  int place = 0;
  for (int r = 0; r < peer; r++) place += !strcmp(seat(c, r)->host, seat(c, peer)->host);
  for (int r = 0; r < c->nranks; r++)
    if (!strcmp(seat(c, r)->host, seat(c, c->rank)->host) && place-- == 0) return r;
  return c->rank;
}

static void ask_proxy(struct task *t, int rank) {
  struct ncclComm *c = t->comm;
  struct seat *other = seat(c, rank);
  for (int i = 0; i < REQUESTS; i++) {
    struct request *r = &other->requests[i];
    uint32_t empty = EMPTY;
    if (!atomic_compare_exchange_strong(&r->state, &empty, TAKEN)) continue;
    r->pid = getpid(), r->rank = c->rank, r->peer = t->root, r->bytes = CHUNK;
    r->context = c->profiler->context, r->parent = t->event;
    atomic_store(&r->state, FULL);
    futex_wake(&other->requested);
    return;
  }
}

static void begin_proxy_op(struct task *t, struct proxy_op *p, int peer, bool send) {
  struct ncclComm *c = t->comm;
  if (!strcmp(seat(c, peer)->host, seat(c, c->rank)->host)) return;
  int proxy = t->func == SEND ? proxy_of(c, peer) : c->rank;
  if (atomic_load(&seat(c, proxy)->pid) != getpid()) {
    ask_proxy(t, proxy);
    return;
  }
  p->ops[p->n].send = send;
  report_proxy_op(c->profiler->context, t->event, getpid(), c->rank, peer, send, CHUNK, &p->ops[p->n].op,
                  p->ops[p->n].steps);
  if (send && is_cut(c)) state(p->ops[p->n].steps[0], SEND_WAIT, CHUNK);
  p->n++;
}

void profiler_begin(struct task *t) {
  struct ncclComm *c = t->comm;
  if (!c->profiler || !t->event) return;
  struct proxy_op *p = t->proxy_ops = calloc(1, sizeof *p);
  if (t->mask & PROXY_CTRL && c->nodes > 1) {
    union descr d = describe(PROXY_CTRL, NULL, c->rank);
    void *ctrl = start(c->profiler->context, &d);
    state(ctrl, CTRL_APPEND, 0);
    state(ctrl, CTRL_APPEND_END, 1);
    stop(ctrl);
  }
  if (t->mask & NEEDS_OP && is_p2p(t)) begin_proxy_op(t, p, t->root, t->func == SEND);
  if (t->mask & NEEDS_OP && !is_p2p(t)) {
    begin_proxy_op(t, p, (c->rank + 1) % c->nranks, true);
    begin_proxy_op(t, p, (c->rank + c->nranks - 1) % c->nranks, false);
  }
  if (plugin_version < 3 || !(t->mask & NEEDS_KERNEL_CH)) return;
  for (int i = 0; i < CHANNELS; i++) {
    union descr d = describe(KERNEL_CH, t->event, c->rank);
    put(&d, "kernelCh.channelId", i);
    put(&d, "kernelCh.pTimer", now());
    p->channels[i] = start(c->profiler->context, &d);
  }
}

static void report_phases(struct task *t, void *parent, int channel) {
  static const char *const names[] = {"initial sync", "compute", "final sync"};
  if (plugin_version < 7 || !(t->mask & KERNEL_PHASE)) return;
  for (int i = 0; i < 3; i++) {
    union descr d = describe(KERNEL_PHASE, parent, t->comm->rank);
    put(&d, "kernelPhase.channelId", channel);
    put(&d, "kernelPhase.phaseId", i);
    put_pointer(&d, "kernelPhase.phaseName", names[i]);
    put(&d, "kernelPhase.pTimer", now());
    void *phase = start(t->comm->profiler->context, &d);
    state(phase, KERNEL_PHASE_STOP, now());
    stop(phase);
  }
}

void profiler_end(struct task *t) {
  struct proxy_op *p = t->proxy_ops;
  if (!p) return;
  for (int i = 0; i < CHANNELS && p->channels[i]; i++) {
    report_phases(t, p->channels[i], i);
    if (plugin_version >= 4) state(p->channels[i], KERNEL_CH_STOP, now());
    stop(p->channels[i]);
  }
  for (int i = 0; i < p->n; i++) end_proxy_op(p->ops[i].op, p->ops[i].steps, p->ops[i].send);
  free(p);
}
