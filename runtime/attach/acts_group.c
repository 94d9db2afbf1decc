//go:build ignore

#include "acts_life.h"

#include <stdlib.h>
#include <string.h>

#include "stream.h"

bool acts_join(struct use *u, ncclResult_t answer) {
  struct thread *thread = u->thread;
  if (!thread_groups(thread, answer)) {
    return false;
  }
  uint32_t i = 0;
  while (i < thread->joined && thread->join[i].comm != u->comm) {
    i++;
  }
  if (i == GROUP_COMMS) {
    tape_uncount(u->comm->tape); // it is not known whether this operation is launched together with the group's others
    return false;
  }
  if (i == thread->joined) {
    thread->joined++;
    thread->join[i].comm = u->comm;
    thread->join[i].generation = atomic_load(&u->comm->generation);
    thread->join[i].launch = (struct launch){0};
    thread->join[i].operations = 0;
    thread->join[i].on_stream = false;
  }
  thread->join[i].operations++;
  if (u->launch.first != 0) {
    struct launch *launch = &thread->join[i].launch;
    launch->first = launch->first != 0 ? launch->first : u->launch.first;
    launch->last = u->launch.last;
    launch->collectives += u->launch.collectives;
    launch->derived += u->launch.derived;
    if (u->on_stream) {
      thread->join[i].on_stream = true;
      thread->join[i].stream = u->stream;
    }
  }
  atomic_fetch_add(&u->comm->grouped, 1);
  return true;
}

bool acts_join_act(struct act *act, ncclResult_t answer) {
  struct thread *thread = act->use.thread;
  struct open_act *open;
  if (!thread_groups(thread, answer) || (open = acts_open(act->use.comm, &act->life, &act->use.site)) == NULL) {
    return false;
  }
  const struct open_act *same = thread->acts; /* the group's first act on the communicator */
  while (same != NULL && same->comm != open->comm) {
    same = same->next;
  }
  open->before = same != NULL ? same->before : act->use.before;
  acts_add(&thread->acts, open);
  return true;
}

static bool stale(const struct open_act *open) { return atomic_load(&open->comm->generation) != open->generation; }

static void launch_act(struct open_act *open) {
  open->life.time = 0;
  acts_enter(open->comm, &open->life, TAPE_PHASE_NONE, NULL);
}

static void launch_acts(struct thread *thread) {
  if (thread->acts == NULL && thread->makes == NULL) {
    return;
  }
  pthread_mutex_lock(&comm_lock); /* no communicator may end and lose its tape meanwhile */
  for (struct open_act *open = thread->acts; open != NULL; open = open->next) {
    if (!stale(open)) {
      launch_act(open);
    }
  }
  for (struct comm *made = thread->makes; made != NULL; made = made->next) {
    if (made->tape != NULL && made->going != NULL) {
      launch_act(made->going);
    }
  }
  pthread_mutex_unlock(&comm_lock);
}

void acts_group_ends(struct thread *thread, bool launched) {
  if (launched) {
    launch_acts(thread);
  }
  for (uint32_t i = 0; i < thread->joined; i++) {
    struct comm *comm = thread->join[i].comm;
    if (!comm_take(comm, thread->id, &thread->join[i].turn) ||
        atomic_load(&comm->generation) != thread->join[i].generation) {
      continue;
    }
    tape_op_group(comm->tape, false);
    if (launched && thread->join[i].on_stream) {
      stream_launches(comm, thread->join[i].launch.first, thread->join[i].stream);
    }
  }
  thread->inside = true;
}

/* Records a group's part on one communicator as an act, if that part did not end at once and without error. */
static void group_act(struct comm *comm, uint32_t operations, const struct site *site, int64_t start,
                      ncclResult_t answer) {
  struct site_words words;
  struct tape_life life = {
      .time = start,
      .act = TAPE_ACT_GROUP,
      .call = CARILLON_CALL_GROUP_END,
      .stage = TAPE_STAGE_START,
      .state = acts_state(comm),
      .peer = -1,
      .start = start,
      .ops = operations,
      .site = *site_tell(site, &words),
  };
  pthread_mutex_lock(&comm_lock);
  life.seq = ++comm->groups;
  tape_life(comm->tape, &life);
  if (answer == ncclInProgress) {
    acts_end_going(comm, ncclSuccess, CARILLON_CODE_OK);
    acts_go_on(comm, acts_open(comm, &life, site));
  } else {
    acts_end_life(comm, life, answer, guard_code(answer));
  }
  pthread_mutex_unlock(&comm_lock);
}

/* NCCL has answered to one of the group's acts. The caller has comm_lock. */
static void end_act(struct thread *thread, struct open_act *open, bool launched, ncclResult_t answer,
                    carillon_code_t code) {
  struct comm *const comm = open->comm;
  if (stale(open)) {
    free(open);
    return;
  }
  const bool goes_on = answer == ncclInProgress && !acts_ends(open->life.call);
  acts_follow(comm, open->life.call, open->before, launched ? answer : ncclInvalidUsage);
  if (goes_on) {
    acts_go_on(comm, open);
  } else {
    acts_end_open(open, answer, code);
  }
  if (atomic_load(&comm->closing)) {
    acts_close(comm, thread);
  }
}

static void end_acts(struct thread *thread, bool launched, ncclResult_t answer, carillon_code_t code) {
  struct open_act *open = thread->acts;
  thread->acts = NULL;
  for (struct open_act *next; open != NULL; open = next) {
    next = open->next;
    pthread_mutex_lock(&comm_lock);
    end_act(thread, open, launched, answer, code);
    pthread_mutex_unlock(&comm_lock);
  }
}

void acts_group_ended(struct thread *thread, const void *caller, int64_t start, bool launched, ncclResult_t answer) {
  thread->inside = false;
  thread->depth = 0;
  const bool well = answer == ncclSuccess || answer == ncclInProgress;
  const carillon_code_t code = !launched ? CARILLON_CODE_CANCELED : well ? CARILLON_CODE_OK : guard_code(answer);
  const struct site site = site_now(caller, thread->id);
  for (uint32_t i = 0; i < thread->joined; i++) {
    struct comm *comm = thread->join[i].comm;
    if (atomic_load(&comm->generation) != thread->join[i].generation) { /* aborted, and the struct reused */
      comm_give(comm, thread->join[i].turn);
      continue;
    }
    atomic_fetch_sub(&comm->grouped, thread->join[i].operations);
    if (thread->join[i].turn != 0 && thread->join[i].launch.first != 0) {
      acts_answered(comm, &thread->join[i].launch, launched ? answer : ncclInvalidUsage, code);
    }
    if (answer == ncclInProgress) {
      acts_pending(comm, thread);
    }
    if (answer == ncclRemoteError) {
      acts_lost(comm, CARILLON_CALL_GROUP_END);
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
  end_acts(thread, launched, answer, code);
  if (thread->makes != NULL) {
    struct comm *made = thread->makes;
    thread->makes = NULL;
    pthread_mutex_lock(&comm_lock);
    for (struct comm *child = made; child != NULL; child = child->next) {
      if (child->parent != NULL && answer == ncclInProgress) {
        acts_pending(child->parent, thread);
      }
    }
    acts_settle(made, thread, answer);
    pthread_mutex_unlock(&comm_lock);
  }
}
