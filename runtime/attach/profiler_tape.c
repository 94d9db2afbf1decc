//go:build ignore

#include "profiler_tape.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lifecycle/carillon_lifecycle.h"

/* How often to try for the turn before an operation is given up. A holder keeps the turn for some hundred ns. */
enum { PATIENCE = 100000 };

/* The number of peers whose messages are counted if NCCL doesn't tell the number of ranks. */
enum { UNKNOWN_PEERS = 4096 };

static bool take(struct profiler_tape *t) {
  for (int i = 0; i < PATIENCE; i++) {
    if (!atomic_flag_test_and_set_explicit(&t->turn, memory_order_acquire)) {
      return true;
    }
    if (i > 100) {
      sched_yield();
    }
  }
  profiler_count(TAPE_UNEXPECTED_NOT_WRITTEN);
  return false;
}

static void give(struct profiler_tape *t) { atomic_flag_clear_explicit(&t->turn, memory_order_release); }

/* Derives the 16 bytes of the communicator's id from NCCL's hash of 8 bytes, by which all ranks know it. */
static void identify(struct profiler_tape *t, uint64_t hash, const char *name) {
  uint64_t mixed = (hash ^ hash >> 31) * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 29;
  memcpy(t->info.id, &hash, sizeof hash);
  memcpy(t->info.id + sizeof hash, &mixed, sizeof mixed);
  snprintf(t->info.name, sizeof t->info.name, "%s", name != NULL && *name != '\0' ? name : "nccl");
}

static void begin(struct profiler_tape *t) {
  if (tape_open()) {
    t->comm = tape_comm_new(&t->info, NULL);
    tape_comm_state(t->comm, CARILLON_STATE_READY);
  }
}

void profiler_tape_open(struct profiler_tape *t, int version, const struct profiler_made *made) {
  while (!take(t)) {
  }
  t->open = true;
  t->comm = NULL;
  t->info = (struct tape_info){.rank = made->rank, .size = made->size, .nodes = made->nodes, .engine = "nccl"};
  t->launched = t->ended = t->collectives = 0;
  atomic_store_explicit(&t->lost, false, memory_order_relaxed);
  t->peers = made->size > 0 ? made->size : UNKNOWN_PEERS;
  t->messages = calloc((size_t)t->peers, sizeof *t->messages);
  if (version >= 4) {
    identify(t, made->hash, made->name);
    begin(t);
  }
  give(t);
}

static void end_through(struct profiler_tape *t, uint64_t operation) {
  while (t->ended < operation) {
    tape_op_end(t->comm, ++t->ended, CARILLON_CODE_OK);
  }
}

void profiler_tape_close(struct profiler_tape *t) {
  while (!take(t)) {
  }
  if (t->open) {
    end_through(t, t->launched);
    tape_comm_state(t->comm, CARILLON_STATE_DESTROYED);
    tape_comm_free(t->comm);
    free(t->messages);
    t->messages = NULL;
    t->comm = NULL;
    t->open = false;
  }
  give(t);
}

bool profiler_tape_begins(int version, uint64_t type) {
  return type == PROFILER_P2P || type == (version >= 5 ? PROFILER_COLL_API : PROFILER_COLL);
}

/* NCCL's names of the functions, the most frequent ones first. */
static const struct function {
  const char *name;
  uint8_t call;
  bool rooted; /* it has a root or a peer */
  bool parts;  /* the count is that of one rank's part */
} functions[] = {
    {"AllReduce", CARILLON_CALL_ALL_REDUCE, false, false},
    {"AllGather", CARILLON_CALL_ALL_GATHER, false, true},
    {"ReduceScatter", CARILLON_CALL_REDUCE_SCATTER, false, true},
    {"Send", CARILLON_CALL_SEND, true, false},
    {"Recv", CARILLON_CALL_RECV, true, false},
    {"Broadcast", CARILLON_CALL_BROADCAST, true, false},
    {"AlltoAll", CARILLON_CALL_ALL_TO_ALL, false, true},
    {"Reduce", CARILLON_CALL_REDUCE, true, false},
    {"Gather", CARILLON_CALL_GATHER, true, true},
    {"Scatter", CARILLON_CALL_SCATTER, true, true},
    {"SendRecv", CARILLON_CALL_SEND_RECV, false, false},
};

