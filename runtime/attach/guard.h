/*
 * The guards: what is a mistake that NCCL can't be trusted with is answered here, with NCCL's own code and without
 * calling it, and is on the tape as misuse, with both call sites. What is legal is the transition table of package
 * lifecycle. Each guard can be switched off by name: CARILLON_GUARD=-split_drain,-leak.
 *
 *   double_destroy      one is destroyed, aborted or finalized that has ended, or that another thread is ending
 *   use_after_destroy   anything else is done with one that was destroyed
 *   use_after_abort     … aborted
 *   use_after_finalize  … finalized: operations, and calls that need all ranks
 *   use_after_revoke    … revoked
 *   in_progress         ncclInProgress was taken as the end: of an init, a finalize, a revoke, an operation
 *   destroy_pending     destroyed while a group has operations on it that was not ended
 *   concurrent          two threads are in calls on one communicator at once
 *   leak                never destroyed when the process exits; this one only tells
 *   split_drain         before 2.27.3, one is split or destroyed that has an unfinished group job: NCCL completes that
 *                       at the wrong time (NVIDIA/nccl#1605). So it is completed first, on the calling thread; if it
 *                       doesn't end in time, the call is refused
 */
#ifndef CARILLON_GUARD_H
#define CARILLON_GUARD_H

#include "comm.h"
#include "thread.h"

#define GUARDS(X) \
  X(double_destroy) \
  X(use_after_destroy) \
  X(use_after_abort) \
  X(use_after_finalize) \
  X(use_after_revoke) \
  X(in_progress) \
  X(destroy_pending) \
  X(concurrent) \
  X(leak) \
  X(split_drain)

enum guard {
#define X(name) GUARD_##name,
  GUARDS(X)
#undef X
};

/* Reads CARILLON_GUARD. */
void guard_configure(void);

bool guard_is_on(enum guard);

/* One call of the program's, from its entry to its return. */
struct use {
  struct thread *thread;
  struct comm *comm; /* NULL: the call passes through untouched */
  ncclComm_t handle;
  uint64_t turn;     /* 0: it has none */
  struct launch launch; /* the operation that it is */
  bool on_stream;    /* the operation goes onto stream */
  cudaStream_t stream;
  carillon_call_t call;
  carillon_state_t before; /* that the communicator was in */
  int64_t drained;   /* since when an unfinished group job was completed first; 0: none was */
  struct site site;  /* of a call that changes the state */
  ncclResult_t answer;
};

/*
 * Asks all guards. False: the call is refused, and answer is what it answers. Otherwise NCCL is to be called, and then
 * use_end. caller is where the call returns to; name is the function's.
 */
bool use_begin(struct use *, ncclComm_t, carillon_call_t, const char *name, const void *caller);

/* Notes that NCCL answered, and gives the turn back. Returns the answer. */
ncclResult_t use_end(struct use *, ncclResult_t answer);

/* Whether a call makes a communicator of another one. */
static inline bool guard_derives(carillon_call_t call) {
  return call == CARILLON_CALL_SPLIT || call == CARILLON_CALL_SHRINK || call == CARILLON_CALL_GROW;
}

/* What the tape calls an answer of NCCL's. */
carillon_code_t guard_code(ncclResult_t);

/* Writes the misuse of a communicator that was not ended. The caller has comm_lock. */
void guard_leak(struct comm *);

#endif
