/*
 * Where and when a call was made. It is worked out when somebody asks, but for the line of Python, which only the call
 * itself can tell.
 */
#ifndef CARILLON_SITE_H
#define CARILLON_SITE_H

#include <stdint.h>

#include "python.h"
#include "tape.h"

struct site {
  const void *address;              /* to which the call returns; NULL: unknown */
  const struct python_line *python; /* NULL: none, or unknown */
  int64_t time;                     /* of day: ns since 1970 */
  uint32_t thread;                  /* gettid */
};

/* Where the function is called that uses this. */
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* Now. It costs a reading of the clock. */
struct site site_now(const void *address, uint32_t thread);

/* The same, with the line of Python that the calling thread runs: for acts, and for what is refused. */
struct site site_with_python(const void *address, uint32_t thread);

/* A site in words, and the memory that they are in. */
struct site_words {
  struct tape_site site;
  char function[512]; /* "step+0x4a in train.so+0x1f2c": to where the call returns, by the symbol, if one is exported
                         and not too long, and by the object: its own address, before it was loaded somewhere; of
                         Python "step" */
  char file[4096];    /* the object's path */
};

/* Says where a site is; what is not known of it stays unknown. What it returns points into the words. */
const struct tape_site *site_tell(const struct site *, struct site_words *);

#endif
