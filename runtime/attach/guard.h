/*
 * The guards refuse the mistakes that NCCL doesn't handle reliably: such a call returns NCCL's own error code, NCCL is
 * not called, and the tape records a misuse with both call sites. The transition table of package lifecycle says what
 * is legal. CARILLON_GUARD switches guards off by name: CARILLON_GUARD=-split_drain,-leak.
 *
 *   double_destroy      a communicator that has ended, or that another thread is ending, is destroyed, aborted or
 *                       finalized
 *   use_after_destroy   anything else is done with a communicator that was destroyed
 *   use_after_abort     … aborted
 *   use_after_finalize  … finalized: operations, and calls that need all ranks
 *   use_after_revoke    … revoked
 *   in_progress         ncclInProgress was taken as the end: of an init, a finalize, a revoke, an operation
 *   destroy_pending     a communicator is destroyed while an open group has operations on it
 *   concurrent          two threads are in calls on one communicator at once
 *   leak                a communicator is not destroyed when the process exits; this guard only reports
 *   split_drain         before 2.27.3, a communicator that has an unfinished group job is split or destroyed: NCCL
 *                       completes that job at the wrong time (NVIDIA/nccl#1605). So the guard completes the job first,
 *                       on the calling thread; if the job doesn't end in time, the call is refused
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

/* One call of the program, from its entry to its return. */
struct use {
  struct thread *thread;
  struct comm *comm; /* NULL: the call passes through untouched */
  ncclComm_t handle;
  uint64_t turn;     /* 0: the call has no turn */
  struct launch launch; /* the operation that the call is */
  bool on_stream;    /* the operation goes onto stream */
  cudaStream_t stream;
  carillon_call_t call;
  carillon_state_t before; /* the communicator's state before the call */
  int64_t drained;   /* when the call began to complete an unfinished group job first; 0: there was none */
  struct site site;  /* of a call that changes the communicator's state */
  ncclResult_t answer;
};

/*
 * Asks all guards. False: the call is refused, and the caller returns answer. True: the caller calls NCCL and then
 * use_end. caller is the call's return address; name is the name of the function.
 */
bool use_begin(struct use *, ncclComm_t, carillon_call_t, const char *name, const void *caller);

/* Records NCCL's answer, and gives the turn back. Returns the answer. */
ncclResult_t use_end(struct use *, ncclResult_t answer);

/* Whether a call makes a communicator from another one. */
static inline bool guard_derives(carillon_call_t call) {
  return call == CARILLON_CALL_SPLIT || call == CARILLON_CALL_SHRINK || call == CARILLON_CALL_GROW;
}

/* The tape's code for an answer of NCCL's. */
carillon_code_t guard_code(ncclResult_t);

/* Writes the misuse for a communicator that was not ended. The caller has comm_lock. */
void guard_leak(struct comm *);

#endif
