// The package's calls of a plug-in, with values that Go can pass. Contexts and handles are the plug-in's bits, which Go
// does not treat as pointers.
#pragma once

#include <stdint.h>

#include "profiler_plugin.h"

// event is one of Carillon's events: only the fields of its type are set.
struct event {
  uint64_t type;
  uintptr_t parent, group; // the plug-in's handles
  int32_t rank;
  const char *func, *datatype, *algo; // these stay valid
  const char *name;                   // of the communicator
  uint64_t hash;                      // likewise
  uint64_t seq, count;
  uintptr_t send, recv;
  int32_t peer; // or root
  int32_t pid, channel, steps, chunk, is_send, step;
};

// plugin_open loads a library. It returns NULL, and text says why, if the library can't be loaded or is not a plug-in.
struct profiler_plugin *plugin_open(const char *path, const char **text);

int plugin_init(struct profiler_plugin *, uintptr_t *context, uint64_t hash, const char *name, int nodes, int size,
                int rank);
uintptr_t plugin_start(const struct profiler_plugin *, uintptr_t context, const struct event *);
void plugin_state(const struct profiler_plugin *, uintptr_t handle, int state, uint64_t n);
void plugin_stop(const struct profiler_plugin *, uintptr_t handle);
void plugin_finalize(const struct profiler_plugin *, uintptr_t context);
