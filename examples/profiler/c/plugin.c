/*
 * A profiler plug-in in C, for version 4 of NCCL's interface: it counts the collectives of each communicator, measures
 * them, and writes a line to standard error when the communicator ends. NCCL 2.27.3 and later can run it
 * (NCCL_PROFILER_PLUGIN=./plugin.so), and so can Carillon (CARILLON_PROFILER_PLUGIN=./plugin.so).
 *
 *   cc -shared -fPIC -o plugin.so plugin.c
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The part of the interface that is used here. */

enum { GROUP = 1 << 0, COLL = 1 << 1 };

struct event {
  uint8_t type;
  void *parent; /* a handle from start, or NULL */
  int rank;
  union {
    struct {
      uint64_t number; /* the collective's number on the communicator */
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels, warps;
      const char *algorithm, *protocol;
    } coll;
    char room[64];
  };
};

typedef void (*logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct profiler_v4 {
  const char *name;
  int (*init)(void **context, int *mask, const char *comm, uint64_t hash, int nodes, int ranks, int rank, logger);
  int (*start)(void *context, void **handle, struct event *);
  int (*stop)(void *handle);
  int (*state)(void *handle, int state, void *args);
  int (*finalize)(void *context);
};

/* A communicator, and a collective on it. */

struct comm {
  char name[64];
  int rank;
  uint64_t count, ns;
};

struct collective {
  struct comm *comm;
  uint64_t began;
};

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int init(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
                logger log) {
  (void)hash, (void)nodes, (void)ranks, (void)log;
  struct comm *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return 2; /* ncclSystemError: the plug-in gets no events of the communicator */
  }
  snprintf(c->name, sizeof c->name, "%s", name == NULL ? "" : name);
  c->rank = rank;
  *context = c;
  *mask = COLL;
  return 0;
}

/* Groups are reported, too, as the parents of collectives. Without a handle, NCCL makes no further calls for an
   event. */
static int start(void *context, void **handle, struct event *e) {
  *handle = NULL;
  if (e->type != COLL) {
    return 0;
  }
  struct collective *op = malloc(sizeof *op);
  if (op != NULL) {
    *op = (struct collective){context, now()};
    *handle = op;
  }
  return 0;
}

static int stop(void *handle) {
  struct collective *op = handle;
  if (op != NULL) {
    op->comm->count++;
    op->comm->ns += now() - op->began;
    free(op);
  }
  return 0;
}

static int state(void *handle, int state, void *args) {
  (void)handle, (void)state, (void)args;
  return 0;
}

static int finalize(void *context) {
  struct comm *c = context;
  fprintf(stderr, "%s rank %d: %llu collectives, %llu us each\n", c->name, c->rank, (unsigned long long)c->count,
          (unsigned long long)(c->count == 0 ? 0 : c->ns / c->count / 1000));
  free(c);
  return 0;
}

extern const struct profiler_v4 ncclProfiler_v4;
const struct profiler_v4 ncclProfiler_v4 = {"timing", init, start, stop, state, finalize};
