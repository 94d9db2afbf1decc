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

/* One communicator that interposition knows, in the interposed functions' table. Zeroed before it is expected. */
struct ops_comm {
  struct ops_comm *next, **link;   /* of those that are expected, under the lock; link is NULL if it is not */
  int32_t rank, size;              /* -1: not known before NCCL has made it, as of a split */
  int32_t thread;                  /* that expects it */
  _Atomic uint64_t hash;           /* NCCL's number of the communicator, which all ranks know it by; 0: not told */
  _Atomic int32_t nodes;           /* how many hosts its ranks are on; 0: not told */
  _Atomic uintptr_t context;       /* the plug-in's of the communicator (profiler_depth.h); 0: not told */
};

/* Says that NCCL is about to be called to make a communicator. rank and size are -1 if they are not known yet. */
void ops_expect(struct ops_comm *, int32_t rank, int32_t size);

/* Says that the communicator was not made, or has ended. One that is not expected any more is left as it is. */
void ops_forget(struct ops_comm *);

/* Asks for the plug-in whether interposition sees a communicator that NCCL has made, for which it has that context.
   What is not known is -1, or 0 for hash and nodes. If several are expected that could be it, one that the same thread
   expects comes first. */
bool ops_claim(int32_t rank, int32_t size, uint64_t hash, int32_t nodes, uintptr_t context);

#endif
