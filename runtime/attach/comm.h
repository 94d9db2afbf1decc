/*
 * The table of communicators that this library saw being made, by NCCL's address of each. A communicator that has ended
 * stays in the table until its place is needed, so that calls after its end are recognized. If NCCL makes another
 * communicator at the same address, that one takes the place. Looking a communicator up takes no lock.
 *
 * A struct comm is never given back to malloc: a thread that still holds one that is reused finds another generation in
 * it.
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

/* The calls up to this one change a communicator's state. */
#define COMM_LAST_ACT CARILLON_CALL_ABORT

/* An act that has begun and not ended. */
struct open_act {
  struct open_act *next;
  struct comm *comm;
  uint32_t generation; /* of comm, when the act began */
  struct tape_life life;
  struct site site;
  carillon_state_t before; /* of an act in a group: the communicator's state before the group's first act on it */
};

/* The operations of one call or group on a communicator, by their numbers on the tape. */
struct launch {
  uint64_t first, last; /* 0: none */
  uint32_t collectives; /* how many of them are collectives */
  uint32_t derived;     /* how many of them are splits, shrinks and grows */
};

struct comm {
  _Alignas(64) _Atomic(ncclComm_t) handle; /* NULL: not known yet, or not in use */
  _Atomic uint32_t generation;
  _Atomic carillon_state_t state;
  _Atomic bool pending;     /* NCCL answered ncclInProgress, and has not yet said that it is done */
  _Atomic bool unasked;     /* NCCL answered ncclInProgress, and was not asked since */
  _Atomic uint64_t turn;    /* the thread that is in NCCL with the communicator, by comm_turn; 0: none */
  _Atomic(const void *) at; /* the site of the last call that took the turn */
  _Atomic uint32_t grouped; /* how many of its operations are in open groups */
  _Atomic uint32_t job;     /* before 2.27.3: the thread that left a group job which NCCL may not have completed */
  uint32_t maker;           /* the thread that made it */
  _Atomic bool shared;      /* other threads have made calls on it */
  _Atomic bool closing;     /* the communicator has ended, and a thread that has the turn is to free its slot on the
                               tape */

  /* Only the thread that has the turn uses these. */
  struct tape_comm *tape;
  int32_t rank, size;
  uint64_t collectives; /* how many collectives were begun: all ranks number them alike */
  uint32_t *messages;   /* counts of messages to each rank, then from each rank; NULL: not counted */
  uint32_t size_known;  /* how many ranks messages has room for */
  uint32_t derived;     /* how many splits, shrinks and grows were begun */
  struct launch in_progress; /* the operations that NCCL has in progress */
  cudaStream_t stream;  /* of the operation that a mark is to follow */
  bool launches;        /* a mark is to follow an operation that NCCL is launching */
  bool told;            /* the stream also writes before that operation */
  enum {
    OBSERVES_NOTHING,
    OBSERVES_NEXT,    /* the operation or group that is about to be launched */
    OBSERVES_LAUNCHED /* the operation or group that now has been launched */
  } observes;         /* whether the device's and NCCL's proxies' part of an operation or group is measured */
  void *events[2];    /* CUDA events before and behind it; NULL: not recorded */
  bool looks;         /* the operation or group is looked into (profiler_depth.h) */
  bool asks;          /* the mask is raised for the operations that NCCL takes up */
  bool streamed;        /* the communicator has had an operation */
  bool captured;        /* the last operation whose stream was asked about was captured in a graph: ask for the next
                           one, too */

  /* Under comm_lock. */
  struct tape_info info;
  struct site sites[COMM_LAST_ACT + 1]; /* where the calls that changed the state were made, by call */
  carillon_call_t call;                 /* the call that made the communicator */
  struct site made;                     /* where that call was made */
  struct open_act *going;               /* the acts that NCCL has in progress, in the order in which they began */
  uint64_t groups;                      /* how many groups NCCL had in progress, or failed */
  uint64_t ended;                       /* the order in which communicators ended */
  bool lost;                            /* a call returned that another rank is gone */

  struct ops_comm ops; /* under a lock of its own, except for what NCCL tells about the communicator */

  /* While NCCL makes it. */
  struct comm *next;   /* the next one of the group, or of the parent's children */
  struct comm *origin; /* the communicator that this one is made from; NULL: none */
  struct comm *parent; /* the same, until NCCL is done with the parent's part; then NULL */
  ncclComm_t *out;     /* where NCCL puts the handle */
  struct comm *children; /* children that NCCL is making and has not filled in yet */
};

/* Guards all changes of the table and the fields that are under it. Nobody holds it in a call to NCCL that may wait. */
extern pthread_mutex_t comm_lock;

/* The communicator at an address; NULL: unknown. */
struct comm *comm_find(ncclComm_t handle);

/* A communicator that is being made and has no place in the table yet. NULL: no memory. Locks. */
struct comm *comm_new(void);

/* Frees a communicator that was not made, or whose place another one takes. The caller has comm_lock. */
void comm_drop(struct comm *);

/* Puts a communicator into its place in the table. False: there is no place, and the communicator was dropped. The
   caller has comm_lock. */
bool comm_place(struct comm *, ncclComm_t handle);

/* Makes room to count messages with each rank, once the number of ranks is known. */
void comm_count_messages(struct comm *);

/* Calls a function with each communicator that has a place in the table. The caller has comm_lock. */
void comm_each(void (*)(struct comm *));

/* The id that all ranks derive alike from a unique id, or from the parent's, the number of the split and its color.
   Without a unique id (NULL) NCCL makes no communicator. */
void comm_root_id(uint8_t id[16], const ncclUniqueId *);
void comm_child_id(uint8_t id[16], const uint8_t parent[16], uint32_t number, int color);

/* The id that is derived from NCCL's own hash of a communicator. */
void comm_hash_id(uint8_t id[16], uint64_t);

/* The value of turn while a thread has it. It has the generation, so a turn on one communicator is never taken for one
   on another that reuses the struct. */
static inline uint64_t comm_turn(const struct comm *comm, uint32_t thread) {
  return (uint64_t)atomic_load_explicit(&comm->generation, memory_order_relaxed) << 32 | thread;
}

/* Set in turn beside the thread: the turn is taken by the library, not by a program's call, and given back at once. */
#define COMM_BRIEF 0x80000000u

/* Takes the turn, and puts the value for comm_give into turn. Waits while another thread has a brief turn. Returns
   false, and puts 0 into turn, if another thread has the turn for a call. */
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

/* Gives the turn back, if turn is not 0. Nobody else writes comm->turn until then, not even comm_drop. */
static inline void comm_give(struct comm *comm, uint64_t turn) {
  if (turn != 0) {
    atomic_store_explicit(&comm->turn, 0, memory_order_release);
  }
}

#endif
