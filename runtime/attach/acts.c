//go:build ignore

#include "acts.h"

#include <stdio.h>
#include <string.h>

#include "resolve.h"
#include "stream.h"

static atomic_bool started;

/* Everything begins with the first communicator that is made: the tape, the guards. */
static void start(void) {
  const int version = real_version();
  if (version < 21800) {
    if (version != 0) {
      fprintf(stderr, "carillon: NCCL " VERSION " is older than 2.18; its calls pass through unseen\n",
              DOTTED(version));
    }
    thread_step_aside();
    return;
  }
  if (version > NCCL_NEWEST_KNOWN) {
    fprintf(stderr,
            "carillon: NCCL " VERSION " is newer than " VERSION "; what it has since then passes through unseen\n",
            DOTTED(version), DOTTED(NCCL_NEWEST_KNOWN));
  }
  guard_configure();
  tape_open();
  atomic_store(&started, true);
}

/* It runs when the process exits, before the tape is closed. */
__attribute__((destructor)) static void leaks(void) {
  if (atomic_load(&started) && thread_self() != NULL) {
    pthread_mutex_lock(&comm_lock);
    comm_each(guard_leak);
    pthread_mutex_unlock(&comm_lock);
  }
}

uint8_t acts_of(carillon_call_t call) {
  static const uint8_t acts[CARILLON_NUM_CALLS] = {
      [CARILLON_CALL_INIT_RANK] = TAPE_ACT_INIT,
      [CARILLON_CALL_INIT_RANK_CONFIG] = TAPE_ACT_INIT,
      [CARILLON_CALL_INIT_RANK_SCALABLE] = TAPE_ACT_INIT,
      [CARILLON_CALL_INIT_ALL] = TAPE_ACT_INIT,
      [CARILLON_CALL_SPLIT] = TAPE_ACT_SPLIT,
      [CARILLON_CALL_SHRINK] = TAPE_ACT_SHRINK,
      [CARILLON_CALL_GROW] = TAPE_ACT_GROW,
      [CARILLON_CALL_REVOKE] = TAPE_ACT_REVOKE,
      [CARILLON_CALL_FINALIZE] = TAPE_ACT_FINALIZE,
      [CARILLON_CALL_DESTROY] = TAPE_ACT_DESTROY,
      [CARILLON_CALL_ABORT] = TAPE_ACT_ABORT,
      [CARILLON_CALL_GROUP_START] = TAPE_ACT_GROUP,
      [CARILLON_CALL_GROUP_END] = TAPE_ACT_GROUP,
  };
  return acts[call];
}

static carillon_state_t state_of(struct comm *comm) { return atomic_load(&comm->state); }

static void happen(struct comm *comm, carillon_event_t event) {
  carillon_state_t state = state_of(comm);
  while (!atomic_compare_exchange_weak(&comm->state, &state, carillon_lifecycle_after(state, event))) {
  }
  tape_comm_state(comm->tape, state_of(comm));
}

/* What NCCL says of an answer, for people; NULL if all is well. */
static const char *says(ncclResult_t answer, char *text, size_t size) {
  if (answer == ncclSuccess || answer == ncclInProgress) {
    return NULL;
  }
  snprintf(text, size, "NCCL answered: %s; its last error was: %s", REAL(ncclGetErrorString)(answer),
           REAL(ncclGetLastError)(NULL));
  return text;
}

/* Writes the end of an act that was started, as NCCL answered. */
static void end_life(struct comm *comm, struct tape_life life, ncclResult_t answer, carillon_code_t code) {
  char text[1024];
  life.stage = TAPE_STAGE_END;
  life.time = 0;
  life.phase = TAPE_PHASE_NONE;
  life.state = state_of(comm);
  life.code = code;
  life.text = says(answer, text, sizeof text);
  life.shared = atomic_load_explicit(&comm->shared, memory_order_relaxed);
  tape_comm_state(comm->tape, life.state);
  tape_life(comm->tape, &life);
}

/* Ends the act that was in progress, if there is one. The caller has comm_lock. */
static void end_going(struct comm *comm, ncclResult_t answer, carillon_code_t code) {
  if (comm->going.act != TAPE_ACT_NONE) {
    struct site_words words;
    comm->going.site = *site_tell(&comm->going_site, &words);
    end_life(comm, comm->going, answer, code);
    comm->going = (struct tape_life){0};
  }
}

static void go(struct comm *comm, const struct tape_life *life, const struct site *site) {
  comm->going = *life;
  comm->going.text = NULL;
  comm->going.site = (struct tape_site){0};
  comm->going_site = *site;
}

