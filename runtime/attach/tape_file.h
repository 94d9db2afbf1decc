/**
 * @file
 * Makes the file of a tape: its name and folders, its size, its header, its mapping. Used only by tape.c.
 */
#ifndef CARILLON_TAPE_FILE_H
#define CARILLON_TAPE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tape_layout.h"

struct tape_config;

/** The number of entries of each part of a tape. */
struct tape_geometry {
  uint32_t slots, tallies, life_records, op_records;
};

/** The number of slots that have marks: the first ones. */
static inline uint32_t tape_marked(const struct tape_geometry *g) {
  return g->slots < TAPE_MAX_MARKED ? g->slots : TAPE_MAX_MARKED;
}

/** The offsets of a tape's parts, in bytes, and its end. */
struct tape_offsets {
  size_t slots, tallies, life_records, op_records, pages, reached, marks, end;
};

struct tape_offsets tape_offsets(const struct tape_geometry *geometry);

/** A tape's file, in memory. It is never unmapped. */
struct tape_file {
  uint8_t *memory; /**< NULL: there is none */
  struct tape_geometry geometry;
  int64_t slow;  /**< ns from which an operation is slow */
  int64_t stall; /**< ns from which it is stalled, for readers; 0: unknown */
  char path[FILENAME_MAX];
};

/**
 * Makes the tape of this process by config, and reports on stderr what is not as it should be. Works like tape.Make,
 * which defines the rules for size and directory, but removes no tapes of dead jobs.
 */
bool tape_file_make(const struct tape_config *config, struct tape_file *file);

/** The checksum of words, as telemetry/tape defines it. */
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

/** How many bytes of a text fit into n bytes without cutting a UTF-8 character in two. */
size_t tape_cut(const char *text, size_t n);

/** Puts a text into a field, followed by at least one NUL. */
void tape_put_text(uint8_t *field, size_t size, const char *text);

/** The time of day, and the time of the tape's clock, in ns. */
int64_t tape_wall(void);
int64_t tape_now(void);

#endif /* CARILLON_TAPE_FILE_H */
