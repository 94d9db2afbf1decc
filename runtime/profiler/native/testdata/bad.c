/*
 * A faulty profiler plug-in: compiled with LACKS, it has no startEvent; with HANGS=1 its init, and with HANGS=2 its
 * startEvent, never returns. Otherwise startEvent and finalize return an error, and startEvent makes no handle: if
 * another function were called with that, the process would end.
 */
#include <stdlib.h>
#include <unistd.h>

#include "../profiler_abi.h"

#ifndef HANGS
#define HANGS 0
#endif

static int init(void **context, int *mask) {
  *context = NULL;
  *mask = PROFILER_COLL;
  while (HANGS == 1) {
    pause();
  }
  return 0;
}

#ifndef LACKS
static int start(void *context, void **handle, const struct profiler_descr_v3 *d) {
  (void)context, (void)handle, (void)d;
  while (HANGS == 2) {
    pause();
  }
  return 3;
}
#else
#define start NULL
#endif

static int stop(void *handle) {
  (void)handle;
  abort();
}

static int state(void *handle, int state, const void *args) {
  (void)handle, (void)state, (void)args;
  abort();
}

static int finalize(void *context) {
  (void)context;
  return 3;
}

extern const struct profiler_v3 ncclProfiler_v3;
const struct profiler_v3 ncclProfiler_v3 = {"bad", init, start, stop, state, finalize};
