/*
 * Where and when a call was made. The names are worked out only when somebody asks, except for the line of Python,
 * which must be read during the call.
 */
#ifndef CARILLON_SITE_H
#define CARILLON_SITE_H

#include <stdint.h>

#include "python.h"
#include "tape.h"

struct site {
  const void *address;              /* the call's return address; NULL: unknown */
  const struct python_line *python; /* NULL: none, or unknown */
  int64_t time;                     /* ns since 1970 */
  uint32_t thread;                  /* gettid */
};

/* The return address of the function that uses this. */
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* A site with the time of now. Costs one reading of the clock. */
struct site site_now(const void *address, uint32_t thread);

/* The same, with the line of Python that the calling thread runs: for acts, and for refused calls. */
struct site site_with_python(const void *address, uint32_t thread);

/* A site in words, and the memory that holds them. */
struct site_words {
  struct tape_site site;
  char function[512]; /* the return address, "step+0x4a in train.so+0x1f2c": relative to the symbol, if one is exported
                         and not too long, and relative to the object, as in its file; or the Python function, "step" */
  char file[4096];    /* the object's path */
};

/* Puts a site into words; unknown parts stay unknown. The result points into site_words. */
const struct tape_site *site_tell(const struct site *, struct site_words *);

#endif
