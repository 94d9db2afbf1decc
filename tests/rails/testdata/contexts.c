/*
 * A profiler plug-in for version 7 of NCCL's interface. It ends its process if it gets a context or handle that it has
 * not made, that belongs to another process, or that has ended; or if an operation of another process has a parent. Its
 * contexts and handles are no addresses: they consist of the process id and a number.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../../runtime/profiler/native/profiler_abi.h"

enum { ROOM = 1 << 22 };

static char live[ROOM]; /* by number */
static uint32_t made, parents, foreign; /* operations with a parent, and operations of another process */

static void *make(void) {
  if (++made == ROOM) {
    fprintf(stderr, "contexts: there are too many\n");
    _exit(1);
  }
  live[made] = 1;
  return (void *)((uintptr_t)getpid() << 32 | made);
}

static uint32_t check(const char *what, const void *p) {
  const uintptr_t bits = (uintptr_t)p;
  const uint32_t number = (uint32_t)bits;
  if (bits >> 32 != (uintptr_t)getpid() || number > made || !live[number]) {
    fprintf(stderr, "contexts: process %d got %p as %s\n", getpid(), p, what);
    _exit(1);
  }
  return number;
}

static int init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int size, int rank,
                profiler_log log) {
  (void)hash, (void)name, (void)nodes, (void)size, (void)rank, (void)log;
  *context = make();
  *mask = PROFILER_PROXY_OP | PROFILER_PROXY_STEP; /* and their parents */
  return 0;
}

static int start(void *context, void **handle, const struct profiler_descr_v7 *d) {
  struct profiler_event e = {0};
  profiler_read_v7(&e, d);
  check("a context", context);
  if (e.parentObj != NULL && e.type != PROFILER_COLL && e.type != PROFILER_P2P) { /* their parents, calls, have ended */
    check("a parent", e.parentObj);
  }
  if (e.type == PROFILER_PROXY_OP) {
    const int is_foreign = e.proxyOp.pid != getpid();
    foreign += is_foreign;
    parents += e.parentObj != NULL;
    if (is_foreign && e.parentObj != NULL) {
      fprintf(stderr, "contexts: process %d got a parent for what is process %d's\n", getpid(), (int)e.proxyOp.pid);
      _exit(1);
    }
  }
  *handle = make();
  return 0;
}

static int stop(void *handle) {
  live[check("what stops", handle)] = 0;
  return 0;
}

static int state(void *handle, int state, const void *args) {
  (void)state, (void)args;
  check("what changes", handle);
  return 0;
}

static int finalize(void *context) {
  live[check("what is finalized", context)] = 0;
  if (parents == 0 || foreign == 0) {
    fprintf(stderr, "contexts: %u operations had a parent, and %u were another process's\n", parents, foreign);
    _exit(1);
  }
  return 0;
}

extern const struct profiler_v7 ncclProfiler_v7;
const struct profiler_v7 ncclProfiler_v7 = {"contexts", init, start, stop, state, finalize};
