/*
 * A plug-in of NCCL's profiler interface, of any version, as its callers see it: runtime/attach, which passes on
 * NCCL's events, and this package.
 */
#ifndef CARILLON_PROFILER_PLUGIN_H
#define CARILLON_PROFILER_PLUGIN_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "profiler_abi.h"

enum { PROFILER_NEWEST = 7 };

/* The plug-in's struct for each version of the interface; NULL if it doesn't have that version. */
struct profiler_plugin {
  const void *versions[PROFILER_NEWEST + 1];
  int version; /* the version in use; 0: not known yet, -1: none */
  int mask;    /* types that it asks for; it may keep the address */
};

/* A new communicator, as a plug-in gets it; up to version 3, a plug-in gets nothing. */
struct profiler_made {
  uint64_t hash;
  const char *name;
  int32_t nodes, size, rank;
  profiler_log log;
};

/* Finds the versions that a library has, and returns whether there are any. */
static inline bool profiler_plugin_find(struct profiler_plugin *p, void *library) {
  bool any = false;
  for (int v = 1; v <= PROFILER_NEWEST; v++) {
    char symbol[] = "ncclProfiler_v0";
    symbol[sizeof symbol - 2] = (char)('0' + v);
    p->versions[v] = dlsym(library, symbol);
    any = any || p->versions[v] != NULL;
  }
  return any;
}

/* Chooses the plug-in's newest version that is not newer than version, and returns whether there is one. */
static inline bool profiler_plugin_choose(struct profiler_plugin *p, int version) {
  for (p->version = version; p->version > 0 && p->versions[p->version] == NULL; p->version--) {
  }
  if (p->version == 0) {
    p->version = -1;
  }
  return p->version > 0;
}

static inline uint32_t profiler_plugin_mask(const struct profiler_plugin *p) {
  return (uint32_t)__atomic_load_n(&p->mask, __ATOMIC_RELAXED);
}

/* Calls F of the plug-in's struct of that version with the remaining arguments. */
#define PROFILER_WITH(P, VERSION, F, ...)                                            \
  ((VERSION) == 1   ? ((const struct profiler_v1 *)(P)->versions[1])->F(__VA_ARGS__) \
   : (VERSION) == 2 ? ((const struct profiler_v2 *)(P)->versions[2])->F(__VA_ARGS__) \
   : (VERSION) == 3 ? ((const struct profiler_v3 *)(P)->versions[3])->F(__VA_ARGS__) \
   : (VERSION) == 4 ? ((const struct profiler_v4 *)(P)->versions[4])->F(__VA_ARGS__) \
   : (VERSION) == 5 ? ((const struct profiler_v5 *)(P)->versions[5])->F(__VA_ARGS__) \
   : (VERSION) == 6 ? ((const struct profiler_v6 *)(P)->versions[6])->F(__VA_ARGS__) \
                    : ((const struct profiler_v7 *)(P)->versions[7])->F(__VA_ARGS__))

