//go:build ignore

#include "profiler_next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct plugin {
  const char *name;
  struct profiler_plugin is; /* is.version is the one that it shares with NCCL */
} plugins[PROFILER_NEXT];
static int count;

static void say(const char *name, const char *why) {
  fprintf(stderr, "carillon: the profiler plug-in %s of CARILLON_PROFILER_NEXT is left out: %s\n", name, why);
}

/* Opens a library, or appends the loader's message to why. */
static void *open_library(const char *name, char *why, size_t size) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const size_t used = strlen(why);
    snprintf(why + used, size - used, "%s%s", used > 0 ? "; " : "", dlerror());
  }
  return library;
}

/* Opens the plug-in that NCCL_PROFILER_PLUGIN=name stands for (NCCL's src/plugin/plugin_open.cc). NULL: there is none;
   why has the reason, unless it is fine that there is none. */
static void *open_plugin(const char *name, char *why, size_t size) {
  *why = '\0';
  if (strcasecmp(name, "none") == 0) {
    return NULL;
  }
  if (strcasecmp(name, "STATIC_PLUGIN") == 0) {
    return open_library(NULL, why, size); /* it is part of the program */
  }
  void *library = open_library(name, why, size);
  const size_t length = strlen(name);
  const bool whole = strncmp(name, "lib", 3) == 0 && strcmp(name + length - 3, ".so") == 0;
  if (library == NULL && !whole && strchr(name, '/') == NULL) {
    char longer[256];
    snprintf(longer, sizeof longer, "libnccl-profiler-%s.so", name);
    library = open_library(longer, why, size);
  }
  if (library == NULL && strcmp(name, "libnccl-profiler.so") == 0 && strncmp(why, name, length) == 0) {
    *why = '\0'; /* NCCL's default is missing. For a file that exists, the message would begin with its path */
  }
  return library;
}

/* Finds the versions that a library has. False: it has none. Carillon's own don't count: STATIC_PLUGIN finds them as
   well if they are preloaded. */
static bool find_versions(struct profiler_plugin *p, void *library) {
  Dl_info own, of;
  bool any = false;
  dladdr(plugins, &own);
  profiler_plugin_find(p, library);
  for (int v = 1; v <= PROFILER_NEWEST; v++) {
    if (p->versions[v] != NULL && dladdr(p->versions[v], &of) != 0 && of.dli_fbase == own.dli_fbase) {
      p->versions[v] = NULL;
    }
    any = any || p->versions[v] != NULL;
  }
  return any;
}

static bool loaded_before(const struct profiler_plugin *p) {
  for (int i = 0; i < count; i++) {
    if (memcmp(plugins[i].is.versions, p->versions, sizeof p->versions) == 0) {
      return true;
    }
  }
  return false;
}

static void load(const char *name) {
  char why[1024];
  struct plugin p = {.name = name};
  void *library = open_plugin(name, why, sizeof why);
  if (library == NULL) {
    if (*why != '\0') {
      say(name, why);
    }
    return;
  }
  if (!find_versions(&p.is, library)) {
    say(name, "it has none of ncclProfiler_v1 to ncclProfiler_v7, or is Carillon's own");
  } else if (!loaded_before(&p.is)) {
    if (count < PROFILER_NEXT) {
      plugins[count++] = p;
      return;
    }
    say(name, "no more than 4 can run beside Carillon's");
  }
  dlclose(library);
}

void profiler_next_load(void) {
  static bool loaded;
  const char *names = getenv("CARILLON_PROFILER_NEXT");
  if (loaded || names == NULL) {
    return;
  }
  loaded = true;
  char *rest = strdup(names), *save = NULL; /* never freed: plugins point into it */
  if (rest == NULL) {
    return;
  }
  for (char *name = strtok_r(rest, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
    load(name);
  }
}

void profiler_next_init(struct profiler_beside *b, int version, const struct profiler_made *made) {
  *b = (struct profiler_beside){0};
  for (int i = 0; i < count; i++) {
    struct plugin *p = &plugins[i];
    if (p->is.version == 0 && !profiler_plugin_choose(&p->is, version)) {
      say(p->name, "this NCCL speaks to plug-ins in a version that is older than all that it has");
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

void profiler_next_stop(int i, void *handle) {
  PROFILER_WITH(&plugins[i].is, plugins[i].is.version, stopEvent, handle);
}

void profiler_next_state(int i, int version, void *handle, int state, const void *args) {
  profiler_plugin_state(&plugins[i].is, version, handle, state, args);
}
