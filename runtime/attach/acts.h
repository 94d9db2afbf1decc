/*
 * Acts of communicators, on the tape and in the table: what is made of what, which act NCCL has in progress, and what a
 * group has in it. An act starts on the tape before NCCL is called, and ends when NCCL has answered; one in a group is
 * launched by the group's end, and ends when that has answered. After ncclInProgress it ends when
 * ncclCommGetAsyncError, whoever calls it, says so.
 */
#ifndef CARILLON_ACTS_H
#define CARILLON_ACTS_H

#include "guard.h"

/* One call of the program's that is an act. */
struct act {
  struct use use;         /* of the communicator that it is done to; use.comm NULL: none */
  struct comm *makes;     /* its communicators, by next */
  struct tape_life life;
  struct site_words words;
};

/* The act that a call is; TAPE_ACT_NONE for an operation. */
uint8_t acts_of(carillon_call_t);

/* Asks the guards, as use_begin, and starts the act. */
bool act_begin(struct act *, ncclComm_t, carillon_call_t, const char *name, const void *caller);

/* Starts the act of making a communicator that has no parent. */
void act_make(struct act *, carillon_call_t, const void *caller);

/* Adds one that act_make makes. NCCL puts it to out. */
void act_root(struct act *, ncclComm_t *out, int32_t size, int32_t rank, const uint8_t id[16], const ncclConfig_t *);

/* Says what act_begin's act makes: number is what its ranks agree on, its color; NCCL puts it to out. */
void act_child(struct act *, ncclComm_t *out, int color, const ncclConfig_t *);

/* Ends the act, or leaves it in progress. Returns NCCL's answer. */
ncclResult_t act_end(struct act *, ncclResult_t answer);

/* NCCL has answered to operations. After ncclInProgress they last until it says that it has launched them, as all ranks
   may meet before. The collectives that it refused have no number that other ranks know. The caller has the turn. */
void acts_answered(struct comm *, const struct launch *, ncclResult_t answer, carillon_code_t);

/* NCCL answered ncclInProgress for a communicator. */
void acts_pending(struct comm *, const struct thread *);

/* What ncclCommGetAsyncError says of a communicator. */
void acts_progress(struct comm *, struct thread *, ncclResult_t state);

/* A call on a communicator answered ncclRemoteError, which the tape tells once. */
void acts_lost(struct comm *, carillon_call_t);

/* Takes an operation into the thread's group, if it has one open. */
bool acts_join(struct use *, ncclResult_t answer);

/* The same of an act on a communicator. */
bool acts_join_act(struct act *, ncclResult_t answer);

/* Around the end of a thread's outermost group. launched says that its operations are launched by it. */
void acts_group_ends(struct thread *, bool launched);
void acts_group_ended(struct thread *, const void *caller, int64_t start, bool launched, ncclResult_t answer);

/* Frees the slot of one that has ended, as soon as no thread is in a call on it. */
void acts_close(struct comm *, const struct thread *);

#endif
