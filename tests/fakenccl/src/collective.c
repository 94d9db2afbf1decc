// The operations. Each rank sends its data to all ranks that need it, all at once, and reduces what it received. The
// algorithms are simple, as only the results and who waits for whom matter.
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards running and carried
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct batch { // one launch on a stream, or a node of a graph, which runs once per replay and is never freed
  int n, captured;
  struct task tasks[];
};

void task_drain(struct ncclComm *c) {
  pthread_mutex_lock(&lock);
  while (atomic_load(&c->running)) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static bool reduces(enum func f) {
  return f == ALL_REDUCE || f == REDUCE || f == REDUCE_SCATTER;
}

// Whether a rank receives data from the others in the operation.
static bool receives(const struct task *t, int rank) {
  switch (t->func) {
  case REDUCE:
  case GATHER: return rank == t->root;
  default: return true;
  }
}

static bool gives(const struct task *t, int rank) {
  return (t->func != BROADCAST && t->func != SCATTER) || rank == t->root;
}

static ncclResult_t fold(struct task *t, char *parts, size_t bytes) {
  struct ncclComm *c = t->comm;
  for (int r = 0; r < c->nranks; r++) {
    if (r > 0 && !reduce(parts, parts + r * bytes, t->count, t->type, t->op))
      return fail(ncclInvalidArgument, "the fake NCCL can't reduce data of type %d", t->type);
  }
  if (t->op == ncclAvg) divide(parts, t->count, t->type, c->nranks);
  memcpy(t->recv, parts, bytes);
  return ncclSuccess;
}

static ncclResult_t run_collective(struct task *t) {
  struct ncclComm *c = t->comm;
  int n = c->nranks, me = c->rank, used = 0;
  size_t bytes = t->count * type_size(t->type);
  if (breaks(c, bytes)) return ncclSystemError;
  // A part is the data of one rank for another: the send buffer has either a part for each rank, or the whole is sent
  // to all.
  bool send_parts = t->func == REDUCE_SCATTER || t->func == ALL_TO_ALL || t->func == SCATTER;
  bool recv_parts = t->func == ALL_GATHER || t->func == ALL_TO_ALL || t->func == GATHER;
  char *parts = reduces(t->func) ? malloc(n * bytes) : NULL;
  struct transfer *x = calloc(2 * n, sizeof *x);
  bool scales = reduces(t->func) && t->op >= ncclNumOps; // each rank scales what it sends, by its own scalar
  char *scaled = scales ? malloc(n * bytes) : NULL;
  const char *send = scales ? scaled : t->send;
  ncclResult_t result = x && (parts || !reduces(t->func)) && (scaled || !scales) ? ncclSuccess : ncclSystemError;
  if (scaled) {
    size_t count = t->count * (send_parts ? n : 1);
    memcpy(scaled, t->send, count * type_size(t->type));
    scale(scaled, count, t->type, t->scalar);
  }
  for (int r = 0; r < n && !result; r++) {
    char *out = (char *)send + (send_parts ? r * bytes : 0);
    char *in = parts ? parts + r * bytes : (char *)t->recv + (recv_parts ? r * bytes : 0);
    bool give = gives(t, me) && receives(t, r), take = gives(t, r) && receives(t, me);
    if (r == me && give && take && in != out) memmove(in, out, bytes);
    if (r != me && give) x[used++] = (struct transfer){r, true, t->tag, out, bytes, 0};
    if (r != me && take) x[used++] = (struct transfer){r, false, t->tag, in, bytes, 0};
  }
  if (!result) result = transfer(c, DATA, x, used);
  if (!result && parts && receives(t, me)) result = fold(t, parts, bytes);
  free(x);
  free(scaled);
  free(parts);
  return result;
}

static ncclResult_t run_p2p(struct batch *b) {
  struct transfer *x = calloc(b->n, sizeof *x);
  if (!x) return ncclSystemError;
  for (int i = 0; i < b->n; i++) {
    struct task *t = &b->tasks[i];
    bool send = t->func == SEND;
    char *data = send ? (char *)t->send : t->recv;
    x[i] = (struct transfer){t->root, send, t->tag, data, t->count * type_size(t->type), 0};
  }
  ncclResult_t result = transfer(b->tasks[0].comm, DATA, x, b->n);
  free(x);
  return result;
}

// One-sided operations: a put is a message that the peer takes when it waits for signals. A thread delivers it, as the
// stream must not wait for the peer.

struct put {
  int window, index, context;
  size_t offset, bytes;
};

struct letter {
  struct ncclComm *comm;
  int peer;
  uint64_t number; // its number among the puts to the peer, which go one after the other
  struct put head;
  char data[];
};

static void ended(struct ncclComm *c) {
  pthread_mutex_lock(&lock);
  atomic_fetch_sub(&c->running, 1);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void *carry(void *data) {
  struct letter *l = data;
  struct ncclComm *c = l->comm;
  pthread_mutex_lock(&lock);
  while (c->carried[l->peer] != l->number) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  uint64_t tag = mix(l->number, PUT);
  struct transfer x[] = {{l->peer, true, mix(tag, 1), (char *)&l->head, sizeof l->head, 0},
                         {l->peer, true, mix(tag, 2), l->data, l->head.bytes, 0}};
  transfer(c, DATA, &x[0], 1);
  transfer(c, DATA, &x[1], 1);
  pthread_mutex_lock(&lock);
  c->carried[l->peer]++;
  pthread_mutex_unlock(&lock);
  free(l);
  ended(c);
  return NULL;
}

static ncclResult_t run_put(struct task *t) {
  size_t bytes = t->count * type_size(t->type);
  struct letter *l = malloc(sizeof *l + bytes);
  if (!l) return ncclSystemError;
  struct put head = {t->window, t->signal, t->context, t->offset, bytes};
  *l = (struct letter){t->comm, t->root, t->comm->puts[t->root]++, head};
  if (bytes) memcpy(l->data, t->send, bytes);
  atomic_fetch_add(&t->comm->running, 1);
  pthread_t thread;
  if (pthread_create(&thread, NULL, carry, l)) return ncclSystemError;
  pthread_detach(thread);
  return ncclSuccess;
}

static struct signal *signal_of(struct ncclComm *c, int peer, int index, int context) {
  struct signal *s = c->signals, *last = s + SIGNALS - 1;
  while (s < last && s->count && (s->peer != peer || s->index != index || s->context != context)) s++;
  *s = (struct signal){peer, index, context, s->count};
  return s;
}

static ncclResult_t open_letter(struct ncclComm *c, int peer) {
  struct put head;
  uint64_t tag = mix(c->gets[peer]++, PUT);
  struct transfer x = {peer, false, mix(tag, 1), (char *)&head, sizeof head, 0};
  ncclResult_t result = transfer(c, DATA, &x, 1);
  if (result) return result;
  struct ncclWindow_vidmem *w = head.bytes ? c->windows[head.window] : NULL;
  if (head.bytes && (!w || head.offset + head.bytes > w->bytes))
    return fail(ncclInvalidArgument, "rank %d puts what is outside of the window", peer);
  x = (struct transfer){peer, false, mix(tag, 2), w ? w->memory + head.offset : NULL, head.bytes, 0};
  if ((result = transfer(c, DATA, &x, 1))) return result;
  signal_of(c, peer, head.index, head.context)->count++;
  return ncclSuccess;
}

static ncclResult_t run_wait(struct task *t) {
  ncclWaitSignalDesc_t *d = t->recv;
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < t->count; i++)
    for (int left = d[i].opCnt; left > 0 && !result;) {
      struct signal *s = signal_of(t->comm, d[i].peer, d[i].sigIdx, d[i].ctx);
      if (s->count)
        s->count--, left--;
      else
        result = open_letter(t->comm, d[i].peer);
    }
  return result;
}

static void run_batch(void *data) {
  struct batch *b = data;
  struct task *t = &b->tasks[0];
  struct ncclComm *c = t->comm;
  if (b->captured) {
    atomic_fetch_add(&c->running, 1);
    for (int i = 0; i < b->n; i++) b->tasks[i].tag = mix(b->tasks[i].tag, 1); // the n-th replays of all ranks meet
  }
  for (int i = 0; i < b->n; i++) profiler_begin(&b->tasks[i]);
  ncclResult_t result = t->func == SEND || t->func == RECV ? run_p2p(b)
                        : t->func == PUT                   ? run_put(t)
                        : t->func == WAIT                  ? run_wait(t)
                                                           : run_collective(t);
  for (int i = 0; i < b->n; i++) profiler_end(&b->tasks[i]);
  if (result && !atomic_load(&c->aborted) && !atomic_load(&c->revoked)) comm_set_async(c, result);
  if (!b->captured) {
    if (t->func == WAIT) free(t->recv); // its descriptors
    free(b);
  }
  ended(c);
}

static uint64_t tag_of(struct task *t) {
  struct ncclComm *c = t->comm;
  switch (t->func) {
  case SEND: return mix(mix(c->sent[t->root]++, SEND), t->count * type_size(t->type));
  case RECV: return mix(mix(c->received[t->root]++, SEND), t->count * type_size(t->type));
  case PUT:
  case WAIT: return 0;
  default:
    return mix(mix(mix(c->sequence++, t->func), mix(t->count, t->type)), mix(t->op, t->root));
  }
}

static ncclResult_t launch(const struct task *tasks, int n) {
  struct ncclComm *c = tasks->comm;
  int captured;
  cudaError_t err = cudaStreamIsCapturing(tasks->stream, &captured);
  if (err) return fail(ncclUnhandledCudaError, "cudaStreamIsCapturing: %d", err);
  struct batch *b = malloc(sizeof *b + n * sizeof *tasks);
  if (!b) return ncclSystemError;
  b->n = n;
  b->captured = captured;
  memcpy(b->tasks, tasks, n * sizeof *tasks);
  for (int i = 0; i < n; i++) b->tasks[i].tag = tag_of(&b->tasks[i]);
  if (tasks->func <= ALL_REDUCE) atomic_fetch_add(&seat(c, c->rank)->launched[tasks->func], 1);
  if (!captured) atomic_fetch_add(&c->running, 1);
  err = cudaLaunchHostFunc(tasks->stream, run_batch, b);
  if (!err) return ncclSuccess;
  if (!captured) atomic_fetch_sub(&c->running, 1);
  free(b);
  return fail(ncclUnhandledCudaError, "cudaLaunchHostFunc: %d", err);
}

ncclResult_t task_launch(const struct task *tasks, int n) {
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(tasks->comm->device);
  ncclResult_t result = launch(tasks, n);
  cudaSetDevice(device);
  return result;
}

static ncclResult_t check(const struct task *t) {
  struct ncclComm *c = t->comm;
  if (atomic_load(&c->revoked) || atomic_load(&c->finalized))
    return fail(ncclInvalidUsage, "%s: the communicator is revoked or finalized", func_name(t->func));
  if (t->root < 0 || t->root >= c->nranks)
    return fail(ncclInvalidArgument, "%s: invalid root or peer %d", func_name(t->func), t->root);
  if (!type_size(t->type)) return fail(ncclInvalidArgument, "%s: invalid type %d", func_name(t->func), t->type);
  if ((int)t->op >= (int)ncclNumOps + c->nscalars)
    return fail(ncclInvalidArgument, "invalid reduction operation %d", t->op);
  if (t->count && !t->send && !t->recv) return fail(ncclInvalidArgument, "%s: no buffer", func_name(t->func));
  return ncclSuccess;
}

static ncclResult_t enqueue(struct task t) {
  ncclResult_t result = comm_check(t.comm, func_name(t.func));
  if (result) return result;
  group_begin();
  if (!(result = comm_ensure_ready(t.comm))) result = check(&t);
  if (t.op >= ncclNumOps && !result) t.scalar = t.comm->scalars[t.op - ncclNumOps];
  if (!result && (t.count || t.func == PUT)) result = group_add_task(&t);
  if (result) group_fail(result);
  ncclResult_t end = group_end();
  return result ? result : end;
}

#define TAG(config) ((config) ? (config)->userTag : 0)

ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t c, cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = ALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type,
                               .op = op, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                              ncclComm_t c, cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = REDUCE, .send = send, .recv = recv, .count = count, .type = type,
                               .op = op, .root = root, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t c, cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = REDUCE_SCATTER, .send = send, .recv = recv, .count = count,
                               .type = type, .op = op, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                 ncclComm_t c, cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = BROADCAST, .send = send, .recv = recv, .count = count, .type = type,
                               .root = root, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
                                 cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type,
                               .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
                                cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = ALL_TO_ALL, .send = send, .recv = recv, .count = count, .type = type,
                               .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                              cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = GATHER, .send = send, .recv = recv, .count = count, .type = type,
                               .root = root, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                               cudaStream_t stream, const ncclCollConfig_t *config) {
  return enqueue((struct task){.comm = c, .func = SCATTER, .send = send, .recv = recv, .count = count, .type = type,
                               .root = root, .stream = stream, .user_tag = TAG(config)});
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream) {
  return ncclAllReduceConfig(send, recv, count, type, op, c, stream, NULL);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream) {
  return ncclReduceConfig(send, recv, count, type, op, root, c, stream, NULL);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream) {
  return ncclReduceScatterConfig(send, recv, count, type, op, c, stream, NULL);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream) {
  return ncclBroadcastConfig(send, recv, count, type, root, c, stream, NULL);
}

