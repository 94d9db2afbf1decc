/*
 * The plug-ins that run beside this one: CARILLON_PROFILER_NEXT=mine,/x/b.so. Each name means what it would mean in
 * NCCL_PROFILER_PLUGIN. A plug-in is loaded at the newest version that it has and that is no newer than the one that
 * NCCL uses with us. It is told what NCCL would tell it: the events that it asked for and their parents, with its own
 * handles as parents.
 */
#ifndef CARILLON_PROFILER_NEXT_H
#define CARILLON_PROFILER_NEXT_H

#include "profiler.h"

#include "../profiler/native/profiler_plugin.h"

/* What the other plug-ins know of one communicator: plug-in i has context[i], if bit i of with is set. */
struct profiler_beside {
  uint32_t with;
  void *context[PROFILER_NEXT];
};

/* Loads the plug-ins, once per process. A plug-in that can't be loaded is reported on stderr and left out, except for a
   missing libnccl-profiler.so, which is NCCL's default. */
void profiler_next_load(void);

/* Tells the other plug-ins of a communicator. A plug-in that refuses it is not told of its events. */
void profiler_next_init(struct profiler_beside *, int version, const struct profiler_made *);
void profiler_next_finalize(struct profiler_beside *);

/* The events that all of them together asked for. They may change this at any time. */
uint32_t profiler_next_mask(void);

/* The plug-ins that are to be told of an event of that type, among those that have the communicator: a bit for each. */
uint32_t profiler_next_wanting(const struct profiler_beside *, uint64_t type);

/* Tells plug-in i of an event, and returns that plug-in's handle. descr is the event as NCCL passed it in that version;
   parent and group are the plug-in's handles of the event's parentObj and parentGroup. */
void *profiler_next_start(const struct profiler_beside *, int i, int version, const struct profiler_event *,
                          const void *descr, void *parent, void *group);
void profiler_next_stop(int i, void *handle);
void profiler_next_state(int i, int version, void *handle, int state, const void *args);

#endif
