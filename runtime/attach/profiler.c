//go:build ignore

#include "profiler.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include "profiler_depth.h"
#include "ops.h"
#include "profiler_next.h"
#include "profiler_slot.h"
#include "profiler_tape.h"
#include "tape.h"

/* The events that the plug-in asks NCCL for: where it writes a communicator's tape, and where there are other plug-ins,
   which may ask for more at each group. */
static uint32_t for_operations(int version) { return version >= 5 ? 0x706 : PROFILER_COLL | PROFILER_P2P; }
static uint32_t for_others(int version) { return version >= 5 ? PROFILER_GROUP_API : PROFILER_GROUP; }

/* A communicator. Fields that have no other owner change under the lock. */
struct comm {
  _Atomic uint64_t generation; /* odd while the slot is in use */
  int version;
  bool taped;                        /* the plug-in writes its operations */
  int *mask;                         /* NCCL's mask */
  struct profiler_beside beside;
  struct profiler_tape tape;
  struct depth depth;
  int64_t looked;                    /* when an operation that the plug-in writes was last looked into; 0: never */
  _Atomic uintptr_t group;           /* the token of the group that the communicator joined; its operations end with
                                        that group */
};

_Atomic uint64_t profiler_counts[TAPE_UNEXPECTED_KINDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm comms[PROFILER_COMMS];
static int alive;              /* communicators */
static profiler_log nccl_log;  /* that of the last communicator; NULL up to version 3 */

/* NCCL's masks, usually just one, and what each was last set to. */
static struct wish {
  int *mask;
  uint32_t set;
} wishes[4];
static _Atomic uint32_t next_mask; /* what the other plug-ins asked for at the last set_mask */

static uint64_t generation_of(const struct comm *c) {
  return atomic_load_explicit(&c->generation, memory_order_acquire);
}

/* The communicator of a token; NULL if the token is invalid or the communicator has ended. */
static struct comm *comm_of(uintptr_t t) {
  const ptrdiff_t i = token_index(t, TOKEN_COMM, PROFILER_COMMS);
  return i >= 0 && (generation_of(&comms[i]) & TOKEN_GENERATIONS) == token_generation(t) ? &comms[i] : NULL;
}

/* Makes a communicator's operations end with a group. Those of an earlier group are ended first, if nobody has done
   so. */
static void join(struct comm *c, uintptr_t context, uintptr_t group) {
  if (atomic_load_explicit(&c->group, memory_order_relaxed) == group) {
    return;
  }
  profiler_tape_end(&c->tape, 0);
  atomic_store_explicit(&c->group, 0, memory_order_relaxed);
  struct slot *s = NULL;
  if (slot_age(group, &s) != 0) {
    return;
  }
  for (int i = 0; i < PROFILER_JOINED; i++) {
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&s->joined[i], &none, context, memory_order_relaxed,
                                                memory_order_relaxed)) {
      atomic_store_explicit(&c->group, group, memory_order_relaxed);
      return;
    }
  }
}

/* The group that an event is in, given its parent: the parent itself, if that is a group, or the parent's group. */
static uintptr_t group_of(uintptr_t parent) {
  struct slot *p = slot_of(parent);
  if (p == NULL) {
    return 0;
  }
  return atomic_load_explicit(&p->type, memory_order_relaxed) == PROFILER_GROUP_API
             ? parent
             : atomic_load_explicit(&p->group, memory_order_relaxed);
}

/* Whether the tape needs an event: it begins an operation, or leads from one to its group. */
static bool for_tape(const struct comm *c, const struct profiler_event *e) {
  if (!c->taped) {
    return false;
  }
  if (c->version >= 5) {
    struct slot *call = NULL;
    switch (e->type) {
    case PROFILER_GROUP_API:
    case PROFILER_P2P_API:
      return true;
    case PROFILER_P2P: /* but not one that is part of a collective */
      call = slot_of((uintptr_t)e->parentObj);
      return call != NULL && atomic_load_explicit(&call->type, memory_order_relaxed) == PROFILER_P2P_API;
    default:
      break;
    }
  }
  return profiler_tape_begins(c->version, e->type);
}

/* Sets one of NCCL's masks as its communicators need it. If somebody else has written the mask since, only the bits
   that differ from our last wishes are changed. The caller has the lock. */
