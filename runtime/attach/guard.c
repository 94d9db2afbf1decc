//go:build ignore

#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "acts.h"
#include "resolve.h"
#include "stream.h"

static const char *const names[] = {
#define X(name) #name,
    GUARDS(X)
#undef X
};

enum { NUM_GUARDS = sizeof names / sizeof *names };

static bool off[NUM_GUARDS];

bool guard_is_on(enum guard guard) { return !off[guard]; }

void guard_configure(void) {
  const char *rest = getenv("CARILLON_GUARD");
  while (rest != NULL && *rest != '\0') {
    const size_t length = strcspn(rest, ",");
    bool known = length == 0;
    for (size_t i = 0; i < NUM_GUARDS && *rest == '-'; i++) {
      if (strlen(names[i]) == length - 1 && memcmp(names[i], rest + 1, length - 1) == 0) {
        off[i] = known = true;
      }
    }
    if (!known) {
      fprintf(stderr, "carillon: CARILLON_GUARD has %.*s, which switches nothing off; -NAME does, with one of:",
              (int)length, rest);
      for (size_t i = 0; i < NUM_GUARDS; i++) {
        fprintf(stderr, " %s", names[i]);
      }
      fputc('\n', stderr);
    }
    rest += length;
    rest += *rest == ',';
  }
}

carillon_code_t guard_code(ncclResult_t answer) {
  switch ((int)answer) {
  case ncclSuccess:
    return CARILLON_CODE_OK;
  case ncclInProgress:
    return CARILLON_CODE_IN_PROGRESS;
  case ncclInvalidArgument:
    return CARILLON_CODE_INVALID_ARGUMENT;
  case ncclInvalidUsage:
    return CARILLON_CODE_INVALID_USAGE;
  case ncclRemoteError:
    return CARILLON_CODE_UNREACHABLE;
  case ncclTimeout:
    return CARILLON_CODE_TIMEOUT;
  default:
    return CARILLON_CODE_SYSTEM;
  }
}

/* A mistake, and the text that tells a person about it. */
struct mistake {
  enum guard guard;
  carillon_code_t code;
  carillon_call_t first; /* the call that rules this one out, or MADE or LAST */
  const char *says;
};

#define MADE CARILLON_CALL_INIT_RANK /* whichever call made the communicator */
#define LAST CARILLON_CALL_NONE      /* the last call that had the turn, or that has it */

/* The site of the call that rules out another one. */
static struct site first_of(struct comm *comm, carillon_call_t call) {
  if (call == LAST) {
    return (struct site){.address = atomic_load(&comm->at), .thread = (uint32_t)atomic_load(&comm->turn)};
  }
  return call == MADE ? comm->made : comm->sites[call];
}

static bool refuse(struct use *u, const struct mistake *m, const char *name) {
  struct comm *comm = u->comm;
  const bool usage = m->code == CARILLON_CODE_INVALID_USAGE || m->code == CARILLON_CODE_REVOKED ||
                     (m->code == CARILLON_CODE_FINALIZED && u->call != CARILLON_CALL_FINALIZE);
  u->answer = usage ? ncclInvalidUsage : ncclInvalidArgument; /* NCCL's answers, where it notices the mistake */
  struct site_words site, first;
  char *const text = u->thread->refusal;
  pthread_mutex_lock(&comm_lock);
  if (atomic_load(&comm->handle) != u->handle) { /* the communicator has lost its place and its tape meanwhile */
    pthread_mutex_unlock(&comm_lock);
    return false;
  }
  const char *quote = comm->info.name[0] != '\0' ? "\"" : "";
  snprintf(text, sizeof u->thread->refusal, "%s was not called: communicator %s%s%s%s%s", name, quote,
           comm->info.name, quote, *quote != '\0' ? " " : "", m->says);
  struct tape_life life = {
      .act = acts_of(u->call),
      .call = u->call,
      .stage = TAPE_STAGE_MISUSE,
      .state = atomic_load(&comm->state),
      .code = m->code,
      .peer = -1,
      .text = text,
      .shared = atomic_load_explicit(&comm->shared, memory_order_relaxed),
      .site = *site_tell(&u->site, &site),
  };
  const struct site before = first_of(comm, m->first);
  life.first = *site_tell(&before, &first);
  tape_life(comm->tape, &life);
  pthread_mutex_unlock(&comm_lock);
  return false;
}