static void start_life(struct act *act, struct comm *comm, const struct site *site, uint64_t seq) {
  act->life = (struct tape_life){
      .act = acts_of(act->use.call),
      .call = act->use.call,
      .stage = TAPE_STAGE_START,
      .state = state_of(comm),
      .peer = -1,
      .seq = seq,
      .start = tape_now(),
      .site = *site_tell(site, &act->words),
      .shared = atomic_load_explicit(&comm->shared, memory_order_relaxed),
  };
  act->life.time = act->life.start;
  tape_comm_state(comm->tape, act->life.state);
}

bool act_begin(struct act *act, ncclComm_t handle, carillon_call_t call, const char *name, const void *caller) {
  act->born = NULL;
  if (!use_begin(&act->use, handle, call, name, caller)) {
    return false;
  }
  struct comm *comm = act->use.comm;
  if (comm == NULL) {
    return true;
  }
  const bool derives = call == CARILLON_CALL_SPLIT || call == CARILLON_CALL_SHRINK || call == CARILLON_CALL_GROW;
  start_life(act, comm, &act->use.site, derives ? ++comm->derived : 0);
  if (!derives) {
    tape_life(comm->tape, &act->life);
  }
  return true;
}

/* What a configuration that is long enough says of the name. */
static void name_from(struct tape_info *info, const ncclConfig_t *config) {
  if (config != NULL && config->size >= offsetof(ncclConfig_t, commName) + sizeof config->commName &&
      config->commName != NULL) {
    snprintf(info->name, sizeof info->name, "%s", config->commName);
  }
}

static void engine_of(struct tape_info *info) {
  char engine[48]; /* longer than any, for the compiler */
  snprintf(engine, sizeof engine, "nccl " VERSION, DOTTED(real_version()));
  memcpy(info->engine, engine, sizeof info->engine - 1);
}

void act_make(struct act *act, carillon_call_t call, const void *caller) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  act->born = NULL;
  act->use = (struct use){.call = call, .thread = thread_self()};
  if (act->use.thread == NULL || act->use.thread->inside) {
    act->use.thread = NULL;
    return;
  }
  pthread_once(&once, start);
  if ((act->use.thread = thread_self()) != NULL) {
    act->use.site = site_now(caller, act->use.thread->id);
    act->use.thread->inside = true;
  }
}

static struct comm *new_born(struct act *act, ncclComm_t *out, const uint8_t id[16], const ncclConfig_t *config) {
  struct comm *comm = comm_new();
  if (comm != NULL) {
    memcpy(comm->info.id, id, sizeof comm->info.id);
    name_from(&comm->info, config);
    engine_of(&comm->info);
    comm->call = act->use.call;
    comm->made = act->use.site;
    comm->maker = act->use.thread->id;
    comm->out = out;
    atomic_store(&comm->state, CARILLON_STATE_INITIALIZING);
    comm->next = act->born;
    act->born = comm;
  }
  return comm;
}

void act_root(struct act *act, ncclComm_t *out, int32_t size, int32_t rank, const uint8_t id[16],
              const ncclConfig_t *config) {
  struct comm *comm;
  if (act->use.thread == NULL || (comm = new_born(act, out, id, config)) == NULL) {
    return;
  }
  comm->rank = comm->info.rank = rank;
  comm->size = comm->info.size = size;
  ops_expect(&comm->ops, rank, size);
  comm->tape = tape_comm_new(&comm->info, NULL);
  start_life(act, comm, &act->use.site, 0);
  act->life.act = TAPE_ACT_INIT;
  tape_life(comm->tape, &act->life);
  go(comm, &act->life, &act->use.site);
}

void act_child(struct act *act, ncclComm_t *out, int color, const ncclUniqueId *unique, const ncclConfig_t *config) {
  struct comm *parent = act->use.comm;
  if (parent == NULL) {
    return;
  }
  uint8_t id[16] = {0};
  if (unique != NULL) {
    comm_root_id(id, unique);
  } else {
    comm_child_id(id, parent->info.id, parent->derived, color);
  }
  const bool member = act->use.call != CARILLON_CALL_SPLIT || color >= 0;
  struct comm *comm = member ? new_born(act, out, id, config) : NULL;
  if (comm != NULL) {
    ops_expect(&comm->ops, -1, -1);
    comm->parent = comm->origin = parent;
    memcpy(comm->info.parent, parent->info.id, sizeof comm->info.parent);
    memcpy(act->life.child, id, sizeof act->life.child);
    go(comm, &act->life, &act->use.site); /* it is its init, too */
    comm->going.act = TAPE_ACT_INIT;
    comm->going.seq = 0;
    memset(comm->going.child, 0, sizeof comm->going.child);
  }
  tape_life(parent->tape, &act->life);
  if (act->use.drained) {
    act->life.stage = TAPE_STAGE_PHASE;
    act->life.phase = TAPE_PHASE_QUEUED;
    act->life.time = 0;
    act->life.text = "the communicator's unfinished group job was completed first: this version of NCCL takes it up at "
                     "the wrong time (NVIDIA/nccl#1605; guard split_drain)";
    tape_life(parent->tape, &act->life);
    act->life.text = NULL;
  }
}