static inline int profiler_plugin_init(struct profiler_plugin *p, void **context, const struct profiler_made *made) {
  const char *name = made->name;
  switch (p->version) {
  case 1:
    return ((const struct profiler_v1 *)p->versions[1])->init(context, &p->mask);
  case 2:
    return ((const struct profiler_v2 *)p->versions[2])->init(context, &p->mask);
  case 3:
    return ((const struct profiler_v3 *)p->versions[3])->init(context, &p->mask);
  case 4:
    return ((const struct profiler_v4 *)p->versions[4])
        ->init(context, &p->mask, name, made->hash, made->nodes, made->size, made->rank, made->log);
#define INIT(V)                                           \
  case V:                                                 \
    return ((const struct profiler_v##V *)p->versions[V]) \
        ->init(context, made->hash, &p->mask, name, made->nodes, made->size, made->rank, made->log)
    INIT(5);
    INIT(6);
    INIT(7);
  default:
    return -1;
  }
}
#undef INIT

/* The bits of a mask for which NCCL reports events of a type: asking for a type includes its parents. */
static inline uint32_t profiler_asked_by(uint64_t type) {
  const uint32_t network = PROFILER_PROXY_STEP | PROFILER_NET_PLUGIN, proxy = PROFILER_PROXY_OP | network;
  const uint32_t below = proxy | PROFILER_KERNEL_CH | PROFILER_KERNEL_PHASE; /* the types below a task */
  const uint32_t copies = PROFILER_CE_COLL | PROFILER_CE_SYNC | PROFILER_CE_BATCH;
  switch (type) {
  case PROFILER_GROUP_API:
    return (uint32_t)~PROFILER_PROXY_CTRL;
  case PROFILER_COLL_API:
    return PROFILER_COLL_API | PROFILER_COLL | below | copies;
  case PROFILER_P2P_API:
    return PROFILER_P2P_API | PROFILER_P2P | below;
  case PROFILER_GROUP:
    return PROFILER_GROUP | PROFILER_COLL | PROFILER_P2P | below;
  case PROFILER_COLL:
    return PROFILER_COLL | below;
  case PROFILER_P2P:
    return PROFILER_P2P | below;
  case PROFILER_PROXY_OP:
    return proxy;
  case PROFILER_PROXY_STEP:
    return network;
  case PROFILER_KERNEL_CH:
    return PROFILER_KERNEL_CH | PROFILER_KERNEL_PHASE;
  case PROFILER_CE_COLL:
    return copies;
  default:
    return (uint32_t)type;
  }
}

/* The types of events in a version. */
static inline uint64_t profiler_types_of(int version) {
  static const uint64_t known[] = {0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff, 0xffff};
  return known[version];
}

/* Reports an event to the plug-in, and returns its handle. version is the caller's version, and descr the event in that
   version; parent and group are the plug-in's handles of the event's parentObj and parentGroup. */
static inline void *profiler_plugin_start(const struct profiler_plugin *p, void *context, int version,
                                          const struct profiler_event *event, const void *descr, void *parent,
                                          void *group) {
  struct profiler_event e = *event;
  void *handle = NULL;
  e.parentObj = parent;
  if (e.type == PROFILER_COLL || e.type == PROFILER_P2P) {
    if (version > 4 && p->version <= 4) {
      e.parentObj = group; /* a task's parent was its group up to version 4 */
    } else if (e.type == PROFILER_COLL) {
      e.coll.parentGroup = group;
    } else {
      e.p2p.parentGroup = group;
    }
  }
  if ((e.type & profiler_types_of(p->version)) == 0 && p->version != version) {
    return NULL;
  }
#define START(V)                                                                      \
  case V: {                                                                           \
    struct profiler_descr_v##V d;                                                     \
    if ((e.type & profiler_types_of(V)) != 0) {                                       \
      profiler_write_v##V(&d, &e);                                                    \
    } else { /* a type that only NCCL and the plug-in know */                      \
      memcpy(&d, descr, sizeof d);                                                    \
      d.parentObj = parent;                                                           \
    }                                                                                 \
    ((const struct profiler_v##V *)p->versions[V])->startEvent(context, &handle, &d); \
    break;                                                                            \
  }
  switch (p->version) {
    START(1)
    START(2)
    START(3)
    START(4)
    START(5)
    START(6)
    START(7)
  }
  return handle;
}
#undef START

static inline void profiler_plugin_state(const struct profiler_plugin *p, int version, void *handle, int state,
                                         const void *args) {
  union profiler_args old = {0};
  if (version >= 4 && p->version < 4) {
    if (state >= 13 && state <= 18 && args != NULL) { /* proxyCtrl */
      old.proxyCtrl.appendedProxyOps = ((const union profiler_args *)args)->proxyCtrl.appendedProxyOps;
    } else if (state < 8 || state > 18) {
      return; /* a state that is new in version 4 */
    }
    args = &old;
  }
  PROFILER_WITH(p, p->version, recordEventState, handle, state, args);
}

#endif
