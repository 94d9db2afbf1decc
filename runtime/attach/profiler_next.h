/*
 * The plug-ins that run beside this one: CARILLON_PROFILER_NEXT=mine,/x/b.so. Each is what NCCL_PROFILER_PLUGIN would
 * stand for with that name. It is loaded at the newest version that it has and that is no newer than the one by which
 * NCCL calls us, and is told what NCCL would tell it: the events that it asked for and their parents, with its own
 * handles as parents.
 */
#ifndef CARILLON_PROFILER_NEXT_H
#define CARILLON_PROFILER_NEXT_H

#include "profiler.h"

#include "../profiler/native/profiler_plugin.h"

/* What one communicator is to the others: each one's context, if its bit is in with. */
struct profiler_beside {
  uint32_t with;
  void *context[PROFILER_NEXT];
};

/* Loads the plug-ins, once a process. What can't be loaded is said on stderr and left out; a missing
   libnccl-profiler.so, NCCL's default, is not said. */
void profiler_next_load(void);

/* Tells the others of a communicator. One that refuses it is not told of its events. */
void profiler_next_init(struct profiler_beside *, int version, const struct profiler_made *);
void profiler_next_finalize(struct profiler_beside *);

/* The events that all of them together asked for. They may change it at any time. */
uint32_t profiler_next_mask(void);

/* Which of those that have the communicator are to be told of an event of that type. */
uint32_t profiler_next_wanting(const struct profiler_beside *, uint64_t type);

/* Tells one of them of an event, and answers its handle. descr is the event as NCCL of that version gave it; parent and
   group are that one's handles of the event's parentObj and parentGroup. */
void *profiler_next_start(const struct profiler_beside *, int i, int version, const struct profiler_event *,
                          const void *descr, void *parent, void *group);
void profiler_next_stop(int i, void *handle);
void profiler_next_state(int i, int version, void *handle, int state, const void *args);

#endif