/* Learns what is known of one that is ready: which rank it is, on how many hosts. The caller has comm_lock. */
static void learn(struct comm *comm, struct thread *thread) {
  int rank = comm->rank, size = comm->size;
  if (rank < 0) {
    thread->inside = true;
    if (REAL(ncclCommUserRank)(comm->handle, &rank) != ncclSuccess ||
        REAL(ncclCommCount)(comm->handle, &size) != ncclSuccess) {
      rank = -1;
    }
    thread->inside = false;
  }
  const int32_t nodes = atomic_load(&comm->ops.nodes); /* the profiler plug-in was told, if there is one */
  if (rank != comm->rank || nodes != 0) {
    comm->rank = comm->info.rank = rank;
    comm->size = comm->info.size = size;
    comm->info.nodes = nodes;
    tape_comm_describe(comm->tape, &comm->info);
  }
  comm_count_messages(comm);
}

/* One that NCCL was asked for, once it has answered. The caller has comm_lock. */
static void settle(struct comm *comm, struct thread *thread, ncclResult_t answer) {
  if (answer == ncclInProgress && comm->parent != NULL) { /* NCCL fills it in when the parent is done, not before */
    comm->next = comm->parent->children;
    comm->parent->children = comm;
    return;
  }
  const ncclComm_t handle = answer == ncclSuccess || answer == ncclInProgress ? *comm->out : NULL;
  if (handle == NULL) {
    happen(comm, CARILLON_EVENT_INIT_FAILED);
    end_going(comm, answer, guard_code(answer));
    comm_drop(comm);
    return;
  }
  if (comm->origin != NULL && comm->tape == NULL) {
    comm->tape = tape_comm_new(&comm->info, comm->origin->tape);
    struct site_words words;
    struct tape_life life = comm->going;
    life.site = *site_tell(&comm->going_site, &words);
    life.state = state_of(comm);
    tape_life(comm->tape, &life);
  }
  comm->parent = NULL;
  comm->out = NULL;
  if (!comm_place(comm, handle)) {
    return;
  }
  if (answer == ncclInProgress) {
    acts_pending(comm, thread);
  } else {
    learn(comm, thread);
    happen(comm, CARILLON_EVENT_INIT_DONE);
    end_going(comm, ncclSuccess, CARILLON_CODE_OK);
  }
}

/* What a group, or a call outside of one, makes. The caller has comm_lock. */
static void settle_all(struct comm *born, struct thread *thread, ncclResult_t answer) {
  while (born != NULL) {
    struct comm *next = born->next;
    settle(born, thread, answer);
    born = next;
  }
}

/* Has the act's communicators made: now, or at the end of the group. */
static void bear(struct act *act, ncclResult_t answer) {
  struct thread *thread = act->use.thread;
  if (act->born == NULL) {
    return;
  }
  if (thread->depth > 0 && answer == ncclSuccess) {
    struct comm *last = act->born;
    while (last->next != NULL) {
      last = last->next;
    }
    last->next = thread->born;
    thread->born = act->born;
    return;
  }
  pthread_mutex_lock(&comm_lock);
  settle_all(act->born, thread, answer);
  pthread_mutex_unlock(&comm_lock);
}

void acts_close(struct comm *comm, const struct thread *thread) {
  uint64_t turn;
  atomic_store(&comm->closing, true);
  if (comm_take(comm, thread->id, &turn)) {
    stream_close(comm);
    tape_comm_close(comm->tape);
    comm_give(comm, turn);
  }
}

/* What has ended is remembered with the moment. The caller has comm_lock. */
static void gone(struct comm *comm, carillon_state_t state) {
  static uint64_t ends;
  comm->ended = ++ends;
  ops_forget(&comm->ops);
  atomic_store(&comm->pending, false);
  atomic_store(&comm->closing, true);
  for (struct comm *child = comm->children, *next; child != NULL; child = next) {
    next = child->next;
    comm_drop(child);
  }
  comm->children = NULL;
  atomic_store(&comm->state, state);
}

