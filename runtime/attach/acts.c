//go:build ignore

#include "acts_life.h"

#include <stdio.h>
#include <stdlib.h>

#include "resolve.h"
#include "stream.h"

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

void acts_happen(struct comm *comm, carillon_event_t event) {
  carillon_state_t state = acts_state(comm);
  while (!atomic_compare_exchange_weak(&comm->state, &state, carillon_lifecycle_after(state, event))) {
  }
  tape_comm_state(comm->tape, acts_state(comm));
}

/* NCCL's description of an error, for people; NULL if the answer is not an error. */
static const char *says(ncclResult_t answer, char *text, size_t size) {
  if (answer == ncclSuccess || answer == ncclInProgress) {
    return NULL;
  }
  const char *last = REAL(ncclGetLastError)(NULL);
  const bool more = last != NULL && *last != '\0';
  snprintf(text, size, "NCCL answered: %s%s%s", REAL(ncclGetErrorString)(answer), more ? "; its last error was: " : "",
           more ? last : "");
  return text;
}

void acts_end_life(struct comm *comm, struct tape_life life, ncclResult_t answer, carillon_code_t code) {
  char text[1024];
  life.stage = TAPE_STAGE_END;
  life.time = 0;
  life.phase = TAPE_PHASE_NONE;
  life.state = acts_state(comm);
  life.code = code;
  life.text = says(answer, text, sizeof text);
  life.shared = atomic_load_explicit(&comm->shared, memory_order_relaxed);
  tape_comm_state(comm->tape, life.state);
  tape_life(comm->tape, &life);
}

void acts_enter(struct comm *comm, struct tape_life *life, uint8_t phase, const char *text) {
  struct tape_life entered = *life;
  entered.stage = TAPE_STAGE_PHASE;
  entered.state = acts_state(comm);
  entered.phase = phase;
  entered.text = text;
  tape_life(comm->tape, &entered);
}

struct open_act *acts_open(struct comm *comm, const struct tape_life *life, const struct site *site) {
  struct open_act *open = malloc(sizeof *open);
  if (open != NULL) {
    *open = (struct open_act){
        .comm = comm, .generation = atomic_load(&comm->generation), .life = *life, .site = *site};
    open->life.text = NULL;
    open->life.site = (struct tape_site){0};
  }
  return open;
}

void acts_end_open(struct open_act *open, ncclResult_t answer, carillon_code_t code) {
  struct site_words words;
  open->life.site = *site_tell(&open->site, &words);
  acts_end_life(open->comm, open->life, answer, code);
  free(open);
}

void acts_add(struct open_act **list, struct open_act *open) {
  while (*list != NULL) {
    list = &(*list)->next;
  }
  if ((*list = open) != NULL) {
    open->next = NULL;
  }
}

void acts_go_on(struct comm *comm, struct open_act *open) {
  acts_add(&comm->going, open);
  if (open != NULL) {
    open->life.time = 0;
    acts_enter(comm, &open->life, TAPE_PHASE_IN_PROGRESS, NULL);
    atomic_store_explicit(&comm->unasked, true, memory_order_release);
  }
}

void acts_end_going(struct comm *comm, ncclResult_t answer, carillon_code_t code) {
  struct open_act *open = comm->going;
  comm->going = NULL;
  for (struct open_act *next; open != NULL; open = next) {
    next = open->next;
    acts_end_open(open, answer, code);
  }
}

void acts_start_life(struct act *act, struct comm *comm, const struct site *site, uint64_t seq) {
  act->life = (struct tape_life){
      .act = acts_of(act->use.call),
      .call = act->use.call,
      .stage = TAPE_STAGE_START,
      .state = acts_state(comm),
      .peer = -1,
      .seq = seq,
      .start = act->use.drained != 0 ? act->use.drained : tape_now(),
      .site = *site_tell(site, &act->words),
      .shared = atomic_load_explicit(&comm->shared, memory_order_relaxed),
  };
  act->life.time = act->life.start;
  tape_comm_state(comm->tape, act->life.state);
}

/* Ends the marks that streams have not reached, before NCCL gives up the work and the streams go on. The abort is
   recorded before that, as their cause. */
