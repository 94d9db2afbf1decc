/**
 * A simulated interpreter that only writes a stack: the text on stdin. With an argument, it is being finalized. Prints
 * the line of Python that the library takes for the caller's.
 */
#include "../python.h"

#include <stdio.h>
#include <unistd.h>

static int ends; /* whether the interpreter is being finalized */

int Py_IsFinalizing(void);
int Py_IsFinalizing(void) { return ends; }

void *PyGILState_GetThisThreadState(void);
void *PyGILState_GetThisThreadState(void) { return stdin; }

void PyUnstable_DumpTraceback(int file, void *thread);
void PyUnstable_DumpTraceback(int file, void *thread) {
  char text[1 << 16];
  const size_t n = thread == stdin ? fread(text, 1, sizeof text, stdin) : 0;
  if (write(file, text, n) != (ssize_t)n) {
    _exit(1);
  }
}

int main(int argc, char **argv) {
  (void)argv;
  ends = argc > 1;
  const struct python_line *line = python_line();
  if (line == NULL) {
    puts("none");
  } else {
    printf("%s (%s:%d)\n", line->function, line->file, line->line);
  }
  return 0;
}