/* What is wrong with a call in a state, given the table's answer; NULL: NCCL decides. */
static const struct mistake *against_table(carillon_code_t code, carillon_call_t call) {
  static const struct mistake twice = {GUARD_double_destroy, CARILLON_CODE_DESTROYED, CARILLON_CALL_DESTROY,
                                       "was destroyed before; destroy it once"},
                              ended = {GUARD_double_destroy, CARILLON_CODE_ABORTED, CARILLON_CALL_ABORT,
                                       "was aborted before, which has freed it; do one of both"},
                              destroyed = {GUARD_use_after_destroy, CARILLON_CODE_DESTROYED, CARILLON_CALL_DESTROY,
                                           "was destroyed before; use it no more after that"},
                              aborted = {GUARD_use_after_abort, CARILLON_CODE_ABORTED, CARILLON_CALL_ABORT,
                                         "was aborted before; use it no more after that"},
                              finalized = {GUARD_use_after_finalize, CARILLON_CODE_FINALIZED, CARILLON_CALL_FINALIZE,
                                           "was finalized before; only ncclCommDestroy and ncclCommAbort may follow"},
                              revoked = {GUARD_use_after_revoke, CARILLON_CODE_REVOKED, CARILLON_CALL_REVOKE,
                                         "was revoked before; split, shrink, destroy or abort it"};
  const bool ends = call == CARILLON_CALL_DESTROY || call == CARILLON_CALL_ABORT || call == CARILLON_CALL_FINALIZE;
  switch (code) {
  case CARILLON_CODE_DESTROYED:
    return ends ? &twice : &destroyed;
  case CARILLON_CODE_ABORTED:
    return ends ? &ended : &aborted;
  case CARILLON_CODE_FINALIZED:
    return &finalized;
  case CARILLON_CODE_REVOKED:
    return &revoked;
  default:
    return NULL;
  }
}

/* Asks NCCL, on this thread, whether it has done what it answered ncclInProgress to. */
static bool settled(struct use *u) {
  ncclResult_t state = ncclSuccess;
  u->thread->inside = true;
  const ncclResult_t answer = REAL(ncclCommGetAsyncError)(u->comm->handle, &state);
  u->thread->inside = false;
  if (answer != ncclSuccess) {
    return true; /* NCCL decides what to answer */
  }
  acts_progress(u->comm, u->thread, state);
  return state != ncclInProgress;
}

static const struct mistake *in_progress(struct use *u) {
  static const struct mistake init = {GUARD_in_progress, CARILLON_CODE_INITIALIZING, MADE,
                                      "is not ready: its init is in progress until ncclCommGetAsyncError says so"},
                              finalize = {GUARD_in_progress, CARILLON_CODE_UNFINISHED, CARILLON_CALL_FINALIZE,
                                          "is being finalized: ncclInProgress is not the end, which "
                                          "ncclCommGetAsyncError tells"},
                              revoke = {GUARD_in_progress, CARILLON_CODE_UNFINISHED, CARILLON_CALL_REVOKE,
                                        "is being revoked: ncclInProgress is not the end, which "
                                        "ncclCommGetAsyncError tells"},
                              other = {GUARD_in_progress, CARILLON_CODE_UNFINISHED, LAST,
                                       "has not done what it answered ncclInProgress to; ask ncclCommGetAsyncError "
                                       "until it has"};
  if (settled(u)) {
    return NULL;
  }
  switch (atomic_load(&u->comm->state)) {
  case CARILLON_STATE_INITIALIZING:
    return &init;
  case CARILLON_STATE_FINALIZING:
    return &finalize;
  case CARILLON_STATE_REVOKED:
    return &revoke;
  default:
    return &other;
  }
}