static void abort_marks(struct comm *comm, const struct thread *thread) {
  uint64_t turn;
  if (comm_take(comm, thread->id | COMM_BRIEF, &turn)) {
    tape_mark_check(comm->tape, true);
    comm_give(comm, turn);
  }
}

bool act_begin(struct act *act, ncclComm_t handle, carillon_call_t call, const char *name, const void *caller) {
  act->makes = NULL;
  if (!use_begin(&act->use, handle, call, name, caller)) {
    return false;
  }
  struct comm *comm = act->use.comm;
  if (comm == NULL) {
    return true;
  }
  const bool derives = guard_derives(call);
  acts_start_life(act, comm, &act->use.site, derives ? ++comm->derived : 0);
  if (!derives) {
    tape_life(comm->tape, &act->life);
    if (act->use.thread->depth > 0) {
      acts_enter(comm, &act->life, TAPE_PHASE_GROUP, NULL);
    }
  }
  if (call == CARILLON_CALL_ABORT) {
    abort_marks(comm, act->use.thread);
  }
  return true;
}

/* Ends the operations that NCCL has in progress. The caller has the turn. */
static void end_in_progress(struct comm *comm, carillon_code_t code) {
  for (uint64_t n = comm->in_progress.first; n != 0 && n <= comm->in_progress.last; n++) {
    tape_op_end(comm->tape, n, code);
  }
  comm->in_progress.first = 0;
}

void acts_answered(struct comm *comm, const struct launch *launch, ncclResult_t answer, carillon_code_t code) {
  struct launch *in_progress = &comm->in_progress;
  if (answer == ncclInProgress) {
    in_progress->first = in_progress->first != 0 ? in_progress->first : launch->first;
    in_progress->last = launch->last;
    tape_op_phase(comm->tape, TAPE_PHASE_IN_PROGRESS);
    atomic_store_explicit(&comm->unasked, true, memory_order_release);
    return;
  }
  if (!acts_refused(answer)) { /* otherwise those operations may be why NCCL refused this one */
    end_in_progress(comm, CARILLON_CODE_OK);
  }
  for (uint64_t n = launch->first; n <= launch->last; n++) {
    if (acts_refused(answer)) {
      tape_op_refuse(comm->tape, n, code);
    } else {
      tape_op_end(comm->tape, n, code);
    }
  }
  if (acts_refused(answer)) {
    comm->collectives -= launch->collectives;
    comm->derived -= launch->derived;
    tape_begun(comm->tape, comm->collectives);
  }
  stream_launched(comm, answer);
}

void acts_close(struct comm *comm, const struct thread *thread) {
  uint64_t turn;
  atomic_store(&comm->closing, true);
  if (comm_take(comm, thread->id, &turn)) {
    const bool aborted = acts_state(comm) == CARILLON_STATE_ABORTED;
    end_in_progress(comm, aborted ? CARILLON_CODE_ABORTED : CARILLON_CODE_DESTROYED);
    stream_close(comm);
    tape_comm_close(comm->tape);
    comm_give(comm, turn);
  }
}

/* Records that a communicator has ended, and in which order. The caller has comm_lock. */
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

void acts_follow(struct comm *comm, carillon_call_t call, carillon_state_t before, ncclResult_t answer) {
  if (acts_refused(answer)) {
    carillon_state_t now;
    carillon_lifecycle_next(before, call, &now);
    atomic_compare_exchange_strong(&comm->state, &now, before);
  } else if (call == CARILLON_CALL_FINALIZE && answer == ncclSuccess) {
    acts_happen(comm, CARILLON_EVENT_FINALIZE_DONE);
  } else if (call == CARILLON_CALL_DESTROY) {
    acts_end_going(comm, ncclSuccess, CARILLON_CODE_DESTROYED);
    gone(comm, CARILLON_STATE_DESTROYED);
  } else if (call == CARILLON_CALL_ABORT) {
    acts_end_going(comm, ncclSuccess, CARILLON_CODE_ABORTED);
    gone(comm, CARILLON_STATE_ABORTED);
  }
}

