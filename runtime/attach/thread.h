/*
 * What this library knows of a thread that calls NCCL: whether it is in NCCL, and the group that it has open.
 */
#ifndef CARILLON_THREAD_H
#define CARILLON_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm.h"

struct comm;
struct open_act;

/* As many communicators of a group are followed to its end; the operations of others are taken as ended at once. */
#define GROUP_COMMS 32

struct thread {
  uint32_t id;   /* gettid */
  bool inside;   /* NCCL runs on it: which of its own functions it calls is not the program's doing */
  uint32_t depth; /* of groups */
  uint32_t joined; /* communicators with operations in the group */
  struct {
    struct comm *comm;
    uint32_t generation, operations;
    struct launch launch; /* its operations */
    bool on_stream;       /* one of them goes onto a stream */
    struct CUstream_st *stream; /* of the last that does */
    uint64_t turn;        /* while NCCL ends the group */
  } join[GROUP_COMMS];
  struct comm *makes; /* communicators that the group's end makes */
  struct open_act *acts; /* on communicators, that the group's end launches */
  char refusal[512]; /* what the guards said of its last call that failed; empty if NCCL answered that */
};

extern _Thread_local struct thread *thread_known __attribute__((tls_model("initial-exec")));

/* Makes the calling thread known. */
struct thread *thread_make(void);

/*
 * The calling thread; NULL if all its calls pass through untouched: in a forked child, behind an NCCL that this library
 * does not know, or without memory.
 */
static inline struct thread *thread_self(void) {
  return __builtin_expect(thread_known != NULL, 1) ? thread_known : thread_make();
}

/* Whether what a call answered so is done by the end of the thread's group. */
static inline bool thread_groups(const struct thread *thread, int answer) { return thread->depth > 0 && answer == 0; }

/* From now on, calls of all threads that are not known pass through untouched, and so do those of this one. */
void thread_step_aside(void);

#endif
