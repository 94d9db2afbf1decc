/**
 * @file
 * Making the file of a tape: its name and folders, its size, its header, its mapping. For tape.c alone.
 */
#ifndef CARILLON_TAPE_FILE_H
#define CARILLON_TAPE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tape_layout.h"

struct tape_config;

/** How many of each part a tape has. */
struct tape_geometry {
  uint32_t slots, tallies, life_records, op_records;
};

/** How many slots have marks: the first ones. */
static inline uint32_t tape_marked(const struct tape_geometry *g) {
  return g->slots < TAPE_MAX_MARKED ? g->slots : TAPE_MAX_MARKED;
}

/** Where the parts of a tape lie, in bytes, and where it ends. */
struct tape_offsets {
  size_t slots, tallies, life_records, op_records, pages, reached, marks, end;
};

struct tape_offsets tape_offsets(const struct tape_geometry *geometry);

/** A tape's file, in memory. It is never unmapped. */
struct tape_file {
  uint8_t *memory; /**< NULL: none */
  struct tape_geometry geometry;
  int64_t slow;  /**< ns from which an operation is slow */
  int64_t stall; /**< ns from which it is stalled, for readers; 0: not known */
  char path[FILENAME_MAX];
};

/**
 * Makes the tape of this process as config says, and tells on stderr what is not as it should be: like tape.Make, which
 * has the rule for its size and its directory, but that it removes no tapes of dead jobs.
 */
bool tape_file_make(const struct tape_config *config, struct tape_file *file);

/** The check of words, as telemetry/tape defines it. */
static inline uint64_t tape_mix(uint64_t h) {
  h ^= h >> 32;
  h *= UINT64_C(0x9E3779B97F4A7C15);
  return h >> 32;
}

static inline uint64_t tape_rotate(uint64_t h) { return h << 9 | h >> 55; }

static inline uint64_t tape_check(uint64_t seed, const uint64_t *words, size_t n) {
  uint64_t h = seed;
  for (size_t i = 0; i < n; i++) {
    h = tape_rotate(h) ^ words[i];
  }
  return tape_mix(h);
}

/** How much of a text fits into n bytes, with no character of UTF-8 cut in two. */
size_t tape_cut(const char *text, size_t n);

/** Puts a text into a field, with at least one NUL behind it. */
void tape_put_text(uint8_t *field, size_t size, const char *text);

/** The time of day, and the clock of the tape, in ns. */
int64_t tape_wall(void);
int64_t tape_now(void);

#endif /* CARILLON_TAPE_FILE_H */