ncclResult_t act_end(struct act *act, ncclResult_t answer) {
  struct comm *comm = act->use.comm;
  if (act->use.thread == NULL) {
    return answer;
  }
  act->use.thread->inside = false;
  acts_finish_making(act, answer);
  if (comm == NULL) {
    return answer;
  }
  pthread_mutex_lock(&comm_lock);
  if (!acts_join_act(act, answer)) {
    const bool goes_on = answer == ncclInProgress && !acts_ends(act->use.call);
    acts_follow(comm, act->use.call, act->use.before, answer);
    if (goes_on) {
      acts_end_going(comm, ncclSuccess, CARILLON_CODE_OK); /* the only one: a finalize waits for operations */
      acts_go_on(comm, acts_open(comm, &act->life, &act->use.site));
    } else {
      acts_end_life(comm, act->life, answer, answer == ncclInProgress ? CARILLON_CODE_OK : guard_code(answer));
    }
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
  const carillon_state_t before = acts_state(comm);
  const bool init = before == CARILLON_STATE_INITIALIZING;
  acts_happen(comm, init ? CARILLON_EVENT_INIT_FAILED : CARILLON_EVENT_ASYNC_FAILURE);
  acts_end_going(comm, answer, guard_code(answer));
  if (acts_state(comm) != before && !init) {
    acts_end_life(comm, (struct tape_life){.call = CARILLON_CALL_ASYNC_ERROR, .peer = -1}, answer, guard_code(answer));
  }
}

void acts_lost(struct comm *comm, carillon_call_t call) {
  pthread_mutex_lock(&comm_lock);
  if (!comm->lost && acts_state(comm) == CARILLON_STATE_READY) {
    comm->lost = true;
    acts_end_life(comm, (struct tape_life){.call = call, .peer = -1}, ncclRemoteError, guard_code(ncclRemoteError));
  }
  pthread_mutex_unlock(&comm_lock);
}

/* NCCL was asked and still has something in progress: it may wait for other ranks. */
static void asked(struct comm *comm, const struct thread *thread) {
  uint64_t turn;
  if (!comm_take(comm, thread->id | COMM_BRIEF, &turn)) {
    return;
  }
  atomic_store_explicit(&comm->unasked, false, memory_order_relaxed); /* before the phases: a new call sets it again */
  if (comm->in_progress.first != 0) {
    tape_op_phase(comm->tape, TAPE_PHASE_NONE);
  }
  comm_give(comm, turn);
  pthread_mutex_lock(&comm_lock);
  for (struct open_act *open = comm->going; open != NULL; open = open->next) {
    acts_enter(comm, &open->life, TAPE_PHASE_NONE, NULL);
  }
  pthread_mutex_unlock(&comm_lock);
}

void acts_progress(struct comm *comm, struct thread *thread, ncclResult_t state) {
  if (state == ncclInProgress) {
    atomic_store_explicit(&comm->pending, true, memory_order_release);
    if (atomic_load_explicit(&comm->unasked, memory_order_relaxed)) {
      asked(comm, thread);
    }
    return;
  }
  const bool was = atomic_load_explicit(&comm->pending, memory_order_acquire);
  uint64_t turn;
  if (comm_take(comm, thread->id | COMM_BRIEF, &turn)) { /* any thread asks, at any time */
    end_in_progress(comm, guard_code(state));
    if (state == ncclSuccess) {
      tape_mark_launched(comm->tape);
      stream_launched(comm, state);
      stream_check(comm);
    }
    comm_give(comm, turn);
  }
  if (state == ncclSuccess && !was) {
    return;
  }
  pthread_mutex_lock(&comm_lock);
  if (atomic_exchange(&comm->pending, false) && state == ncclSuccess) {
    const carillon_state_t before = acts_state(comm);
    if (before == CARILLON_STATE_INITIALIZING) {
      acts_learn(comm, thread);
    }
    acts_happen(comm, before == CARILLON_STATE_INITIALIZING ? CARILLON_EVENT_INIT_DONE
                      : before == CARILLON_STATE_FINALIZING ? CARILLON_EVENT_FINALIZE_DONE
                                                            : CARILLON_EVENT_NONE);
    acts_end_going(comm, ncclSuccess, CARILLON_CODE_OK);
  } else if (state != ncclSuccess) {
    fail(comm, state);
  }
  struct comm *children = comm->children;
  comm->children = NULL;
  for (struct comm *child = children; child != NULL; child = child->next) {
    child->parent = NULL; /* the child has its own progress now */
  }
  acts_settle(children, thread, state == ncclSuccess ? ncclInProgress : state);
  pthread_mutex_unlock(&comm_lock);
}
