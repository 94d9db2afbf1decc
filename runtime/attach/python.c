//go:build ignore

#include "python.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOSE_ON_EXEC 1U /* MFD_CLOEXEC */

/* The interpreter's function under its newer or its older name; NULL: there is none. */
static void *function(const char *newer, const char *older) {
  void *const found = dlsym(RTLD_DEFAULT, newer);
  return found != NULL ? found : dlsym(RTLD_DEFAULT, older);
}

/* Writes the calling thread's stack, innermost first: lines like `  File "train.py", line 12 in step`. False: it has no
   Python stack, or the interpreter is being finalized, which frees the states of threads. */
static bool write_stack(int file) {
  int (*finalizing)(void);
  void *(*state)(void);
  void (*dump)(int, void *);
  *(void **)&finalizing = function("Py_IsFinalizing", "_Py_IsFinalizing");
  *(void **)&state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  *(void **)&dump = function("PyUnstable_DumpTraceback", "_Py_DumpTraceback");
  dlerror(); /* dlerror must report only the program's own errors */
  void *const thread =
      finalizing != NULL && state != NULL && dump != NULL && finalizing() == 0 ? state() : NULL;
  if (thread != NULL) {
    dump(file, thread);
  }
  return thread != NULL;
}

/* Reads the stack through a file in memory: a pipe may be too small, as this thread reads only after it has written
   all. */
static bool read_stack(char *text, size_t size) {
  const int file = (int)syscall(SYS_memfd_create, "carillon", CLOSE_ON_EXEC);
  const ssize_t n = file >= 0 && write_stack(file) ? pread(file, text, size - 1, 0) : 0;
  if (file >= 0) {
    close(file);
  }
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

/* Parses a frame from its line of text. It puts NULs into the text. */
static bool parse(char *text, struct python_line *frame) {
  static const char begin[] = "  File \"", middle[] = "\", line ", end[] = " in ";
  char *const after = strstr(text, middle);
  if (strncmp(text, begin, sizeof begin - 1) != 0 || after == NULL) {
    return false;
  }
  *after = '\0';
  char *name;
  const long line = strtol(after + sizeof middle - 1, &name, 10);
  if (line <= 0 || line > INT32_MAX || strncmp(name, end, sizeof end - 1) != 0) {
    return false;
  }
  memset(frame, 0, sizeof *frame);
  frame->line = (int32_t)line;
  snprintf(frame->function, sizeof frame->function, "%s", name + sizeof end - 1);
  const char *file = text + sizeof begin - 1;
  const size_t length = strlen(file);
  snprintf(frame->file, sizeof frame->file, "%s",
           length < sizeof frame->file ? file : file + length - sizeof frame->file + 1);
  return true;
}

/* Whether a file belongs to the interpreter or to an installed package. */
static bool of_library(const char *file) {
  return strncmp(file, "<frozen ", 8) == 0 || strstr(file, "/lib/python3") != NULL ||
         strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL;
}

static bool find(struct python_line *found) {
  char text[16384], *rest = text;
  bool any = false;
  if (!read_stack(text, sizeof text)) {
    return false;
  }
  for (char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) { /* the last one may be cut */
    struct python_line frame;
    if (!parse(line, &frame)) {
      continue;
    }
    const bool own = !of_library(frame.file);
    if (own || !any) {
      *found = frame;
      any = true;
    }
    if (own) {
      break;
    }
  }
  return any;
}

/* Returns the kept copy of a line, which is made if there is room; else NULL. */
static const struct python_line *keep(const struct python_line *line) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct python_line kept[256];
  static size_t n;
  const struct python_line *it = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < n && it == NULL; i++) {
    it = memcmp(&kept[i], line, sizeof *line) == 0 ? &kept[i] : NULL;
  }
  if (it == NULL && n < sizeof kept / sizeof *kept) {
    kept[n] = *line;
    it = &kept[n++];
  }
  pthread_mutex_unlock(&lock);
  return it;
}

const struct python_line *python_line(void) {
  const int error = errno;
  struct python_line line;
  const struct python_line *it = find(&line) ? keep(&line) : NULL;
  errno = error;
  return it;
}
