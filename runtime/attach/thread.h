/*
 * The state of a thread that calls NCCL: whether it is in NCCL, and the group that it has open.
 */
#ifndef CARILLON_THREAD_H
#define CARILLON_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm.h"

struct comm;
struct open_act;

/* How many communicators of a group are followed to its end; operations on others are taken as ended at once. */
#define GROUP_COMMS 32

struct thread {
  uint32_t id;   /* gettid */
  bool inside;   /* it is in NCCL: calls that NCCL makes to its own functions are not the program's */
  uint32_t depth; /* how many groups are open */
  uint32_t joined; /* communicators with operations in the group */
  struct {
    struct comm *comm;
    uint32_t generation, operations;
    struct launch launch; /* the operations on comm */
    bool on_stream;       /* one of them is on a stream */
    struct CUstream_st *stream; /* that of the last one */
    uint64_t turn;        /* the turn on comm, while NCCL ends the group */
  } join[GROUP_COMMS];
  struct comm *makes; /* communicators that the group's end makes */
  struct open_act *acts; /* acts on communicators that the group's end launches */
  char refusal[512]; /* the guards' text on its last failed call; empty if NCCL answered that call */
};

extern _Thread_local struct thread *thread_known __attribute__((tls_model("initial-exec")));

/* Allocates the calling thread's state. */
struct thread *thread_make(void);

/*
 * The calling thread; NULL if all its calls pass through untouched: in a forked child, with an NCCL that this library
 * does not know, or without memory.
 */
static inline struct thread *thread_self(void) {
  return __builtin_expect(thread_known != NULL, 1) ? thread_known : thread_make();
}

/* Whether a call with that answer takes effect at the end of the thread's group. */
static inline bool thread_groups(const struct thread *thread, int answer) { return thread->depth > 0 && answer == 0; }

/* From now on, calls of this thread and of all threads that have no state yet pass through untouched. */
void thread_step_aside(void);

#endif
