//go:build ignore

#include "site.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tape_layout.h"

struct site site_now(const void *address, uint32_t thread) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (struct site){.address = address, .time = now.tv_sec * 1000000000LL + now.tv_nsec, .thread = thread};
}

struct site site_with_python(const void *address, uint32_t thread) {
  struct site site = site_now(address, thread);
  site.python = python_line();
  return site;
}

const struct tape_site *site_tell(const struct site *site, struct site_words *to) {
  to->site = (struct tape_site){.thread = site->thread, .time = site->time};
  if (site->python != NULL) {
    to->site.function = site->python->function;
    to->site.file = site->python->file;
    to->site.line = site->python->line;
    return &to->site;
  }
  Dl_info object;
  struct link_map *map;
  if (site->address == NULL || dladdr1(site->address, &object, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
      object.dli_fname == NULL) {
    return &to->site;
  }
  ssize_t length = -1;
  if (map->l_name[0] == '\0') { /* the program itself; dli_fname has the name by which it was called */
    length = readlink("/proc/self/exe", to->file, sizeof to->file - 1);
  }
  if (length >= 0) {
    to->file[length] = '\0';
  } else {
    snprintf(to->file, sizeof to->file, "%s", object.dli_fname);
  }
  const char *slash = strrchr(to->file, '/');
  const char *const base = slash != NULL ? slash + 1 : to->file;
  const size_t address = (uintptr_t)site->address - map->l_addr;
  snprintf(to->function, sizeof to->function, "%.120s+0x%zx", base, address);
  if (object.dli_sname != NULL) {
    char named[TAPE_MAX_SITE + 1]; /* a longer one would be cut; the address is enough for a reader */
    const int needs = snprintf(named, sizeof named, "%s+0x%zx in %s", object.dli_sname,
                               (size_t)((const char *)site->address - (const char *)object.dli_saddr), to->function);
    if (needs > 0 && (size_t)needs < sizeof named) {
      memcpy(to->function, named, (size_t)needs + 1);
    }
  }
  to->site.function = to->function;
  to->site.file = to->file;
  return &to->site;
}
