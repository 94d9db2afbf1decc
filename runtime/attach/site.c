//go:build ignore

#include "site.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct site site_now(const void *address, uint32_t thread) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (struct site){.address = address, .time = now.tv_sec * 1000000000LL + now.tv_nsec, .thread = thread};
}

const struct tape_site *site_tell(const struct site *site, struct site_words *to) {
  to->site = (struct tape_site){.thread = site->thread, .time = site->time};
  Dl_info object;
  if (site->address == NULL || dladdr(site->address, &object) == 0 || object.dli_fname == NULL) {
    return &to->site;
  }
  ssize_t length = -1;
  if (object.dli_fname[0] != '/') { /* the program itself, as it was called */
    length = readlink("/proc/self/exe", to->file, sizeof to->file - 1);
  }
  if (length >= 0) {
    to->file[length] = '\0';
  } else {
    snprintf(to->file, sizeof to->file, "%s", object.dli_fname);
  }
  const char *slash = strrchr(to->file, '/');
  int symbol = 0;
  if (object.dli_sname != NULL) {
    symbol = snprintf(to->function, sizeof to->function, "%.300s+0x%zx in ", object.dli_sname,
                                (size_t)((const char *)site->address - (const char *)object.dli_saddr));
  }
  snprintf(to->function + symbol, sizeof to->function - (size_t)symbol, "%.120s+0x%zx",
           slash != NULL ? slash + 1 : to->file, (size_t)((const char *)site->address - (const char *)object.dli_fbase));
  to->site.function = to->function;
  to->site.file = to->file;
  return &to->site;
}
