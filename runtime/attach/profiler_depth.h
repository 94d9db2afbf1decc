/*
 * Looks into single operations and groups of a communicator: what NCCL's proxies and kernels do for them. They are
 * those that are observed (tape_observes): the first, one every 30 s, and while the stream is slow one at a time.
 * NCCL is asked for nothing of any other.
 *
 * The plug-in looks into operations that are its own to write, too (profiler.c): the first, and one every 30 s.
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

/* What NCCL is asked for, so that it tells what an operation's proxies and kernels do. */
static inline uint32_t depth_mask(int version) {
  return PROFILER_PROXY_OP | PROFILER_PROXY_STEP | PROFILER_KERNEL_CH | (version >= 7 ? PROFILER_KERNEL_PHASE : 0);
}

enum { DEPTH_FLOWS = 16 }; /* pairs of a peer and a direction; what an operation has beyond them is not told */

/* The data that an operation sends to a peer, or receives, over the network: that of all its channels together. */
struct depth_flow {
  int32_t peer;
  bool sends;
  uint32_t steps[3];     /* those that wait for credit, for the network and for data */
  int64_t start, last;   /* of its first event, and of its last */
  int64_t longest;       /* for how long nothing happened */
  uint8_t waited;        /* and what the step waited for that came next then: a phase */
  uint64_t bytes;
};

struct depth {
  _Atomic uint32_t look; /* the number of the operation's look; 0: there is none */
  _Atomic bool asked;    /* the mask asks for more: the operation is being launched */
  pthread_mutex_t lock;  /* of what follows */
  uint32_t number;       /* of the last look */
  struct tape_comm *tape;
  struct tape_look of;
  uint32_t flows;
  struct depth_flow flow[DEPTH_FLOWS];
  struct {
    uint32_t open;       /* channels that run */
    uint64_t first, last; /* the device's clock, ns; 0: it isn't told */
    uint64_t met;         /* when all channels had met the other ranks' kernels; 0: it isn't told */
    int64_t start, end;   /* tape_now(); 0: no channel */
  } kernel;
  struct {
    int32_t peer;
    uint8_t phase;
    int64_t since;
  } shown; /* on the tape */
};

/* Looks into an operation that is about to be launched, by the plug-in's context of its communicator. What was seen of
   the one before is written. False: it doesn't, as there is no plug-in, or another thread has its lock. */
bool depth_begin(uintptr_t context, struct tape_comm *, const struct tape_look *);

/* Has NCCL tell more of the operations of a group that it takes up next, one of which depth_begin is about once they
   are to be launched. False, as above. */
bool depth_ask(uintptr_t context);

/* NCCL has taken the operation up, or won't. depth_begin or depth_ask has answered true. */
void depth_launched(uintptr_t context);

/* The operation is done, or nobody waits for it any more: what was seen is written, and the communicator's tape is not
   used afterwards. */
void depth_end(uintptr_t context);

/* For profiler.c, with the events of a communicator. */

/* The look that an event belongs to; 0: none. */
uint32_t depth_of(struct depth *, const struct profiler_event *);

void depth_start(struct depth *, struct slot *, uint32_t look, const struct profiler_event *);
void depth_state(struct depth *, struct slot *, int state, const union profiler_args *);
void depth_stop(struct depth *, const struct slot_contents *);

/* Whether the kernels of what is looked into have run, and its proxies wait for nothing. */
bool depth_done(struct depth *);

/* Begins a look, and ends it. */
void depth_open(struct depth *, struct tape_comm *, const struct tape_look *);
void depth_close(struct depth *);

#endif
