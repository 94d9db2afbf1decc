/*
 * Writes the tape of communicators that interposition doesn't see, from what NCCL tells its profiler plug-in. From
 * version 5 on, a collective begins with its API event, which is the call, and a send or receive with its own event,
 * which is the first to tell the peer. Both end when the group that they were called in ends, which is when they are
 * enqueued. Up to version 4, there are only events of the enqueueing itself.
 *
 * Versions up to 3 don't tell the number of ranks. Versions up to 4 show what NCCL made of a call: all-gather and
 * broadcast are of bytes there. Only version 1 tells the reduction.
 */
#ifndef CARILLON_PROFILER_TAPE_H
#define CARILLON_PROFILER_TAPE_H

#include "profiler_next.h"
#include "tape.h"

/* A communicator on the tape. Zeroed before its first use. */
struct profiler_tape {
  atomic_flag turn; /* held by the thread that uses the fields below */
  atomic_bool lost; /* an operation was not written */
  bool open;        /* between open and close */
  struct tape_comm *comm;
  struct tape_info info;
  uint64_t launched, ended; /* operations, by tape_op_start's numbers */
  uint64_t collectives;
  uint32_t (*messages)[2]; /* per peer, messages sent to it and received from it; NULL: not counted */
  int32_t peers;
};

/* Begins a communicator. Up to version 3, the tape shows it only from its first operation on. Allocates. */
void profiler_tape_open(struct profiler_tape *, int version, const struct profiler_made *);

/* Ends the communicator and all that is in flight on it. Frees. */
void profiler_tape_close(struct profiler_tape *);

/* Whether an event of that type begins an operation. */
bool profiler_tape_begins(int version, uint64_t type);

/* Records that operations were not written: the communicator's messages are not counted any more. */
void profiler_tape_lost(struct profiler_tape *);

/* Begins an operation with an event. Returns its number, or 0 if it isn't on the tape. */
uint64_t profiler_tape_start(struct profiler_tape *, const struct profiler_event *);

/* Gets the operation for a look (profiler_depth.h). False if it isn't the one that began last. */
bool profiler_tape_look(struct profiler_tape *, uint64_t operation, struct tape_look *);

/* Ends all operations up to that number; 0: all. */
void profiler_tape_end(struct profiler_tape *, uint64_t operation);

#endif
