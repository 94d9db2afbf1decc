/*
 * The plug-in that NCCL tells of its events: ncclProfiler_v1 to ncclProfiler_v7.
 *
 *   NCCL ── ncclProfiler_vN ── profiler.c ─┬─ profiler_tape.c   operations of communicators that interposition
 *                                          │                    doesn't see (ops.h), onto the tape
 *                                          └─ profiler_next.c   the plug-ins of CARILLON_PROFILER_NEXT
 *
 * The contexts and handles that NCCL gets are tokens: the number of a slot in a table and its generation. No token is
 * ever followed as a pointer, so the bits alone tell whether what NCCL passes is ours, and still valid. An event that
 * nobody reads has no handle; NCCL then makes no state or stop calls for it.
 */
#ifndef CARILLON_PROFILER_H
#define CARILLON_PROFILER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../profiler/native/profiler_abi.h"
#include "tape.h"
#include "tape_layout.h"

enum {
  PROFILER_SLOTS = 1 << 14, /* events that are open at once */
  PROFILER_COMMS = 1 << 10, /* communicators that are alive at once */
  PROFILER_NEXT = 4,        /* other plug-ins beside this one */
  PROFILER_JOINED = 8,      /* communicators whose operations end with one group */
};

/* The number of unexpected calls so far, by TAPE_UNEXPECTED_*. */
extern _Atomic uint64_t profiler_counts[TAPE_UNEXPECTED_KINDS];

/* Counts an unexpected call, here and on the tape. */
static inline void profiler_count(size_t kind) {
  atomic_fetch_add_explicit(&profiler_counts[kind], 1, memory_order_relaxed);
  tape_unexpected(kind);
}

#endif
