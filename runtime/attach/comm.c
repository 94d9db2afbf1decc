//go:build ignore

#include "comm.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 1024 /* a power of two */
#define WINDOW 32   /* a communicator is in one of WINDOW places, counted from the one that its address selects */

pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(struct comm *) places[PLACES]; /* a place that was taken once is never empty again */
static struct comm *unused;                   /* by next, under the lock */

static _Atomic(struct comm *) *place(ncclComm_t handle, size_t i) {
  const uint64_t spread = (uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15u;
  return &places[((spread >> 40) + i) & (PLACES - 1)];
}

struct comm *comm_find(ncclComm_t handle) {
  for (size_t i = 0; i < WINDOW && handle != NULL; i++) {
    struct comm *comm = atomic_load_explicit(place(handle, i), memory_order_acquire);
    if (comm == NULL) {
      return NULL;
    }
    if (atomic_load_explicit(&comm->handle, memory_order_relaxed) == handle) {
      return comm;
    }
  }
  return NULL;
}

struct comm *comm_new(void) {
  pthread_mutex_lock(&comm_lock);
  struct comm *comm = unused;
  if (comm != NULL) {
    unused = comm->next;
  }
  pthread_mutex_unlock(&comm_lock);
  uint32_t generation = 0;
  if (comm != NULL) {
    generation = atomic_load_explicit(&comm->generation, memory_order_relaxed);
  } else if ((comm = aligned_alloc(_Alignof(struct comm), sizeof *comm)) == NULL) {
    return NULL;
  }
  memset(comm, 0, sizeof *comm);
  atomic_store_explicit(&comm->generation, generation + 1, memory_order_relaxed);
  comm->rank = comm->info.rank = -1;
  return comm;
}

void comm_drop(struct comm *comm) {
  /* A thread that takes the turn reads the handle after that; this thread clears the handle and then reads the turn. So
     at least one of them sees the other. */
  atomic_store(&comm->handle, NULL);
  atomic_fetch_add(&comm->generation, 1);
  if (atomic_load(&comm->turn) != 0) {
    return; /* the struct is leaked */
  }
  ops_forget(&comm->ops);
  for (struct open_act *next; comm->going != NULL; comm->going = next) {
    next = comm->going->next;
    free(comm->going);
  }
  tape_comm_free(comm->tape);
  comm->tape = NULL;
  free(comm->messages);
  comm->messages = NULL;
  comm->next = unused;
  unused = comm;
}

static bool gone(struct comm *comm) {
  const carillon_state_t state = atomic_load_explicit(&comm->state, memory_order_relaxed);
  return state == CARILLON_STATE_DESTROYED || state == CARILLON_STATE_ABORTED;
}

bool comm_place(struct comm *comm, ncclComm_t handle) {
  _Atomic(struct comm *) *best = NULL;
  struct comm *there = NULL;
  for (size_t i = 0; i < WINDOW; i++) {
    _Atomic(struct comm *) *at = place(handle, i);
    struct comm *c = atomic_load_explicit(at, memory_order_relaxed);
    if (c == NULL || atomic_load_explicit(&c->handle, memory_order_relaxed) == handle) {
      best = at;
      there = c;
      break;
    }
    if (gone(c) && (best == NULL || c->ended < there->ended)) {
      best = at;
      there = c;
    }
  }
  if (best == NULL) {
    comm_drop(comm);
    return false;
  }
  atomic_store_explicit(&comm->handle, handle, memory_order_relaxed);
  atomic_store_explicit(best, comm, memory_order_release);
  if (there != NULL) {
    comm_drop(there);
  }
  return true;
}

void comm_count_messages(struct comm *comm) {
  if (comm->messages == NULL && comm->size > 0) {
    comm->messages = calloc((size_t)comm->size * 2, sizeof *comm->messages);
    comm->size_known = comm->messages != NULL ? (uint32_t)comm->size : 0;
  }
}

void comm_each(void (*call)(struct comm *)) {
  for (size_t i = 0; i < PLACES; i++) {
    struct comm *comm = atomic_load_explicit(&places[i], memory_order_relaxed);
    if (comm != NULL) {
      call(comm);
    }
  }
}

/* FNV-1a, twice with different initial values, each mixed as SplitMix64 does. */
static void hash(uint8_t id[16], const void *data, size_t size) {
  for (int half = 0; half < 2; half++) {
    uint64_t h = 0xCBF29CE484222325u + (uint64_t)half * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < size; i++) {
      h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001B3u;
    }
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    memcpy(id + 8 * half, &h, sizeof h);
  }
}

void comm_root_id(uint8_t id[16], const ncclUniqueId *unique) {
  hash(id, unique, unique != NULL ? sizeof *unique : 0);
}

void comm_child_id(uint8_t id[16], const uint8_t parent[16], uint32_t number, int color) {
  uint8_t all[24];
  memcpy(all, parent, 16);
  memcpy(all + 16, &number, sizeof number);
  memcpy(all + 20, &color, sizeof color);
  hash(id, all, sizeof all);
}

void comm_hash_id(uint8_t id[16], uint64_t number) { hash(id, &number, sizeof number); }