/* How long a call waits for an unfinished group job of the parent, in ms. */
#ifndef DRAIN_MS
#define DRAIN_MS 10000
#endif

/* Completes a group job that versions before 2.27.3 complete later on any thread; NULL: the job is complete. */
static const struct mistake *drain(struct use *u) {
  static const struct mistake stuck = {GUARD_split_drain, CARILLON_CODE_UNFINISHED, LAST,
                                       "has a group job that did not end within 10 s, and this version of NCCL takes "
                                       "it up at the wrong time (NVIDIA/nccl#1605)"};
  const int64_t since = tape_now();
  for (int waited = 0; !settled(u); waited++) {
    if (waited == DRAIN_MS) {
      return &stuck;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  int count = 0;
  u->thread->inside = true;
  REAL(ncclCommCount)(u->comm->handle, &count); /* before 2.26.2, this call completes the linked job */
  u->thread->inside = false;
  atomic_store(&u->comm->job, 0);
  u->drained = since;
  return NULL;
}

/* Whether a thread may make the call only while no other thread is in one on the same communicator. False for calls
   that only ask, and for those that break in: abort and revoke. */
static bool exclusive(carillon_call_t call) {
  return call >= CARILLON_CALL_ALL_REDUCE || guard_derives(call) || call == CARILLON_CALL_FINALIZE ||
         call == CARILLON_CALL_DESTROY;
}

static const struct mistake *pending_group(const struct use *u) {
  static const struct mistake grouped = {GUARD_destroy_pending, CARILLON_CODE_UNFINISHED, LAST,
                                         "has operations in a group that was not ended; call ncclGroupEnd first"};
  return u->call == CARILLON_CALL_DESTROY && atomic_load(&u->comm->grouped) > 0 ? &grouped : NULL;
}

static const struct mistake elsewhere = {GUARD_concurrent, CARILLON_CODE_INVALID_USAGE, LAST,
                                         "is in a call of another thread; let one thread at a time use it"};

/* Returns the mistake that the enabled guards find; NULL: none. A call that changes the state must still do so
   (go_on). */
static const struct mistake *check(struct use *u, const void *caller) {
  struct comm *comm = u->comm;
  const struct mistake *m = NULL;
  u->before = atomic_load_explicit(&comm->state, memory_order_acquire);
  carillon_state_t next;
  const carillon_code_t code = carillon_lifecycle_next(u->before, u->call, &next);
  if (code >= CARILLON_CODE_FINALIZED && (m = against_table(code, u->call)) != NULL && guard_is_on(m->guard)) {
    return m;
  }
  if (u->call == CARILLON_CALL_ASYNC_ERROR || u->call == CARILLON_CALL_ABORT) {
    m = NULL;
  } else if ((guard_derives(u->call) || u->call == CARILLON_CALL_DESTROY) && real_version() < 22703 &&
             atomic_load(&comm->job) != 0 && guard_is_on(GUARD_split_drain)) {
    if ((m = drain(u)) != NULL) {
      return m;
    }
  } else if (atomic_load_explicit(&comm->pending, memory_order_acquire) && guard_is_on(GUARD_in_progress) &&
             (m = in_progress(u)) != NULL) {
    return m;
  }
  if ((m = pending_group(u)) != NULL && guard_is_on(m->guard)) {
    return m;
  }
  if (exclusive(u->call)) {
    if (comm_take(comm, u->thread->id, &u->turn)) {
      atomic_store_explicit(&comm->at, caller, memory_order_relaxed);
      return NULL;
    }
    return guard_is_on(GUARD_concurrent) ? &elsewhere : NULL;
  }
  return NULL;
}

/* Moves the communicator to the state that the table gives. If several threads want to end it, only one succeeds. */
static const struct mistake *go_on(struct use *u) {
  carillon_state_t next;
  u->before = atomic_load(&u->comm->state);
  for (;;) {
    const carillon_code_t code = carillon_lifecycle_next(u->before, u->call, &next);
    if (code != CARILLON_CODE_OK) {
      const struct mistake *m = against_table(code, u->call);
      return m != NULL && guard_is_on(m->guard) ? m : NULL;
    }
    if (next == u->before || atomic_compare_exchange_weak(&u->comm->state, &u->before, next)) {
      return NULL;
    }
  }
}

bool use_begin(struct use *u, ncclComm_t handle, carillon_call_t call, const char *name, const void *caller) {
  u->thread = thread_self();
  u->comm = NULL;
  u->handle = handle;
  u->turn = u->launch.first = 0;
  u->on_stream = false;
  u->drained = 0;
  u->call = call;
  if (u->thread != NULL && u->thread->inside) {
    u->thread = NULL;
  }
  if (u->thread == NULL || (u->comm = comm_find(handle)) == NULL) {
    return true;
  }
  if (u->thread->id != u->comm->maker && !atomic_load_explicit(&u->comm->shared, memory_order_relaxed)) {
    atomic_store_explicit(&u->comm->shared, true, memory_order_relaxed);
  }
  const struct mistake *m = NULL;
  const bool act = call <= COMM_LAST_ACT;
  if (act) {
    u->site = site_with_python(caller, u->thread->id);
  }
  if ((m = check(u, caller)) == NULL && act && (m = go_on(u)) != NULL) {
    comm_give(u->comm, u->turn);
  }
  if (m != NULL) {
    if (!act) {
      u->site = site_with_python(caller, u->thread->id);
    }
    return refuse(u, m, name);
  }
  if (atomic_load(&u->comm->handle) != handle) { /* another communicator has taken its place since comm_find */
    comm_give(u->comm, u->turn);
    u->comm = NULL;
    return true;
  }
  if (act) {
    pthread_mutex_lock(&comm_lock);
    u->comm->sites[call] = u->site;
    pthread_mutex_unlock(&comm_lock);
  }
  u->thread->inside = true;
  return true;
}

ncclResult_t use_end(struct use *u, ncclResult_t answer) {
  struct comm *comm = u->comm;
  if (comm == NULL) {
    return answer;
  }
  u->thread->inside = false;
  if (answer == ncclInProgress) {
    acts_pending(comm, u->thread);
  } else if (answer != ncclSuccess) {
    u->thread->refusal[0] = '\0';
  }
  const bool operation = u->call >= CARILLON_CALL_ALL_REDUCE || u->launch.first != 0;
  if (operation && !acts_join(u, answer) && u->launch.first != 0) {
    acts_answered(comm, &u->launch, answer, guard_code(answer));
  }
  if (operation && answer == ncclRemoteError) {
    acts_lost(comm, u->call);
  }
  comm_give(comm, u->turn);
  if (atomic_load_explicit(&comm->closing, memory_order_relaxed)) {
    acts_close(comm, u->thread);
  }
  return answer;
}

void guard_leak(struct comm *comm) {
  const carillon_state_t state = atomic_load(&comm->state);
  const bool live = (state >= CARILLON_STATE_INITIALIZING && state <= CARILLON_STATE_FINALIZED) ||
                    state == CARILLON_STATE_FAILED || state == CARILLON_STATE_REVOKED;
  if (!live || !guard_is_on(GUARD_leak)) {
    return;
  }
  struct site_words site;
  tape_life(comm->tape, &(struct tape_life){
                            .act = TAPE_ACT_LEAK,
                            .call = CARILLON_CALL_DESTROY,
                            .stage = TAPE_STAGE_MISUSE,
                            .state = state,
                            .code = CARILLON_CODE_LEAKED,
                            .peer = -1,
                            .text = "the communicator was never destroyed, and the process exits; call "
                                    "ncclCommDestroy on it",
                            .site = *site_tell(&comm->made, &site),
                        });
}
