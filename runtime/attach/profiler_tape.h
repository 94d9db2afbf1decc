/*
 * The tape of communicators that interposition doesn't see, from what NCCL tells its profiler plug-in. From version 5
 * on, a collective is an operation from its API event on, which is its call, and a send or receive from its own event
 * on, which is the first to say its peer; both end when the group that they were called in ends: they are enqueued
 * then. Up to version 4, there are only events of the enqueueing itself.
 *
 * Versions up to 3 don't say how many ranks there are, and those up to 4 show what NCCL made of a call: all-gather and
 * broadcast are of bytes there. No version but the first says which reduction it was.
 */
#ifndef CARILLON_PROFILER_TAPE_H
#define CARILLON_PROFILER_TAPE_H

#include "profiler_next.h"
#include "tape.h"

/* A communicator on the tape. Zeroed before its first use. */
struct profiler_tape {
  atomic_flag turn; /* whoever uses what follows has it */
  atomic_bool lost; /* an operation was not written */
  bool open;        /* between open and close */
  struct tape_comm *comm;
  struct tape_info info;
  uint64_t launched, ended; /* operations, by tape_op_start's numbers */
  uint64_t collectives;
  uint32_t (*messages)[2]; /* for each peer, those sent to it and received from it; NULL: not counted */
  int32_t peers;
};

/* Begins a communicator. Up to version 3, it is on the tape from its first operation on. Allocates. */
void profiler_tape_open(struct profiler_tape *, int version, const struct profiler_made *);

/* Ends it, with all that is in flight. Frees. */
void profiler_tape_close(struct profiler_tape *);

/* Says whether an operation begins with that event. */
bool profiler_tape_begins(int version, uint64_t type);

/* Says that operations were not written: the communicator's messages are not counted any more. */
void profiler_tape_lost(struct profiler_tape *);

/* Begins an operation with an event. Answers its number, or 0 if it isn't on the tape. */
uint64_t profiler_tape_start(struct profiler_tape *, const struct profiler_event *);

/* How the operation that began last is looked into (profiler_depth.h). False: that isn't this one. */
bool profiler_tape_look(struct profiler_tape *, uint64_t operation, struct tape_look *);

/* Ends all operations up to that number; 0: all. */
void profiler_tape_end(struct profiler_tape *, uint64_t operation);

#endif
