/*
 * The table of communicators that this library saw being made, by NCCL's address of each. A communicator that has ended
 * is remembered until its place is needed, so that what comes after its end is known for that; NCCL may make another
 * one at the same address, which then takes the place. Looking one up takes no lock.
 *
 * A struct comm is never given back to malloc: what has one in hand while it is reused finds another generation in it.
 */
#ifndef CARILLON_COMM_H
#define CARILLON_COMM_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../../lifecycle/carillon_lifecycle.h"
#include "nccl.h"
#include "ops.h"
#include "site.h"
#include "tape.h"

/* Calls up to this one are those that change a communicator's state. */
#define COMM_LAST_ACT CARILLON_CALL_ABORT

/* An act that has begun and not ended. */
struct open_act {
  struct open_act *next;
  struct comm *comm;
  uint32_t generation; /* the communicator's */
  struct tape_life life;
  struct site site;
  carillon_state_t before; /* of an act in a group: the communicator's, before the group's first one on it */
};

/* Operations of one call or group on a communicator, by their numbers on the tape. */
struct launch {
  uint64_t first, last; /* 0: none */
  uint32_t collectives; /* of them */
  uint32_t derived;     /* of these, splits, shrinks and grows */
};

struct comm {
  _Alignas(64) _Atomic(ncclComm_t) handle; /* NULL: not known yet, or not in use */
  _Atomic uint32_t generation;
  _Atomic carillon_state_t state;
  _Atomic bool pending;     /* NCCL answered ncclInProgress, and has not said since that it is done */
  _Atomic bool unasked;     /* nor was it asked since */
  _Atomic uint64_t turn;    /* the thread that is in NCCL with it, by comm_turn; 0: none */
  _Atomic(const void *) at; /* where the last call was made that took the turn */
  _Atomic uint32_t grouped; /* its operations in groups that are open */
  _Atomic uint32_t job;     /* before 2.27.3: the thread that left a group job which NCCL may not have completed */
  uint32_t maker;           /* the thread that made it */
  _Atomic bool shared;      /* calls came from other threads */
  _Atomic bool closing;     /* it has ended, and its slot on the tape is to be freed by a thread that has the turn */

  /* Of the thread that has the turn. */
  struct tape_comm *tape;
  int32_t rank, size;
  uint64_t collectives; /* how many were begun: all ranks number them alike */
  uint32_t *messages;   /* to each rank, then from each rank; NULL: not counted */
  uint32_t size_known;  /* ranks that messages has room for */
  uint32_t derived;     /* splits, shrinks and grows that were begun */
  struct launch in_progress; /* that NCCL has in progress */
  cudaStream_t stream;  /* of the operation that a mark is to follow */
  bool launches;        /* there is such a one, which NCCL launches */
  bool told;            /* and before which the stream writes, too */
  enum {
    OBSERVES_NOTHING,
    OBSERVES_NEXT,    /* the operation or group that is about to be launched */
    OBSERVES_LAUNCHED /* and now has been */
  } observes;         /* how the device and NCCL's proxies do an operation or a group */
  void *events[2];    /* before and behind it; NULL: not recorded */
  bool looks;         /* it is looked into (profiler_depth.h) */
  bool asks;          /* NCCL is asked for more of what it takes up */
  bool streamed;        /* it has had an operation */
  bool captured;        /* the last operation that was asked about was captured in a graph: the next one is, too */

  /* Under comm_lock. */
  struct tape_info info;
  struct site sites[COMM_LAST_ACT + 1]; /* where the calls were made that changed the state, by call */
  carillon_call_t call;                 /* that made it */
  struct site made;                     /* and where */
  struct open_act *going;               /* the acts that NCCL has in progress, in the order in which they began */
  uint64_t groups;                      /* that NCCL had in progress, or that failed */
  uint64_t ended;                       /* in which order communicators ended */
  bool lost;                            /* a call answered that another rank is gone */

  struct ops_comm ops; /* under a lock of its own, but for what NCCL tells of the communicator */

  /* While NCCL makes it. */
  struct comm *next;   /* of a group, or of its parent's children */
  struct comm *origin; /* that it is made from; NULL: none */
  struct comm *parent; /* the same, until NCCL is done with that one's part; else NULL */
  ncclComm_t *out;     /* where NCCL puts the handle */
  struct comm *children; /* that NCCL makes from it and has not filled in yet */
};

/* Orders all changes of the table and of what is under it. No call to NCCL that may wait is made with it. */
extern pthread_mutex_t comm_lock;

/* The communicator at an address; NULL: none that is known. */
struct comm *comm_find(ncclComm_t handle);

/* A communicator that is being made; it is in no place yet. NULL: no memory. Locks. */
struct comm *comm_new(void);

/* Gives a communicator up that was not made, or whose place another one takes. The caller has comm_lock. */
void comm_drop(struct comm *);

/* Gives a communicator its place. False if there is none: then it is dropped. The caller has comm_lock. */
bool comm_place(struct comm *, ncclComm_t handle);

/* Makes room to count messages with each rank, once the size is known. */
void comm_count_messages(struct comm *);

/* Calls a function with each communicator that has a place. The caller has comm_lock. */
void comm_each(void (*)(struct comm *));

/* The id that all ranks derive alike from a unique id, or from the parent's, the number of the split and its color.
   Without a unique id (NULL) NCCL makes no communicator. */
void comm_root_id(uint8_t id[16], const ncclUniqueId *);
void comm_child_id(uint8_t id[16], const uint8_t parent[16], uint32_t number, int color);

/* The id by NCCL's own hash of a communicator. */
void comm_hash_id(uint8_t id[16], uint64_t);

/* What turn says if a thread has it: nobody takes one communicator's turn for another's that had its place. */
static inline uint64_t comm_turn(const struct comm *comm, uint32_t thread) {
  return (uint64_t)atomic_load_explicit(&comm->generation, memory_order_relaxed) << 32 | thread;
}

/* Beside the thread in a turn: it is not the program's, and given back at once. */
#define COMM_BRIEF 0x80000000u

/* Takes the turn, and says in turn what it gives back then. False, and 0, if a thread has it, but for a brief one. */
static inline bool comm_take(struct comm *comm, uint32_t thread, uint64_t *turn) {
  *turn = comm_turn(comm, thread);
  for (;;) {
    uint64_t nobody = 0;
    if (atomic_compare_exchange_strong(&comm->turn, &nobody, *turn)) {
      return true;
    }
    if ((nobody & COMM_BRIEF) == 0) {
      *turn = 0;
      return false;
    }
    sched_yield();
  }
}

/* Gives the turn back, if there is one to give. Until then nobody else writes it: not even comm_drop. */
static inline void comm_give(struct comm *comm, uint64_t turn) {
  if (turn != 0) {
    atomic_store_explicit(&comm->turn, 0, memory_order_release);
  }
}

#endif
