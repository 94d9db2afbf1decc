//go:build linux && cgo

#include "plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// lacks returns whether the plug-in's version lacks a required function.
#define LACKS(V)                                                                                                       \
  case V: {                                                                                                            \
    const struct profiler_v##V *v = p->versions[V];                                                                    \
    return !v->init || !v->startEvent || !v->stopEvent || !v->recordEventState || !v->finalize;                        \
  }

static bool lacks(const struct profiler_plugin *p) {
  switch (p->version) {
    LACKS(1)
    LACKS(2)
    LACKS(3)
    LACKS(4)
    LACKS(5)
    LACKS(6)
    LACKS(7)
  default:
    return true;
  }
}

struct profiler_plugin *plugin_open(const char *path, const char **text) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *text = dlerror();
    return NULL;
  }
  struct profiler_plugin *p = calloc(1, sizeof *p);
  if (!p) abort();
  if (!profiler_plugin_find(p, library)) {
    *text = "it has none of ncclProfiler_v1 to ncclProfiler_v7";
  } else if (!profiler_plugin_choose(p, PROFILER_NEWEST) || lacks(p)) {
    *text = "its newest version lacks a function";
  } else {
    return p;
  }
  dlclose(library);
  free(p);
  return NULL;
}

// say is NCCL's log for plug-ins: warnings and more severe messages go to standard error.
static void say(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)flags;
  if (level > 2) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "carillon: profiler plug-in: %s:%d: %s\n", file ? file : "", line, text);
}

int plugin_init(struct profiler_plugin *p, uintptr_t *context, uint64_t hash, const char *name, int nodes, int size,
                int rank) {
  const struct profiler_made made = {
      .hash = hash, .name = name, .nodes = nodes, .size = size, .rank = rank, .log = say};
  void *c = NULL;
  const int answer = profiler_plugin_init(p, &c, &made);
  *context = (uintptr_t)c;
  return answer;
}

uintptr_t plugin_start(const struct profiler_plugin *p, uintptr_t context, const struct event *g) {
  struct profiler_event e = {.type = g->type, .rank = g->rank};
  switch (g->type) {
  case PROFILER_COLL:
    e.coll.seqNumber = g->seq, e.coll.func = g->func, e.coll.count = g->count, e.coll.root = g->peer;
    e.coll.sendBuff = (void *)g->send, e.coll.recvBuff = (void *)g->recv;
    e.coll.datatype = g->datatype, e.coll.algo = g->algo, e.coll.proto = "SIMPLE", e.coll.nChannels = 1;
    e.coll.name = g->name, e.coll.commHash = g->hash;
    break;
  case PROFILER_P2P:
    e.p2p.func = g->func, e.p2p.count = g->count, e.p2p.peer = g->peer, e.p2p.datatype = g->datatype;
    e.p2p.buff = (void *)(g->send ? g->send : g->recv), e.p2p.nChannels = 1;
    e.p2p.name = g->name, e.p2p.commHash = g->hash;
    break;
  case PROFILER_PROXY_OP:
    e.proxyOp.pid = g->pid, e.proxyOp.channelId = (uint8_t)g->channel, e.proxyOp.peer = g->peer;
    e.proxyOp.nSteps = g->steps, e.proxyOp.chunkSize = g->chunk, e.proxyOp.isSend = g->is_send;
    break;
  case PROFILER_PROXY_STEP:
    e.proxyStep.step = g->step;
    break;
  case PROFILER_GROUP_API:
    e.groupApi.groupDepth = 1;
    break;
  case PROFILER_COLL_API:
    e.collApi.func = g->func, e.collApi.count = g->count, e.collApi.datatype = g->datatype, e.collApi.root = g->peer;
    break;
  case PROFILER_P2P_API:
    e.p2pApi.func = g->func, e.p2pApi.count = g->count, e.p2pApi.datatype = g->datatype;
    break;
  default:
    break;
  }
  return (uintptr_t)profiler_plugin_start(p, (void *)context, PROFILER_NEWEST, &e, NULL, (void *)g->parent,
                                          (void *)g->group);
}

void plugin_state(const struct profiler_plugin *p, uintptr_t handle, int state, uint64_t n) {
  union profiler_args args = {.proxyStep.transSize = n}; // same place as proxyOp's; other types have none
  profiler_plugin_state(p, PROFILER_NEWEST, (void *)handle, state, &args);
}

void plugin_stop(const struct profiler_plugin *p, uintptr_t handle) {
  PROFILER_WITH(p, p->version, stopEvent, (void *)handle);
}

void plugin_finalize(const struct profiler_plugin *p, uintptr_t context) {
  PROFILER_WITH(p, p->version, finalize, (void *)context);
}
