/*
 * Which of the two writes a communicator's operations: the interposed functions write those of the communicators that
 * they saw being made, and the profiler plug-in writes those of all others, such as a statically linked NCCL's.
 *
 * An interposed function that makes communicators expects each before it calls NCCL. NCCL then tells the plug-in that
 * there is a new communicator, and the plug-in asks here whether that one was expected. If so, it writes nothing of
 * it, and leaves what NCCL told it for the interposed functions. If not, the communicator is the plug-in's own.
 */
#ifndef CARILLON_OPS_H
#define CARILLON_OPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A communicator that interposition knows, in the interposed functions' table. Zeroed before ops_expect. */
struct ops_comm {
  struct ops_comm *next, **link;   /* in the list of those that are expected, under the lock; link is NULL outside of
                                      it */
  int32_t rank, size;              /* -1: not known before NCCL has made it, as after a split */
  int32_t thread;                  /* the thread that expects it */
  _Atomic uint64_t hash;           /* NCCL's number of the communicator, the same on all ranks; 0: not told yet */
  _Atomic int32_t nodes;           /* how many hosts its ranks are on; 0: not told yet */
  _Atomic uintptr_t context;       /* the plug-in's context of the communicator (profiler_depth.h); 0: not told yet */
};

/* Says that NCCL is about to be called to make a communicator. rank and size are -1 if they are not known yet. */
void ops_expect(struct ops_comm *, int32_t rank, int32_t size);

/* Says that the communicator was not made, or has ended. Does nothing if the communicator is not expected any more. */
void ops_forget(struct ops_comm *);

/* Tells the plug-in whether interposition sees a communicator that NCCL has made; context is the plug-in's context of
   it. Unknown arguments are -1, or 0 for hash and nodes. If several expected communicators fit, one that the same
   thread expects comes first. */
bool ops_claim(int32_t rank, int32_t size, uint64_t hash, int32_t nodes, uintptr_t context);

#endif
