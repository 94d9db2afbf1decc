//go:build ignore

#include "profiler_next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of them, as each version of the interface has it; NULL where it doesn't have that version. */
static struct plugin {
  char *path;
  const void *versions[8];
  int version; /* that NCCL and it share; 0: not known yet, -1: none */
  int mask;    /* what it asks for; it may keep the address */
} plugins[PROFILER_NEXT];
static int count;

static void say(const char *path, const char *why) {
  fprintf(stderr, "carillon: the profiler plug-in %s of CARILLON_PROFILER_NEXT is left out: %s\n", path, why);
}

static void load(char *path) {
  if (count == PROFILER_NEXT) {
    say(path, "no more than 4 can run beside Carillon's");
    return;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say(path, dlerror());
    return;
  }
  struct plugin *p = &plugins[count];
  bool any = false;
  for (int v = 1; v <= 7; v++) {
    char symbol[] = "ncclProfiler_v0";
    symbol[sizeof symbol - 2] = (char)('0' + v);
    p->versions[v] = dlsym(library, symbol);
    any = any || p->versions[v] != NULL;
  }
  extern const struct profiler_v7 ncclProfiler_v7;
  if (p->versions[7] == &ncclProfiler_v7) {
    say(path, "it is Carillon's own");
  } else if (!any) {
    say(path, "it has none of ncclProfiler_v1 to ncclProfiler_v7");
  } else {
    p->path = path;
    count++;
    return;
  }
  memset(p, 0, sizeof *p);
  dlclose(library);
}

void profiler_next_load(void) {
  static bool loaded;
  const char *names = getenv("CARILLON_PROFILER_NEXT");
  if (loaded || names == NULL) {
    return;
  }
  loaded = true;
  char *rest = strdup(names), *save = NULL; /* kept: paths are said later */
  if (rest == NULL) {
    return;
  }
  for (char *path = strtok_r(rest, ",", &save); path != NULL; path = strtok_r(NULL, ",", &save)) {
    load(path);
  }
}

/* Calls f of the plug-in's struct of that version with what follows. */
#define WITH(P, VERSION, F, ...)                                                                    \
  ((VERSION) == 1   ? ((const struct profiler_v1 *)(P)->versions[1])->F(__VA_ARGS__)                \
   : (VERSION) == 2 ? ((const struct profiler_v2 *)(P)->versions[2])->F(__VA_ARGS__)                \
   : (VERSION) == 3 ? ((const struct profiler_v3 *)(P)->versions[3])->F(__VA_ARGS__)                \
   : (VERSION) == 4 ? ((const struct profiler_v4 *)(P)->versions[4])->F(__VA_ARGS__)                \
   : (VERSION) == 5 ? ((const struct profiler_v5 *)(P)->versions[5])->F(__VA_ARGS__)                \
   : (VERSION) == 6 ? ((const struct profiler_v6 *)(P)->versions[6])->F(__VA_ARGS__)                \
                    : ((const struct profiler_v7 *)(P)->versions[7])->F(__VA_ARGS__))

static int init(struct plugin *p, void **context, const struct profiler_made *made) {
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
#define INIT(V)                                              \
  case V:                                                    \
    return ((const struct profiler_v##V *)p->versions[V])    \
        ->init(context, made->hash, &p->mask, name, made->nodes, made->size, made->rank, made->log)
    INIT(5);
    INIT(6);
    INIT(7);
  default:
    return -1;
  }
}

void profiler_next_init(struct profiler_beside *b, int version, const struct profiler_made *made) {
  *b = (struct profiler_beside){0};
  for (int i = 0; i < count; i++) {
    struct plugin *p = &plugins[i];
    if (p->version == 0) {
      for (p->version = version; p->version > 0 && p->versions[p->version] == NULL; p->version--) {
      }
      if (p->version == 0) {
        p->version = -1;
        say(p->path, "this NCCL speaks to plug-ins in a version that is older than all that it has");
      }
    }
    if (p->version > 0 && init(p, &b->context[i], made) == 0) {
      b->with |= 1u << i;
    }
  }
}

void profiler_next_finalize(struct profiler_beside *b) {
  for (int i = 0; i < count; i++) {
    if (b->with & 1u << i) {
      WITH(&plugins[i], plugins[i].version, finalize, b->context[i]);
    }
  }
  b->with = 0;
}

static uint32_t asked(int i) {
  return (uint32_t)__atomic_load_n(&plugins[i].mask, __ATOMIC_RELAXED);
}

uint32_t profiler_next_mask(void) {
  uint32_t mask = 0;
  for (int i = 0; i < count; i++) {
    mask |= asked(i);
  }
  return mask;
}

/* For which bits of a mask NCCL tells of events of a type: of a child also for its parents. */
static uint32_t asked_by(uint64_t type) {
  const uint32_t network = PROFILER_PROXY_STEP | PROFILER_NET_PLUGIN, proxy = PROFILER_PROXY_OP | network;
  const uint32_t below = proxy | PROFILER_KERNEL_CH | PROFILER_KERNEL_PHASE; /* what a task has below it */
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

/* The types of events that there are in a version. */
static uint64_t types_of(int version) {
  static const uint64_t known[] = {0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff, 0xffff};
  return known[version];
}

uint32_t profiler_next_wanting(const struct profiler_beside *b, uint64_t type) {
  uint32_t wanting = 0;
  for (int i = 0; b->with >> i != 0; i++) {
    if ((b->with & 1u << i) != 0 && (asked(i) & asked_by(type)) != 0) {
      wanting |= 1u << i;
    }
  }
  return wanting;
}

void *profiler_next_start(const struct profiler_beside *b, int i, int version, const struct profiler_event *event,
                          const void *descr, void *parent, void *group) {
  const struct plugin *p = &plugins[i];
  struct profiler_event e = *event;
  void *handle = NULL, *context = b->context[i];
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
  if ((e.type & types_of(p->version)) == 0 && p->version != version) {
    return NULL;
  }
#define START(V)                                                                     \
  case V: {                                                                          \
    struct profiler_descr_v##V d;                                                    \
    if ((e.type & types_of(V)) != 0) {                                               \
      profiler_write_v##V(&d, &e);                                                   \
    } else { /* of a type that only NCCL and the plug-in know */                     \
      memcpy(&d, descr, sizeof d);                                                   \
      d.parentObj = parent;                                                          \
    }                                                                                \
    ((const struct profiler_v##V *)p->versions[V])->startEvent(context, &handle, &d); \
    break;                                                                           \
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

void profiler_next_stop(int i, void *handle) { WITH(&plugins[i], plugins[i].version, stopEvent, handle); }

void profiler_next_state(int i, int version, void *handle, int state, const void *args) {
  const struct plugin *p = &plugins[i];
  union profiler_args old = {0};
  if (version >= 4 && p->version < 4) {
    if (state >= 13 && state <= 18 && args != NULL) { /* proxyCtrl */
      old.proxyCtrl.appendedProxyOps = ((const union profiler_args *)args)->proxyCtrl.appendedProxyOps;
    } else if (state < 8 || state > 18) {
      return; /* a state that came with version 4 */
    }
    args = &old;
  }
  WITH(p, p->version, recordEventState, handle, state, args);
}
