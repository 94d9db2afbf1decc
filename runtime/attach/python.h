/*
 * Which line of Python a call comes from, by what CPython has for signal handlers (faulthandler): it is called without
 * the GIL, takes no lock, and changes nothing of the interpreter. Versions to 3.12 export it, and again from 3.15 on.
 * An interpreter that is being finalized frees what it reads, so that it is not called then.
 */
#ifndef CARILLON_PYTHON_H
#define CARILLON_PYTHON_H

#include <stdint.h>

struct python_line {
  char function[64];
  char file[256]; /* of a long name, the end */
  int32_t line;
};

/* The line that the calling thread runs: the innermost of the program's own, or of a library if there is none. NULL: it
   runs no Python, or that can't be told. It takes up to a millisecond or more, as CPython writes up to 100 frames in
   small pieces. The line is kept: a process has few that make or end communicators, and no more than 256 are. */
const struct python_line *python_line(void);

#endif
