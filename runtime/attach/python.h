/*
 * Finds the line of Python that a call comes from, with CPython's function for signal handlers (faulthandler): it may
 * be called without the GIL, takes no lock, and changes nothing in the interpreter. Versions up to 3.12 export it, and
 * those from 3.15 on. It is not called while the interpreter is being finalized, as the interpreter then frees what the
 * function reads.
 */
#ifndef CARILLON_PYTHON_H
#define CARILLON_PYTHON_H

#include <stdint.h>

struct python_line {
  char function[64];
  char file[256]; /* only the end of a long name */
  int32_t line;
};

/* The line that the calling thread runs: the innermost of the program's own, or of a library if there is none. NULL:
   the thread runs no Python, or the line can't be found. A call takes a millisecond or more at worst, as CPython writes
   up to 100 frames in small pieces. Lines are kept forever, at most 256: few lines of a process make or end
   communicators. */
const struct python_line *python_line(void);

#endif
