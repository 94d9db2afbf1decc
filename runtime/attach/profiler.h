/*
 * The plug-in that NCCL tells of its events: ncclProfiler_v1 to ncclProfiler_v7.
 *
 *   NCCL ── ncclProfiler_vN ── profiler.c ─┬─ profiler_tape.c   operations of communicators that interposition
 *                                          │                    doesn't see (ops.h), onto the tape
 *                                          └─ profiler_next.c   the plug-ins of CARILLON_PROFILER_NEXT
 *
 * A context and a handle that NCCL is given are tokens: the number of a slot in a table and its generation. None is
 * ever followed as a pointer, so what NCCL passes that isn't ours, or isn't any more, is told by its bits alone. An
 * event that nobody reads has no handle; NCCL then calls for no state and no stop of it.
 */
#ifndef CARILLON_PROFILER_H
#define CARILLON_PROFILER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../profiler/native/profiler_abi.h"

enum {
  PROFILER_SLOTS = 1 << 14, /* events that are open at once */
  PROFILER_COMMS = 1 << 10, /* communicators that are alive at once */
  PROFILER_NEXT = 4,        /* plug-ins beside this one */
  PROFILER_JOINED = 8,      /* communicators of one group of which the operations end with the group */
};

/* What was odd about the calls so far. */
struct profiler_counts {
  _Atomic uint64_t
      foreign,   /* events of another process (PXN), which were left alone */
      stray,     /* starts with a context that isn't ours or has ended */
      unknown,   /* stops and states of what is no event of ours */
      twice,     /* stops of what had just been stopped, or whose communicator had ended */
      late,      /* stops and states of what was stopped so long ago that its slot has another event */
      after,     /* states of what had just been stopped */
      never,     /* events that were not stopped when their communicator ended, or long after they began */
      exhausted, /* events that found no slot, and communicators that found none */
      busy,      /* operations not written since two threads used one communicator at once for too long */
      overruled; /* times that another writer of the mask was noticed */
};

extern struct profiler_counts profiler_counts;

static inline void profiler_count(_Atomic uint64_t *counter) {
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif
