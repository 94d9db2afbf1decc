/*
 * Looks into single operations and groups of a communicator: records what NCCL's proxies and kernels do for them. These
 * are the operations that are observed (tape_observes): the first, one every 30 s, and one at a time while the stream
 * is slow. For all other operations NCCL is asked for nothing.
 *
 * The plug-in also looks into operations that it writes itself (profiler.c): the first, and one every 30 s.
 *
 *   stream.c ── depth_begin ──▶ the mask asks for more          (profiler.c)
 *            ── depth_launched ──▶ and no longer: NCCL reads the mask when it takes an operation up; up to version
 *                                  2.27, it reads it for a group when that is launched
 *   NCCL ── events of that operation ──▶ profiler.c ── depth_start, _state, _stop ──▶ tape_waits
 *   stream.c ── depth_end ──▶ tape_proxied, tape_kernel
 */
#ifndef CARILLON_PROFILER_DEPTH_H
#define CARILLON_PROFILER_DEPTH_H

#include <pthread.h>

#include "profiler_slot.h"
#include "tape.h"

/* The events that make NCCL tell what an operation's proxies and kernels do. */
static inline uint32_t depth_mask(int version) {
  return PROFILER_PROXY_OP | PROFILER_PROXY_STEP | PROFILER_KERNEL_CH | (version >= 7 ? PROFILER_KERNEL_PHASE : 0);
}

enum { DEPTH_FLOWS = 16 }; /* pairs of a peer and a direction; an operation's further flows are not recorded */

/* The data that an operation sends to a peer over the network, or receives from it, on all channels together. */
struct depth_flow {
  int32_t peer;
  bool sends;
  uint32_t steps[3];     /* how many steps wait for credit, for the network and for data */
  int64_t start, last;   /* times of its first and its last event */
  int64_t longest;       /* the longest time without an event */
  uint8_t waited;        /* what the step that ended that time had waited for: a phase */
  uint64_t bytes;
};

struct depth {
  _Atomic uint32_t look; /* the number of the current look; 0: none */
  _Atomic bool asked;    /* the mask asks for more: the operation is being launched */
  pthread_mutex_t lock;  /* guards the fields below */
  uint32_t number;       /* the number of the last look */
  struct tape_comm *tape;
  struct tape_look of;
  uint32_t flows;
  struct depth_flow flow[DEPTH_FLOWS];
  struct {
    uint32_t open;       /* channels that are running */
    uint64_t first, last; /* by the device's clock, ns; 0: not told */
    uint64_t met;         /* when all channels had met the kernels of the other ranks; 0: not told */
    int64_t start, end;   /* tape_now(); 0: no channel has started, or ended */
  } kernel;
  struct {
    int32_t peer;
    uint8_t phase;
    int64_t since;
  } shown; /* what the tape shows */
};

/* Looks into an operation that is about to be launched; context is the plug-in's context of its communicator. Writes
   what was seen of the operation before. False: it doesn't look, because there is no plug-in, or another thread has its
   lock. */
bool depth_begin(uintptr_t context, struct tape_comm *, const struct tape_look *);

/* Makes NCCL tell more about the operations of a group that it takes up next. depth_begin follows for one of them, once
   they are about to be launched. False, as above. */
bool depth_ask(uintptr_t context);

/* NCCL has taken the operation up, or won't. Called after depth_begin or depth_ask has returned true. */
void depth_launched(uintptr_t context);

/* The operation is done, or nobody waits for it any more. Writes what was seen; the communicator's tape is not used
   afterwards. */
void depth_end(uintptr_t context);

/* Called by profiler.c with the events of a communicator. */

/* The number of the look that an event belongs to; 0: none. */
uint32_t depth_of(struct depth *, const struct profiler_event *);

void depth_start(struct depth *, struct slot *, uint32_t look, const struct profiler_event *);
void depth_state(struct depth *, struct slot *, int state, const union profiler_args *);
void depth_stop(struct depth *, const struct slot_contents *);

/* Whether the kernels of what is looked into have run and its proxies wait for nothing. */
bool depth_done(struct depth *);

/* Begin and end a look. */
void depth_open(struct depth *, struct tape_comm *, const struct tape_look *);
void depth_close(struct depth *);

#endif