ncclResult_t ncclBcast(void *data, size_t count, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t stream) {
  return ncclBroadcastConfig(data, data, count, type, root, c, stream, NULL);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream) {
  return ncclAllGatherConfig(send, recv, count, type, c, stream, NULL);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
                          cudaStream_t stream) {
  return ncclAlltoAllConfig(send, recv, count, type, c, stream, NULL);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                        cudaStream_t stream) {
  return ncclGatherConfig(send, recv, count, type, root, c, stream, NULL);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                         cudaStream_t stream) {
  return ncclScatterConfig(send, recv, count, type, root, c, stream, NULL);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream) {
  return enqueue((struct task){.comm = c, .func = SEND, .send = send, .count = count, .type = type, .root = peer,
                               .stream = stream});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
  return enqueue((struct task){.comm = c, .func = RECV, .recv = recv, .count = count, .type = type, .root = peer,
                               .stream = stream});
}

ncclResult_t ncclPutSignal(const void *send, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
                           size_t offset, int signal, int context, unsigned int flags, ncclComm_t c,
                           cudaStream_t stream) {
  (void)flags;
  return enqueue((struct task){.comm = c, .func = PUT, .send = send, .count = count, .type = type, .root = peer,
                               .window = window ? window->number : 0, .offset = offset, .signal = signal,
                               .context = context, .stream = stream});
}