/* The state that follows from NCCL's answer to an act on a communicator. The caller has comm_lock. */
static void follow(struct act *act, ncclResult_t answer) {
  struct comm *comm = act->use.comm;
  carillon_state_t now = state_of(comm);
  if (answer == ncclInvalidArgument || answer == ncclInvalidUsage) { /* NCCL did nothing */
    atomic_compare_exchange_strong(&comm->state, &now, act->use.before);
  } else if (act->use.call == CARILLON_CALL_FINALIZE && answer == ncclSuccess) {
    happen(comm, CARILLON_EVENT_FINALIZE_DONE);
  } else if (act->use.call == CARILLON_CALL_DESTROY) {
    end_going(comm, ncclSuccess, CARILLON_CODE_DESTROYED);
    gone(comm, CARILLON_STATE_DESTROYED);
  } else if (act->use.call == CARILLON_CALL_ABORT) {
    end_going(comm, ncclSuccess, CARILLON_CODE_ABORTED);
    gone(comm, CARILLON_STATE_ABORTED);
  }
}

ncclResult_t act_end(struct act *act, ncclResult_t answer) {
  struct comm *comm = act->use.comm;
  const bool ends = act->use.call == CARILLON_CALL_DESTROY || act->use.call == CARILLON_CALL_ABORT;
  if (act->use.thread == NULL) {
    return answer;
  }
  act->use.thread->inside = false;
  bear(act, answer);
  if (comm == NULL) {
    return answer;
  }
  pthread_mutex_lock(&comm_lock);
  follow(act, answer);
  if (answer == ncclInProgress && !ends) {
    end_going(comm, ncclSuccess, CARILLON_CODE_OK); /* there is at most one: a finalize waits for an operation's end */
    go(comm, &act->life, &act->use.site);
  } else {
    end_life(comm, act->life, answer, ends && answer == ncclInProgress ? CARILLON_CODE_OK : guard_code(answer));
  }
  pthread_mutex_unlock(&comm_lock);
  return use_end(&act->use, answer);
}

void acts_pending(struct comm *comm, const struct thread *thread) {
  atomic_store_explicit(&comm->job, thread->id, memory_order_relaxed);
  atomic_store_explicit(&comm->pending, true, memory_order_release);
}

/* NCCL found that a communicator is broken. The caller has comm_lock. */
static void fail(struct comm *comm, ncclResult_t answer) {
  const carillon_state_t before = state_of(comm);
  const bool init = before == CARILLON_STATE_INITIALIZING;
  happen(comm, init ? CARILLON_EVENT_INIT_FAILED : CARILLON_EVENT_ASYNC_FAILURE);
  end_going(comm, answer, guard_code(answer));
  if (state_of(comm) != before && !init) {
    end_life(comm, (struct tape_life){.call = CARILLON_CALL_ASYNC_ERROR, .peer = -1}, answer, guard_code(answer));
  }
}

void acts_progress(struct comm *comm, struct thread *thread, ncclResult_t state) {
  if (state == ncclInProgress) {
    atomic_store_explicit(&comm->pending, true, memory_order_release);
    return;
  }
  const bool was = atomic_load_explicit(&comm->pending, memory_order_acquire);
  uint64_t turn;
  if (state == ncclSuccess && comm_take(comm, thread->id | COMM_BRIEF, &turn)) { /* any thread asks, at any time */
    stream_launched(comm, state);
    stream_check(comm);
    comm_give(comm, turn);
  }
  if (state == ncclSuccess && !was) {
    return;
  }
  pthread_mutex_lock(&comm_lock);
  if (atomic_exchange(&comm->pending, false) && state == ncclSuccess) {
    const carillon_state_t before = state_of(comm);
    if (before == CARILLON_STATE_INITIALIZING) {
      learn(comm, thread);
    }
    happen(comm, before == CARILLON_STATE_INITIALIZING ? CARILLON_EVENT_INIT_DONE
                 : before == CARILLON_STATE_FINALIZING ? CARILLON_EVENT_FINALIZE_DONE
                                                       : CARILLON_EVENT_NONE);
    end_going(comm, ncclSuccess, CARILLON_CODE_OK);
  } else if (state != ncclSuccess) {
    fail(comm, state);
  }
  struct comm *children = comm->children;
  comm->children = NULL;
  for (struct comm *child = children; child != NULL; child = child->next) {
    child->parent = NULL; /* it has its own progress now */
  }
  settle_all(children, thread, state == ncclSuccess ? ncclInProgress : state);
  pthread_mutex_unlock(&comm_lock);
}

