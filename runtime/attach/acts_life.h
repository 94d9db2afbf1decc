/*
 * Shared by the files about acts: an act from its start to its end on the tape, and its effect on the communicator.
 *
 *   acts.c        acts, and those that NCCL has in progress
 *   acts_make.c   communicators that NCCL makes
 *   acts_group.c  operations in groups
 */
#ifndef CARILLON_ACTS_LIFE_H
#define CARILLON_ACTS_LIFE_H

#include "acts.h"

static inline carillon_state_t acts_state(struct comm *comm) { return atomic_load(&comm->state); }

/* Whether a call ends its communicator, even if it answers ncclInProgress: the communicator is unusable afterwards. */
static inline bool acts_ends(carillon_call_t call) {
  return call == CARILLON_CALL_DESTROY || call == CARILLON_CALL_ABORT;
}

/* Whether NCCL did nothing of what the call asked for. */
static inline bool acts_refused(ncclResult_t answer) {
  return answer == ncclInvalidArgument || answer == ncclInvalidUsage;
}

/* Puts a communicator into the state that follows from NCCL's answer to an act, or back into the state before the act.
   The caller has comm_lock. */
void acts_follow(struct comm *, carillon_call_t, carillon_state_t before, ncclResult_t answer);

/* Puts a communicator into the state that follows from an event. */
void acts_happen(struct comm *, carillon_event_t);

/* Prepares the act's start for the tape: seq is its number on the communicator. */
void acts_start_life(struct act *, struct comm *, const struct site *, uint64_t seq);

/* Writes the end of a started act, with NCCL's answer. */
void acts_end_life(struct comm *, struct tape_life, ncclResult_t answer, carillon_code_t);

/* Moves a started act into a phase, or into none, at life's time. text is for people, and usually NULL. */
void acts_enter(struct comm *, struct tape_life *, uint8_t phase, const char *text);

/* A started act that is to be ended later; NULL: no memory. */
struct open_act *acts_open(struct comm *, const struct tape_life *, const struct site *);

/* Appends an act to a list. */
void acts_add(struct open_act **list, struct open_act *);

/* Records that NCCL has an act in progress and was not asked since. The caller has comm_lock. */
void acts_go_on(struct comm *, struct open_act *);

/* Writes the end of an open act, and frees it. */
void acts_end_open(struct open_act *, ncclResult_t answer, carillon_code_t);

/* Ends the acts that are in progress. The caller has comm_lock. */
void acts_end_going(struct comm *, ncclResult_t answer, carillon_code_t);

/* Finishes the communicators that the act makes: now, or at the end of the group. */
void acts_finish_making(struct act *, ncclResult_t answer);

/* Handles the communicators that a group, or a call outside of one, makes, one after the other. The caller has
   comm_lock. */
void acts_settle(struct comm *made, struct thread *, ncclResult_t answer);

/* Learns about a communicator that is ready: its rank, and the number of its hosts. The caller has comm_lock. */
void acts_learn(struct comm *, struct thread *);

#endif
