/*
 * Acts on communicators, on the tape and in the table: what is made from what, which acts NCCL has in progress, and
 * what a group contains. An act starts on the tape before NCCL is called, and ends when NCCL has answered. An act in a
 * group is launched by the group's end, and ends when NCCL has answered to that. After ncclInProgress, an act ends when
 * ncclCommGetAsyncError says so, whoever calls it.
 */
#ifndef CARILLON_ACTS_H
#define CARILLON_ACTS_H

#include "guard.h"

/* One call of the program that is an act. */
struct act {
  struct use use;         /* of the communicator that the act is on; use.comm is NULL if there is none */
  struct comm *makes;     /* the communicators that the act makes, linked by next */
  struct tape_life life;
  struct site_words words;
};

/* The kind of act that a call is; TAPE_ACT_NONE for an operation. */
uint8_t acts_of(carillon_call_t);

/* Asks the guards, as use_begin does, and starts the act. */
bool act_begin(struct act *, ncclComm_t, carillon_call_t, const char *name, const void *caller);

/* Starts the act of making a communicator that has no parent. */
void act_make(struct act *, carillon_call_t, const void *caller);

/* Adds a communicator that act_make's act makes. NCCL stores its handle at out. */
void act_root(struct act *, ncclComm_t *out, int32_t size, int32_t rank, const uint8_t id[16], const ncclConfig_t *);

/* Says what act_begin's act makes. color is what the ranks of the new communicator agree on; NCCL stores its handle at
   out. */
void act_child(struct act *, ncclComm_t *out, int color, const ncclConfig_t *);

/* Ends the act, or leaves it in progress. Returns NCCL's answer. */
ncclResult_t act_end(struct act *, ncclResult_t answer);

/* Records NCCL's answer to operations. After ncclInProgress they last until NCCL says that it has launched them, as all
   ranks may have to meet first. Collectives that NCCL refused have no number that other ranks know. The caller has the
   turn. */
void acts_answered(struct comm *, const struct launch *, ncclResult_t answer, carillon_code_t);

/* NCCL answered ncclInProgress for a communicator. */
void acts_pending(struct comm *, const struct thread *);

/* Records what ncclCommGetAsyncError says of a communicator. */
void acts_progress(struct comm *, struct thread *, ncclResult_t state);

/* A call on a communicator answered ncclRemoteError; only the first one is on the tape. */
void acts_lost(struct comm *, carillon_call_t);

/* Adds an operation to the thread's open group. False: no group is open, or the group has no room. */
bool acts_join(struct use *, ncclResult_t answer);

/* The same for an act on a communicator. */
bool acts_join_act(struct act *, ncclResult_t answer);

/* Called before and after the end of a thread's outermost group. launched: the end launches the group's operations. */
void acts_group_ends(struct thread *, bool launched);
void acts_group_ended(struct thread *, const void *caller, int64_t start, bool launched, ncclResult_t answer);

/* Frees the slot of a communicator that has ended, as soon as no thread is in a call on it. */
void acts_close(struct comm *, const struct thread *);

#endif