ncclResult_t ncclSignal(int peer, int signal, int context, unsigned int flags, ncclComm_t c, cudaStream_t stream) {
  return ncclPutSignal(NULL, 0, ncclInt8, peer, NULL, 0, signal, context, flags, c, stream);
}

ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t c, cudaStream_t stream) {
  ncclWaitSignalDesc_t *copy = calloc(n, sizeof *copy);
  if (!copy) return ncclSystemError;
  memcpy(copy, signals, n * sizeof *copy);
  return enqueue((struct task){.comm = c, .func = WAIT, .recv = copy, .count = n, .stream = stream});
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where,
                                      ncclComm_t c) {
  (void)where; // device memory is host memory
  ncclResult_t result = comm_check(c, "ncclRedOpCreatePreMulSum");
  if (result) return result;
  if (c->nscalars == SCALARS) return fail(ncclInvalidUsage, "%d reduction operations are enough", SCALARS);
  memcpy(&c->scalars[c->nscalars], scalar, type_size(type));
  *op = (ncclRedOp_t)(ncclNumOps + c->nscalars++);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) {
  if (op < ncclNumOps) return fail(ncclInvalidArgument, "ncclRedOpDestroy: %d is NCCL's own", op);
  return comm_check(c, "ncclRedOpDestroy");
}
