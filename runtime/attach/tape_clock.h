/**
 * @file
 * The tape's clock: CLOCK_MONOTONIC, read from the processor's counter where the kernel derives its own clock from
 * that. It works like Go's (telemetry/tape/clock.go, which says how exact it is) and costs half as much as the
 * kernel's. It is in a file of its own so that tests can simulate clocks.
 */
#ifndef CARILLON_TAPE_CLOCK_H
#define CARILLON_TAPE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/** The number of ticks for which a line holds: 3 to 8 ms at the rates of today's counters. */
#define TAPE_LINE_TICKS (UINT64_C(1) << 24)

/**
 * How many ticks a thread's reading of the counter may be behind an earlier reading by another thread: processors
 * execute the instruction out of order, and those of a virtual machine may be apart. A counter that is further behind
 * has jumped.
 */
#define TAPE_SKEW_TICKS (UINT64_C(1) << 12)

/** The time by the counter, starting from one reading of both clocks, the anchor. */
struct tape_line {
  uint64_t ticks, ticks_good; /**< the counter at the anchor, and for how many ticks the line holds; 0: it doesn't
                                   hold */
  int64_t mono;               /**< ns: the line's time at the anchor */
  uint64_t slope;             /**< ns a tick, times 2^32 */
  int64_t kernel;             /**< ns: the kernel's time at the anchor; mono may be ahead of it */
  uint64_t measured;          /**< the kernel's slope before the anchor; 0 if unknown */
};

/** The time by the line when the counter is at ticks; false: the line doesn't hold then. */
bool tape_line_at(const struct tape_line *line, uint64_t ticks, int64_t *mono);

/** The latest time that the line may have returned. */
int64_t tape_line_end(const struct tape_line *line);

/**
 * Replaces a line by the next one, which starts at a reading of both clocks, and returns the time of that reading. The
 * line stays as it is if the reading is of no use: it was interrupted (not tight), or is too near to the anchor.
 */
int64_t tape_line_next(struct tape_line *line, uint64_t ticks, int64_t kernel, bool tight);

/**
 * Whether the processor's counter is as good as the kernel's clock with that clock source, named as in sysfs: like Go's
 * counterIsClock, which has the reasons.
 */
bool tape_counter_is_clock(const char *source, bool is_invariant);

#endif /* CARILLON_TAPE_CLOCK_H */
