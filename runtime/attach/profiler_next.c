//go:build ignore

#include "profiler_next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct plugin {
  char *path;
  struct profiler_plugin is; /* its version is the one that NCCL and it share */
} plugins[PROFILER_NEXT];
static int count;

static void say(const char *path, const char *why) {
  fprintf(stderr, "carillon: the profiler plug-in %s of CARILLON_PROFILER_NEXT is left out: %s\n", path, why);
}

static void load(char *path) {
  if (count == PROFILER_NEXT) {
    say(path, "no more than 4 can run beside Carillon's");
    return;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say(path, dlerror());
    return;
  }
  struct plugin *p = &plugins[count];
  const bool any = profiler_plugin_find(&p->is, library);
  extern const struct profiler_v7 ncclProfiler_v7;
  if (p->is.versions[7] == &ncclProfiler_v7) {
    say(path, "it is Carillon's own");
  } else if (!any) {
    say(path, "it has none of ncclProfiler_v1 to ncclProfiler_v7");
  } else {
    p->path = path;
    count++;
    return;
  }
  memset(p, 0, sizeof *p);
  dlclose(library);
}

void profiler_next_load(void) {
  static bool loaded;
  const char *names = getenv("CARILLON_PROFILER_NEXT");
  if (loaded || names == NULL) {
    return;
  }
  loaded = true;
  char *rest = strdup(names), *save = NULL; /* kept: paths are said later */
  if (rest == NULL) {
    return;
  }
  for (char *path = strtok_r(rest, ",", &save); path != NULL; path = strtok_r(NULL, ",", &save)) {
    load(path);
  }
}

void profiler_next_init(struct profiler_beside *b, int version, const struct profiler_made *made) {
  *b = (struct profiler_beside){0};
  for (int i = 0; i < count; i++) {
    struct plugin *p = &plugins[i];
    if (p->is.version == 0 && !profiler_plugin_choose(&p->is, version)) {
      say(p->path, "this NCCL speaks to plug-ins in a version that is older than all that it has");
    }
    if (p->is.version > 0 && profiler_plugin_init(&p->is, &b->context[i], made) == 0) {
      b->with |= 1u << i;
    }
  }
}

void profiler_next_finalize(struct profiler_beside *b) {
  for (int i = 0; i < count; i++) {
    if (b->with & 1u << i) {
      PROFILER_WITH(&plugins[i].is, plugins[i].is.version, finalize, b->context[i]);
    }
  }
  b->with = 0;
}

static uint32_t asked(int i) { return profiler_plugin_mask(&plugins[i].is); }

uint32_t profiler_next_mask(void) {
  uint32_t mask = 0;
  for (int i = 0; i < count; i++) {
    mask |= asked(i);
  }
  return mask;
}

uint32_t profiler_next_wanting(const struct profiler_beside *b, uint64_t type) {
  uint32_t wanting = 0;
  for (int i = 0; b->with >> i != 0; i++) {
    if ((b->with & 1u << i) != 0 && (asked(i) & profiler_asked_by(type)) != 0) {
      wanting |= 1u << i;
    }
  }
  return wanting;
}

void *profiler_next_start(const struct profiler_beside *b, int i, int version, const struct profiler_event *event,
                          const void *descr, void *parent, void *group) {
  return profiler_plugin_start(&plugins[i].is, b->context[i], version, event, descr, parent, group);
}

void profiler_next_stop(int i, void *handle) { PROFILER_WITH(&plugins[i].is, plugins[i].is.version, stopEvent, handle); }

void profiler_next_state(int i, int version, void *handle, int state, const void *args) {
  profiler_plugin_state(&plugins[i].is, version, handle, state, args);
}