bool acts_join(struct use *u, ncclResult_t answer) {
  struct thread *thread = u->thread;
  if (thread->depth == 0 || answer != ncclSuccess) {
    return false;
  }
  uint32_t i = 0;
  while (i < thread->joined && thread->join[i].comm != u->comm) {
    i++;
  }
  if (i == GROUP_COMMS) {
    return false;
  }
  if (i == thread->joined) {
    thread->joined++;
    thread->join[i].comm = u->comm;
    thread->join[i].generation = atomic_load(&u->comm->generation);
    thread->join[i].first = thread->join[i].last = 0;
    thread->join[i].operations = 0;
  }
  thread->join[i].operations++;
  if (u->launched != 0) {
    thread->join[i].last = u->launched;
    thread->join[i].stream = u->stream;
    thread->join[i].first = thread->join[i].first != 0 ? thread->join[i].first : u->launched;
  }
  atomic_fetch_add(&u->comm->grouped, 1);
  return true;
}

void acts_group_ends(struct thread *thread, bool launched) {
  for (uint32_t i = 0; i < thread->joined; i++) {
    struct comm *comm = thread->join[i].comm;
    if (comm_take(comm, thread->id, &thread->join[i].turn) && launched && thread->join[i].first != 0 &&
        atomic_load(&comm->generation) == thread->join[i].generation) {
      stream_launches(comm, thread->join[i].first, thread->join[i].stream);
    }
  }
  thread->inside = true;
}

/* A group's part on one communicator is an act where it did not end at once, and well. */
static void group_act(struct comm *comm, uint32_t operations, const struct site *site, int64_t start,
                      ncclResult_t answer) {
  struct site_words words;
  struct tape_life life = {
      .time = start,
      .act = TAPE_ACT_GROUP,
      .call = CARILLON_CALL_GROUP_END,
      .stage = TAPE_STAGE_START,
      .state = state_of(comm),
      .peer = -1,
      .start = start,
      .ops = operations,
      .site = *site_tell(site, &words),
  };
  pthread_mutex_lock(&comm_lock);
  life.seq = ++comm->groups;
  tape_life(comm->tape, &life);
  if (answer == ncclInProgress) {
    end_going(comm, ncclSuccess, CARILLON_CODE_OK);
    go(comm, &life, site);
  } else {
    end_life(comm, life, answer, guard_code(answer));
  }
  pthread_mutex_unlock(&comm_lock);
}

void acts_group_ended(struct thread *thread, const void *caller, int64_t start, bool launched, ncclResult_t answer) {
  thread->inside = false;
  thread->depth = 0;
  const bool well = answer == ncclSuccess || answer == ncclInProgress;
  const carillon_code_t code = !launched ? CARILLON_CODE_CANCELED : well ? CARILLON_CODE_OK : guard_code(answer);
  const struct site site = site_now(caller, thread->id);
  for (uint32_t i = 0; i < thread->joined; i++) {
    struct comm *comm = thread->join[i].comm;
    if (atomic_load(&comm->generation) != thread->join[i].generation) { /* aborted meanwhile, and another one since */
      comm_give(comm, thread->join[i].turn);
      continue;
    }
    atomic_fetch_sub(&comm->grouped, thread->join[i].operations);
    if (thread->join[i].turn != 0 && thread->join[i].first != 0) {
      for (uint64_t n = thread->join[i].first; n <= thread->join[i].last; n++) {
        tape_op_end(comm->tape, n, code);
      }
      stream_launched(comm, answer);
    }
    if (answer == ncclInProgress) {
      acts_pending(comm, thread);
    }
    if (answer != ncclSuccess) {
      group_act(comm, thread->join[i].operations, &site, start, answer);
    }
    comm_give(comm, thread->join[i].turn);
    if (atomic_load(&comm->closing)) {
      acts_close(comm, thread);
    }
  }
  thread->joined = 0;
  if (thread->born != NULL) {
    struct comm *born = thread->born;
    thread->born = NULL;
    pthread_mutex_lock(&comm_lock);
    for (struct comm *child = born; child != NULL; child = child->next) {
      if (child->parent != NULL && answer == ncclInProgress) {
        acts_pending(child->parent, thread);
      }
    }
    settle_all(born, thread, answer);
    pthread_mutex_unlock(&comm_lock);
  }
}
