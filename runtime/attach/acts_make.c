//go:build ignore

#include "acts_life.h"

#include <stdio.h>
#include <string.h>

#include "resolve.h"

static atomic_bool started;

/* Starts the tape and the guards, with the first communicator that is made. */
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

/* Runs when the process exits, before the tape is closed. */
__attribute__((destructor)) static void leaks(void) {
  if (atomic_load(&started) && thread_self() != NULL) {
    pthread_mutex_lock(&comm_lock);
    comm_each(guard_leak);
    pthread_mutex_unlock(&comm_lock);
  }
}

/* Takes the name from a configuration, if it is long enough and has the magic without which NCCL refuses it. */
static void name_from(struct tape_info *info, const ncclConfig_t *config) {
  if (config != NULL && config->size >= offsetof(ncclConfig_t, commName) + sizeof config->commName &&
      config->magic == NCCL_CONFIG_MAGIC && config->commName != NULL) {
    snprintf(info->name, sizeof info->name, "%s", config->commName);
  }
}

static void engine_of(struct tape_info *info) {
  char engine[48]; /* longer than any name, for the compiler */
  snprintf(engine, sizeof engine, "nccl " VERSION, DOTTED(real_version()));
  memcpy(info->engine, engine, sizeof info->engine - 1);
}

void act_make(struct act *act, carillon_call_t call, const void *caller) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  act->makes = NULL;
  act->use = (struct use){.call = call, .thread = thread_self()};
  if (act->use.thread == NULL || act->use.thread->inside) {
    act->use.thread = NULL;
    return;
  }
  pthread_once(&once, start);
  if ((act->use.thread = thread_self()) != NULL) {
    act->use.site = site_with_python(caller, act->use.thread->id);
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
    comm->next = act->makes;
    act->makes = comm;
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
  acts_start_life(act, comm, &act->use.site, 0);
  act->life.act = TAPE_ACT_INIT;
  tape_life(comm->tape, &act->life);
  acts_add(&comm->going, acts_open(comm, &act->life, &act->use.site));
  if (act->use.thread->depth > 0) {
    acts_enter(comm, &act->life, TAPE_PHASE_GROUP, NULL);
  }
}

void act_child(struct act *act, ncclComm_t *out, int color, const ncclConfig_t *config) {
  struct comm *parent = act->use.comm;
  if (parent == NULL) {
    return;
  }
  uint8_t id[16];
  comm_child_id(id, parent->info.id, parent->derived, color);
  const bool member = act->use.call != CARILLON_CALL_SPLIT || color >= 0;
  struct comm *comm = member ? new_born(act, out, id, config) : NULL;
  if (comm != NULL) {
    ops_expect(&comm->ops, -1, -1);
    comm->parent = comm->origin = parent;
    memcpy(comm->info.parent, parent->info.id, sizeof comm->info.parent);
    if (act->use.call != CARILLON_CALL_GROW) {
      memcpy(act->life.child, id, sizeof act->life.child);
    }
    struct tape_life init = act->life; /* the split is the child's init, too */
    init.act = TAPE_ACT_INIT;
    init.seq = 0;
    memset(init.child, 0, sizeof init.child);
    acts_add(&comm->going, acts_open(comm, &init, &act->use.site));
  }
  tape_life(parent->tape, &act->life);
  if (act->use.drained != 0) {
    acts_enter(parent, &act->life, TAPE_PHASE_QUEUED,
               "the communicator's unfinished group job was completed first: this version of NCCL takes it up at the "
               "wrong time (NVIDIA/nccl#1605; guard split_drain)");
    act->life.time = 0;
    acts_enter(parent, &act->life, TAPE_PHASE_NONE, NULL);
  }
  if (act->use.thread->depth > 0) {
    acts_enter(parent, &act->life, TAPE_PHASE_GROUP, NULL);
  }
}

/* Takes the id by which all ranks know a grown communicator, once NCCL has told its hash. False if the id stays as it
   is. */
static bool identify(struct comm *comm) {
  const uint64_t hash = atomic_load_explicit(&comm->ops.hash, memory_order_acquire);
  uint8_t id[16];
  if (comm->call != CARILLON_CALL_GROW || hash == 0) {
    return false;
  }
  comm_hash_id(id, hash);
  const bool other = memcmp(id, comm->info.id, sizeof id) != 0;
  memcpy(comm->info.id, id, sizeof id);
  return other;
}

void acts_learn(struct comm *comm, struct thread *thread) {
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
  const bool other = identify(comm);
  if (other || rank != comm->rank || nodes != 0) {
    comm->rank = comm->info.rank = rank;
    comm->size = comm->info.size = size;
    comm->info.nodes = nodes;
    tape_comm_describe(comm->tape, &comm->info);
  }
  comm_count_messages(comm);
}

/* Begins the tape of a communicator that has none yet, with the act that NCCL has in progress on it. */
static void tape_begin(struct comm *comm) {
  comm->tape = tape_comm_new(&comm->info, comm->origin != NULL ? comm->origin->tape : NULL);
  if (comm->going != NULL) {
    struct site_words words;
    struct tape_life life = comm->going->life;
    life.site = *site_tell(&comm->going->site, &words);
    life.state = acts_state(comm);
    tape_life(comm->tape, &life);
  }
}

/* Handles a communicator that NCCL was asked to make, once NCCL has answered. The caller has comm_lock. */
static void settle(struct comm *comm, struct thread *thread, ncclResult_t answer) {
  if (answer == ncclInProgress && comm->parent != NULL) { /* NCCL fills it in when the parent is done, not before */
    comm->next = comm->parent->children;
    comm->parent->children = comm;
    return;
  }
  const ncclComm_t handle = answer == ncclSuccess || answer == ncclInProgress ? *comm->out : NULL;
  if (identify(comm)) {
    tape_comm_describe(comm->tape, &comm->info);
  }
  if (comm->tape == NULL && handle != NULL) {
    tape_begin(comm);
  }
  if (handle == NULL) {
    acts_happen(comm, CARILLON_EVENT_INIT_FAILED);
    acts_end_going(comm, answer, guard_code(answer));
    comm_drop(comm);
    return;
  }
  comm->parent = NULL;
  comm->out = NULL;
  if (!comm_place(comm, handle)) {
    return;
  }
  if (answer == ncclInProgress) {
    struct open_act *init = comm->going;
    comm->going = NULL;
    acts_go_on(comm, init);
    acts_pending(comm, thread);
  } else {
    acts_learn(comm, thread);
    acts_happen(comm, CARILLON_EVENT_INIT_DONE);
    acts_end_going(comm, ncclSuccess, CARILLON_CODE_OK);
  }
}

void acts_settle(struct comm *made, struct thread *thread, ncclResult_t answer) {
  while (made != NULL) {
    struct comm *next = made->next;
    settle(made, thread, answer);
    made = next;
  }
}

void acts_finish_making(struct act *act, ncclResult_t answer) {
  struct thread *thread = act->use.thread;
  if (act->makes == NULL) {
    return;
  }
  if (thread_groups(thread, answer)) {
    struct comm *last = act->makes;
    while (last->next != NULL) {
      last = last->next;
    }
    last->next = thread->makes;
    thread->makes = act->makes;
    return;
  }
  pthread_mutex_lock(&comm_lock);
  acts_settle(act->makes, thread, answer);
  pthread_mutex_unlock(&comm_lock);
}