static void set_mask(int *mask) {
  struct wish *w = NULL;
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes && w == NULL; i++) {
    w = wishes[i].mask == mask ? &wishes[i] : NULL;
  }
  const bool first = w == NULL;
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes && w == NULL; i++) {
    w = wishes[i].mask == NULL ? &wishes[i] : NULL;
  }
  uint32_t wish = 0;
  bool any = false;
  for (int i = 0; i < PROFILER_COMMS; i++) {
    const struct comm *c = &comms[i];
    if ((generation_of(&comms[i]) & 1) != 0 && c->mask == mask) {
      wish |= (c->taped ? for_operations(c->version) : 0) | (c->beside.with != 0 ? for_others(c->version) : 0) |
              (c->depth.asked ? depth_mask(c->version) : 0);
      any = true;
    }
  }
  if (!any) { /* NCCL may have been unloaded, with its mask */
    if (!first) {
      *w = (struct wish){0};
    }
    return;
  }
  const uint32_t asked = profiler_next_mask();
  atomic_store_explicit(&next_mask, asked, memory_order_relaxed);
  wish |= asked;
  int is = __atomic_load_n(mask, __ATOMIC_RELAXED);
  const uint32_t set = first ? (uint32_t)is : w->set;
  if (!first && (uint32_t)is != set) {
    profiler_count(TAPE_UNEXPECTED_OVERRULED);
    for (int i = 0; i < PROFILER_COMMS; i++) {
      if (comms[i].taped && comms[i].mask == mask && (set & ~(uint32_t)is & for_operations(comms[i].version)) != 0) {
        profiler_tape_lost(&comms[i].tape);
      }
    }
  }
  int next;
  do {
    next = first ? (int)wish : (int)(((uint32_t)is | (wish & ~set)) & ~(set & ~wish));
  } while (next != is &&
           !__atomic_compare_exchange_n(mask, &is, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  if (w != NULL) {
    w->mask = mask;
    w->set = wish;
  }
}

/* For operations that the plug-in writes: the interval in ns between looks. */
#define LOOK_EVERY INT64_C(30000000000)

/* Sets whether the mask asks for more events of a communicator. The caller has the lock. */
static void ask(struct comm *c, bool more) {
  if (atomic_exchange(&c->depth.asked, more) != more) {
    set_mask(c->mask);
  }
}

/* Called after each operation that the plug-in has written. If NCCL was asked for more when it took the operation up,
   looks into it and its group; else, if a look is due, asks NCCL for more from the next one on. Doesn't wait for the
   lock: another operation will come. */
static void look_into(struct comm *c, uint64_t operation) {
  const bool looks = atomic_load_explicit(&c->depth.look, memory_order_relaxed) != 0;
  const bool asks = atomic_load_explicit(&c->depth.asked, memory_order_relaxed);
  const int64_t now = tape_now();
  struct tape_look of;
  const bool due = now - c->looked >= LOOK_EVERY;
  const bool ends = looks && c->version >= 4; /* up to version 3, no event says that a kernel has ended */
  if (operation == 0 || (!due && !asks && !ends) || pthread_mutex_trylock(&lock) != 0) {
    return;
  }
  if (looks && asks && c->version < 5) { /* later versions say when a group ends */
    ask(c, false);
  } else if (looks) {
    if (!asks && (due || depth_done(&c->depth))) {
      depth_close(&c->depth);
    }
  } else if (!asks) {
    ask(c, true);
  } else if (profiler_tape_look(&c->tape, operation, &of)) {
    c->looked = now;
    depth_open(&c->depth, c->tape.comm, &of);
  }
  pthread_mutex_unlock(&lock);
}

static void write_start(struct comm *c, uintptr_t context, struct slot *s, uintptr_t self,
                        const struct profiler_event *e) {
  if (e->type == PROFILER_GROUP_API) {
    for (int i = 0; i < PROFILER_JOINED; i++) {
      atomic_store_explicit(&s->joined[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&s->group, self, memory_order_relaxed);
    return;
  }
  const uintptr_t group = group_of((uintptr_t)e->parentObj);
  atomic_store_explicit(&s->group, group, memory_order_relaxed);
  if (profiler_tape_begins(c->version, e->type)) {
    join(c, context, group);
    const uint64_t operation = profiler_tape_start(&c->tape, e);
    atomic_store_explicit(&s->operation, operation, memory_order_relaxed);
    look_into(c, operation);
  }
}

static void write_stop(struct comm *c, const struct slot_contents *was, uintptr_t self) {
  if (was->type != PROFILER_GROUP_API) {
    if (was->operation != 0 && atomic_load_explicit(&c->group, memory_order_relaxed) == 0) {
      profiler_tape_end(&c->tape, was->operation);
    }
    return;
  }
  for (int i = 0; i < PROFILER_JOINED && was->joined[i] != 0; i++) {
    uintptr_t group = self;
    c = comm_of(was->joined[i]);
    if (c != NULL && atomic_compare_exchange_strong_explicit(&c->group, &group, 0, memory_order_relaxed,
                                                             memory_order_relaxed)) {
      profiler_tape_end(&c->tape, 0);
      if (atomic_load_explicit(&c->depth.look, memory_order_relaxed) != 0 &&
          atomic_load_explicit(&c->depth.asked, memory_order_relaxed)) {
        pthread_mutex_lock(&lock);
        ask(c, false);
        pthread_mutex_unlock(&lock);
      }
    }
  }
}

/* The handle by which another plug-in knows a token's event; NULL if that plug-in wasn't told of the event. */
static void *handle_of(void *t, int i) {
  struct slot *s = slot_of((uintptr_t)t);
  if (s == NULL || (atomic_load_explicit(&s->beside, memory_order_relaxed) & 1u << i) == 0) {
    return NULL;
  }
  void *handle = atomic_load_explicit(&s->handle[i], memory_order_relaxed);
  return slot_of((uintptr_t)t) == s ? handle : NULL; /* unless another event took the slot meanwhile */
}

/* Adds to NCCL's masks what another plug-in has asked for meanwhile. If the lock is taken, that is left to the next
   group. */
static void follow_next(void) {
  if (profiler_next_mask() == atomic_load_explicit(&next_mask, memory_order_relaxed) ||
      pthread_mutex_trylock(&lock) != 0) {
    return;
  }
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
    if (wishes[i].mask != NULL) {
      set_mask(wishes[i].mask);
    }
  }
  pthread_mutex_unlock(&lock);
}

/* Whether nobody reads the events of one of our communicators. */
static bool unread(void *context) {
  const struct comm *c = comm_of((uintptr_t)context);
  return c != NULL && !c->taped && c->beside.with == 0 &&
         atomic_load_explicit(&c->depth.look, memory_order_relaxed) == 0;
}

static int start(int version, void *context, void **handle, const struct profiler_event *e, const void *descr) {
  *handle = NULL;
  if (e->type == PROFILER_PROXY_OP && e->proxyOp.pid != atomic_load_explicit(&token_process, memory_order_relaxed)) {
    profiler_count(TAPE_UNEXPECTED_FOREIGN); /* its context and parent are pointers in that process */
    return 0;
  }
  struct comm *c = comm_of((uintptr_t)context);
  if (c == NULL) {
    profiler_count(TAPE_UNEXPECTED_NO_COMMUNICATOR);
    return 0;
  }
  if (c->beside.with != 0 && (e->type == PROFILER_GROUP_API || e->type == PROFILER_GROUP)) {
    follow_next();
  }
  const bool taped = for_tape(c, e);
  const uint32_t wanting = c->beside.with == 0 ? 0 : profiler_next_wanting(&c->beside, e->type);
  uint32_t look = depth_of(&c->depth, e);
  if (!taped && wanting == 0 && look == 0) {
    return 0;
  }
  struct slot *s = NULL;
  const uintptr_t self = slot_take(&s, (uintptr_t)context, e->type);
  if (self == 0) {
    if (taped) {
      profiler_tape_lost(&c->tape);
    }
    return 0;
  }
  if (taped) {
    write_start(c, (uintptr_t)context, s, self, e);
    look = depth_of(&c->depth, e);
  }
  if (look != 0) {
    depth_start(&c->depth, s, look, e);
  }
  const bool task = e->type == PROFILER_COLL || e->type == PROFILER_P2P;
  uint32_t told = 0;
  for (int i = 0; wanting >> i != 0; i++) {
    if (wanting & 1u << i) {
      void *group = !task ? NULL : e->type == PROFILER_COLL ? e->coll.parentGroup : e->p2p.parentGroup;
      void *theirs = profiler_next_start(&c->beside, i, version, e, descr, handle_of(e->parentObj, i),
                                         handle_of(group, i));
      atomic_store_explicit(&s->handle[i], theirs, memory_order_relaxed);
      told |= theirs != NULL ? 1u << i : 0;
    }
  }
  atomic_store_explicit(&s->beside, told, memory_order_release);
  *handle = (void *)self;
  return 0;
}

/* Counts a call for an event that isn't open. */
static void missed(int64_t age, size_t again) {
  profiler_count(age < 0 ? TAPE_UNEXPECTED_UNKNOWN_EVENT : age == 1 ? again : TAPE_UNEXPECTED_LATE);
}

static int stop(void *handle) {
  if (handle == NULL) {
    return 0;
  }
  struct slot *s = NULL;
  const int64_t age = slot_age((uintptr_t)handle, &s);
  if (age != 0) {
    missed(age, TAPE_UNEXPECTED_STOPPED_TWICE);
    return 0;
  }
  struct slot_contents was;
  if (!slot_give(s, (uintptr_t)handle, &was)) {
    profiler_count(TAPE_UNEXPECTED_STOPPED_TWICE); /* another thread has stopped it meanwhile */
    return 0;
  }
  for (int i = 0; was.beside >> i != 0; i++) {
    if (was.beside & 1u << i) {
      profiler_next_stop(i, was.handle[i]);
    }
  }
  struct comm *c = comm_of(was.comm);
  if (c != NULL && c->taped) {
    write_stop(c, &was, (uintptr_t)handle);
  }
  if (c != NULL && was.look != 0) {
    depth_stop(&c->depth, &was);
  }
  return 0;
}

static int state(void *handle, int state, const void *args) {
  if (handle == NULL) {
    return 0;
  }
  struct slot *s = NULL;
  const int64_t age = slot_age((uintptr_t)handle, &s);
  if (age != 0) {
    missed(age, TAPE_UNEXPECTED_AFTER_STOP);
    return 0;
  }
  struct comm *c = comm_of(atomic_load_explicit(&s->comm, memory_order_relaxed));
  const uint32_t beside = c == NULL ? 0 : atomic_load_explicit(&s->beside, memory_order_acquire);
  if (c != NULL && atomic_load_explicit(&s->look, memory_order_relaxed) != 0) {
    depth_state(&c->depth, s, state, args);
  }
  for (int i = 0; beside >> i != 0; i++) {
    if (beside & 1u << i) {
      profiler_next_state(i, c->version, atomic_load_explicit(&s->handle[i], memory_order_relaxed), state, args);
    }
  }
  return 0;
}

/* Says once that interposition does not see the communicators; in only one process of a job if NCCL tells the rank. */
static void say_unseen(int32_t rank) {
  static bool said;
  if (rank <= 0 && !said) {
    said = true;
    const bool audited = getenv("LD_AUDIT") != NULL;
    fprintf(stderr,
            "carillon: NCCL is called past libcarillon-nccl.so: there are spans of its operations, but no guards; %s "
            "(carillon attach --help has the reasons)\n",
            audited ? "it may be linked statically" : "carillon attach --how audit may help");
  }
}

static int init(int version, void **context, int *mask, const struct profiler_made *made) {
  *context = NULL;
  if (getauxval(AT_SECURE) != 0) { /* whoever set its environment must not choose where a setuid program writes */
    return 0;
  }
  pthread_mutex_lock(&lock);
  token_stamp_process();
  profiler_next_load();
  int i = 0;
  while (i < PROFILER_COMMS && (generation_of(&comms[i]) & 1) != 0) {
    i++;
  }
  if (i == PROFILER_COMMS) {
    profiler_count(TAPE_UNEXPECTED_NO_ROOM);
    pthread_mutex_unlock(&lock);
    return 0;
  }
  struct comm *c = &comms[i];
  const uint64_t generation = generation_of(c) + 1;
  if (generation == 1) {
    pthread_mutex_init(&c->depth.lock, NULL);
  }
  c->version = version;
  c->mask = mask;
  *context = (void *)token_make(TOKEN_COMM, generation, (size_t)i);
  c->taped = !ops_claim(made->rank, made->size, made->hash, made->nodes, (uintptr_t)*context);
  atomic_store_explicit(&c->group, 0, memory_order_relaxed);
  c->depth.asked = c->taped; /* so that its first operation is looked into */
  c->looked = 0;
  if (c->taped) {
    say_unseen(made->rank);
    profiler_tape_open(&c->tape, version, made);
  }
  profiler_next_init(&c->beside, version, made);
  atomic_store_explicit(&c->generation, generation, memory_order_release);
  set_mask(mask);
  alive++;
  nccl_log = made->log;
  pthread_mutex_unlock(&lock);
  return 0;
}

bool depth_begin(uintptr_t context, struct tape_comm *tape, const struct tape_look *of) {
  if (pthread_mutex_trylock(&lock) != 0) {
    return false; /* another look will come; the program shouldn't wait for this one */
  }
  struct comm *c = comm_of(context);
  if (c != NULL) {
    depth_open(&c->depth, tape, of);
    ask(c, true);
  }
  pthread_mutex_unlock(&lock);
  return c != NULL;
}

bool depth_ask(uintptr_t context) {
  if (pthread_mutex_trylock(&lock) != 0) {
    return false;
  }
  struct comm *c = comm_of(context);
  if (c != NULL) {
    ask(c, true);
  }
  pthread_mutex_unlock(&lock);
  return c != NULL;
}

void depth_launched(uintptr_t context) {
  pthread_mutex_lock(&lock);
  struct comm *c = comm_of(context);
  if (c != NULL) {
    ask(c, false);
  }
  pthread_mutex_unlock(&lock);
}

void depth_end(uintptr_t context) {
  pthread_mutex_lock(&lock);
  struct comm *c = comm_of(context);
  if (c != NULL) {
    ask(c, false);
    depth_close(&c->depth);
  }
  pthread_mutex_unlock(&lock);
}

/* Writes the counts of unexpected calls to NCCL's log, if there are any. */
static void report(void) {
  static const char *const says[TAPE_UNEXPECTED_KINDS] = {
      [TAPE_UNEXPECTED_FOREIGN] = "events of another process",
      [TAPE_UNEXPECTED_NO_COMMUNICATOR] = "events without a communicator",
      [TAPE_UNEXPECTED_UNKNOWN_EVENT] = "calls for unknown events",
      [TAPE_UNEXPECTED_STOPPED_TWICE] = "stops that came twice",
      [TAPE_UNEXPECTED_LATE] = "calls that came late",
      [TAPE_UNEXPECTED_AFTER_STOP] = "states after the stop",
      [TAPE_UNEXPECTED_NEVER_STOPPED] = "events never stopped",
      [TAPE_UNEXPECTED_NO_ROOM] = "events without room",
      [TAPE_UNEXPECTED_NOT_WRITTEN] = "operations not written",
      [TAPE_UNEXPECTED_OVERRULED] = "times that the mask was another's",
  };
  char text[512];
  size_t used = 0;
  for (size_t i = 0; i < TAPE_UNEXPECTED_KINDS && used < sizeof text; i++) {
    const uint64_t n = atomic_load_explicit(&profiler_counts[i], memory_order_relaxed);
    if (n != 0) {
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 " %s", used > 0 ? ", " : "", n, says[i]);
    }
  }
  if (used > 0 && nccl_log != NULL) {
    enum { INFO = 3, INIT = 1 };
    nccl_log(INFO, INIT, "profiler.c", __LINE__, "Carillon's profiler plug-in: %s", text);
  }
}

static int finalize(void *context) {
  pthread_mutex_lock(&lock);
  struct comm *c = comm_of((uintptr_t)context);
  if (c == NULL) {
    profiler_count(TAPE_UNEXPECTED_NO_COMMUNICATOR);
  } else {
    atomic_fetch_add_explicit(&c->generation, 1, memory_order_acq_rel);
    profiler_next_finalize(&c->beside);
    c->depth.asked = false;
    depth_close(&c->depth);
    if (c->taped) {
      profiler_tape_close(&c->tape);
    }
    slot_reclaim((uintptr_t)context);
    set_mask(c->mask);
    if (--alive == 0) {
      report();
    }
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

/* The entry points of each version. */

#define START(V)                                                                                        \
  static int start_v##V(void *context, void **handle, const struct profiler_descr_v##V *descr) {        \
    struct profiler_event e;                                                                            \
    if (unread(context)) {                                                                              \
      *handle = NULL;                                                                                   \
      return 0;                                                                                         \
    }                                                                                                   \
    profiler_read_v##V(&e, descr);                                                                      \
    return start(V, context, handle, &e, descr);                                                        \
  }

#define EARLY(V)                                                                                        \
  static int init_v##V(void **context, int *mask) {                                                     \
    return init(V, context, mask, &(struct profiler_made){.size = -1, .rank = -1});                     \
  }                                                                                                     \
  START(V)

#define LATER(V)                                                                                        \
  static int init_v##V(void **context, uint64_t hash, int *mask, const char *name, int nodes, int size, \
                       int rank, profiler_log log) {                                                    \
    return init(V, context, mask, &(struct profiler_made){hash, name, nodes, size, rank, log});         \
  }                                                                                                     \
  START(V)

#define PLUGIN(V)                                                                                       \
  extern const struct profiler_v##V ncclProfiler_v##V;                                                  \
  __attribute__((visibility("default"))) const struct profiler_v##V ncclProfiler_v##V = {               \
      "Carillon", init_v##V, start_v##V, stop, state, finalize}

EARLY(1)
EARLY(2)
EARLY(3)

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int size, int rank,
                   profiler_log log) {
  return init(4, context, mask, &(struct profiler_made){hash, name, nodes, size, rank, log});
}
START(4)

LATER(5)
LATER(6)
LATER(7)

PLUGIN(1);
PLUGIN(2);
PLUGIN(3);
PLUGIN(4);
PLUGIN(5);
PLUGIN(6);
PLUGIN(7);
