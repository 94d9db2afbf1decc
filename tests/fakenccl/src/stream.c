// libcudart.so.12: streams as queues. Each stream has a thread that runs the stream's work in order; the null stream is
// one such queue per device. Events count launches on their stream. Device memory is host memory. A graph is the work
// that was launched on one stream while that was captured; it is never freed.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime.h"

#define EXPORT __attribute__((visibility("default")))
enum { DEVICES = 16 };

struct work {
  struct work *next;
  cudaHostFn_t fn;
  void *data;
};

struct CUgraph_st {
  struct work *first, **last;
};

struct CUstream_st {
  struct CUstream_st *next; // in the list of a device's streams
  int device;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct work *first, **last;
  uint64_t launched, done;
  bool started, destroyed;
  struct CUgraph_st *captured; // NULL: the stream is not captured
};

struct CUevent_st {
  struct CUstream_st *stream; // NULL: never recorded
  uint64_t launched;          // complete once the stream has done this many launches
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the lists of streams
static struct CUstream_st null_streams[DEVICES];
static struct CUstream_st *streams[DEVICES];
static _Thread_local int device;

static void *run(void *data) {
  struct CUstream_st *s = data;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->first && !s->destroyed) pthread_cond_wait(&s->changed, &s->lock);
    if (!s->first) break;
    struct work *w = s->first;
    if (!(s->first = w->next)) s->last = &s->first;
    pthread_mutex_unlock(&s->lock);
    w->fn(w->data);
    free(w);
    pthread_mutex_lock(&s->lock);
    s->done++;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL; // a destroyed stream stays allocated: an event may still refer to it
}

static void open_stream(struct CUstream_st *s, int on) {
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  s->last = &s->first;
  s->device = on;
  s->next = streams[on];
  streams[on] = s;
}

// CUDA's handles of the null stream are 0x1, legacy, and 0x2, per thread.
static struct CUstream_st *find(cudaStream_t s) {
  if ((uintptr_t)s > 2) return s;
  struct CUstream_st *null = &null_streams[device];
  pthread_mutex_lock(&lock);
  if (!null->last) open_stream(null, device);
  pthread_mutex_unlock(&lock);
  return null;
}

static void await(struct CUstream_st *s, uint64_t launched) {
  pthread_mutex_lock(&s->lock);
  while (s->done < launched) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static uint64_t launched(struct CUstream_st *s) {
  pthread_mutex_lock(&s->lock);
  uint64_t n = s->launched;
  pthread_mutex_unlock(&s->lock);
  return n;
}

// The number of devices in CUDA_VISIBLE_DEVICES.
EXPORT cudaError_t cudaGetDeviceCount(int *count) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = visible && *visible ? 1 : DEVICES;
  for (; visible && *visible; visible++) *count += *visible == ',';
  return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= DEVICES) return cudaErrorInvalidDevice;
  device = d;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int *d) {
  *d = device;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
  pthread_mutex_lock(&lock);
  struct CUstream_st *all = streams[device]; // streams are only ever added in front of it
  pthread_mutex_unlock(&lock);
  for (struct CUstream_st *s = all; s; s = s->next) await(s, launched(s));
  return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **memory, size_t bytes) {
  return (*memory = calloc(1, bytes ? bytes : 1)) ? cudaSuccess : cudaErrorMemoryAllocation;
}

EXPORT cudaError_t cudaFree(void *memory) {
  free(memory);
  return cudaSuccess;
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
  struct CUstream_st *s = find(stream);
  struct work *w = malloc(sizeof *w);
  if (!w) return cudaErrorMemoryAllocation;
  *w = (struct work){NULL, fn, data};
  pthread_mutex_lock(&s->lock);
  if (s->captured) {
    *s->captured->last = w;
    s->captured->last = &w->next;
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
  }
  if (!s->started) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, s)) {
      pthread_mutex_unlock(&s->lock);
      free(w);
      return cudaErrorMemoryAllocation;
    }
    pthread_detach(thread);
    s->started = true;
  }
  *s->last = w;
  s->last = &w->next;
  s->launched++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return cudaSuccess;
}

struct copy {
  void *to;
  const void *from;
  size_t bytes;
};

static void copy(void *data) {
  struct copy *c = data;
  memmove(c->to, c->from, c->bytes);
  free(c);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
  (void)kind;
  struct copy *c = malloc(sizeof *c);
  if (!c) return cudaErrorMemoryAllocation;
  *c = (struct copy){to, from, bytes};
  return cudaLaunchHostFunc(s, copy, c);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  cudaError_t err = cudaMemcpyAsync(to, from, bytes, kind, NULL);
  return err ? err : cudaStreamSynchronize(NULL);
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  (void)flags; // no stream waits for the null stream: all behave as cudaStreamNonBlocking
  if (!(*stream = calloc(1, sizeof **stream))) return cudaErrorMemoryAllocation;
  pthread_mutex_lock(&lock);
  open_stream(*stream, device);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if ((uintptr_t)s <= 2) return cudaErrorInvalidResourceHandle;
  pthread_mutex_lock(&s->lock);
  s->destroyed = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  struct CUstream_st *s = find(stream);
  await(s, launched(s));
  return cudaSuccess;
}

static cudaError_t query(struct CUstream_st *s, uint64_t launched) {
  pthread_mutex_lock(&s->lock);
  bool done = s->done >= launched;
  pthread_mutex_unlock(&s->lock);
  return done ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  struct CUstream_st *s = find(stream);
  return query(s, launched(s));
}

static struct CUgraph_st *capture(cudaStream_t stream, struct CUgraph_st *graph) {
  struct CUstream_st *s = find(stream);
  pthread_mutex_lock(&s->lock);
  struct CUgraph_st *was = s->captured;
  s->captured = graph;
  pthread_mutex_unlock(&s->lock);
  return was;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
  (void)mode;
  struct CUgraph_st *graph = calloc(1, sizeof *graph);
  if (!graph) return cudaErrorMemoryAllocation;
  graph->last = &graph->first;
  capture(stream, graph);
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return (*graph = capture(stream, NULL)) ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  (void)flags;
  *exec = graph;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  cudaError_t err = cudaSuccess;
  for (struct work *w = exec->first; w && !err; w = w->next) err = cudaLaunchHostFunc(stream, w->fn, w->data);
  return err;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *capturing) {
  struct CUstream_st *s = find(stream);
  pthread_mutex_lock(&s->lock);
  *capturing = s->captured != NULL;
  pthread_mutex_unlock(&s->lock);
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  (void)flags;
  return (*event = calloc(1, sizeof **event)) ? cudaSuccess : cudaErrorMemoryAllocation;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, 0);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = find(stream);
  event->launched = launched(event->stream);
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
  return e->stream ? query(e->stream, e->launched) : cudaSuccess;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (e->stream) await(e->stream, e->launched);
  return cudaSuccess;
}

static void await_copy(void *data) {
  struct CUevent_st *e = data;
  await(e->stream, e->launched);
  free(e);
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  if (!event->stream) return cudaSuccess;
  struct CUevent_st *e = malloc(sizeof *e);
  if (!e) return cudaErrorMemoryAllocation;
  *e = *event;
  return cudaLaunchHostFunc(stream, await_copy, e);
}