static const struct function *function_of(const char *name) {
  for (size_t i = 0; name != NULL && i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(name, functions[i].name) == 0) {
      return &functions[i];
    }
  }
  return NULL;
}

/* The data type of that name. Unknown names give uint8, the one type that NCCL has no name for. */
static uint8_t data_type_of(const char *name) {
  for (uint8_t i = 0; name != NULL && i < sizeof profiler_datatype_names / sizeof *profiler_datatype_names; i++) {
    if (strcmp(name, profiler_datatype_names[i]) == 0) {
      return i;
    }
  }
  return 1;
}

static uint64_t size_of(uint8_t data_type) {
  static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[data_type];
}

/* The fields of an event that describe its operation. */
struct call {
  const char *func, *datatype;
  uint64_t count;
  int32_t peer;
};

static struct call call_of(const struct profiler_event *e) {
  switch (e->type) {
  case PROFILER_COLL_API:
    return (struct call){e->collApi.func, e->collApi.datatype, e->collApi.count, e->collApi.root};
  case PROFILER_COLL:
    return (struct call){e->coll.func, e->coll.datatype, e->coll.count, e->coll.root};
  default:
    return (struct call){e->p2p.func, e->p2p.datatype, e->p2p.count, e->p2p.peer};
  }
}

/* The number by which the ranks know an operation; 0 if they have none. */
static uint64_t number(struct profiler_tape *t, const struct tape_signature *s) {
  if (s->call != CARILLON_CALL_SEND && s->call != CARILLON_CALL_RECV) {
    return ++t->collectives;
  }
  return t->messages != NULL && s->peer >= 0 && s->peer < t->peers
             ? ++t->messages[s->peer][s->call == CARILLON_CALL_RECV]
             : 0;
}

/* The caller has the turn. */
static void uncount_lost(struct profiler_tape *t) {
  if (t->open && atomic_exchange_explicit(&t->lost, false, memory_order_relaxed)) {
    tape_uncount(t->comm);
  }
}

void profiler_tape_lost(struct profiler_tape *t) {
  atomic_store_explicit(&t->lost, true, memory_order_relaxed);
  if (!atomic_flag_test_and_set_explicit(&t->turn, memory_order_acquire)) { /* else the next operation does it */
    uncount_lost(t);
    give(t);
  }
}

uint64_t profiler_tape_start(struct profiler_tape *t, const struct profiler_event *e) {
  const struct call c = call_of(e);
  const struct function *f = function_of(c.func);
  if (f == NULL) {
    return 0;
  }
  if (!take(t)) {
    profiler_tape_lost(t);
    return 0;
  }
  if (atomic_load_explicit(&t->lost, memory_order_relaxed)) {
    uncount_lost(t);
  }
  if (t->open && t->info.size <= 0 && t->comm == NULL) { /* up to version 3, tasks are the first events to name the
                                                            communicator */
    const bool coll = e->type == PROFILER_COLL;
    t->info.rank = e->rank;
    identify(t, coll ? e->coll.commHash : e->p2p.commHash, coll ? e->coll.name : e->p2p.name);
    begin(t);
  }
  uint64_t launched = 0;
  if (t->comm != NULL) {
    struct tape_signature s = {
        .call = f->call, .data_type = data_type_of(c.datatype), .peer = f->rooted ? c.peer : -1,
    };
    s.bytes = c.count * size_of(s.data_type);
    if (f->parts && t->info.size > 0) {
      s.bytes *= (uint64_t)t->info.size;
    }
    launched = tape_op_start(t->comm, number(t, &s), &s, 0);
    if (launched != 0) {
      t->launched = launched;
      if (e->type == PROFILER_COLL_API && e->collApi.graphCaptured) {
        tape_captured(t->comm, launched);
      }
    }
  }
  give(t);
  return launched;
}

bool profiler_tape_look(struct profiler_tape *t, uint64_t operation, struct tape_look *look) {
  if (!take(t)) {
    return false;
  }
  const bool is = t->open && t->comm != NULL && t->launched == operation && tape_look_at_last(t->comm, look);
  give(t);
  return is;
}

void profiler_tape_end(struct profiler_tape *t, uint64_t operation) {
  if (take(t)) {
    end_through(t, operation == 0 || operation > t->launched ? t->launched : operation);
    give(t);
  }
}
