/**
 * @file
 * The tape's clock: CLOCK_MONOTONIC, by the processor's counter where the kernel itself makes its clock of that. It
 * works as Go's (telemetry/tape/clock.go, which says how exact it is), costs half of what the kernel's costs, and is
 * apart from the rest so that tests can play clocks to it.
 */
#ifndef CARILLON_TAPE_CLOCK_H
#define CARILLON_TAPE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/** For how many ticks a line holds: 3 to 8 ms at the rates of today's counters. */
#define TAPE_LINE_TICKS (UINT64_C(1) << 24)

/**
 * By how many ticks a thread may read the counter behind a reading that another made before: processors execute the
 * instruction out of order, and those of a virtual machine may be apart. A counter that is further behind jumped.
 */
#define TAPE_SKEW_TICKS (UINT64_C(1) << 12)

/** The time by the counter, from one reading of both clocks on, the anchor. */
struct tape_line {
  uint64_t ticks, ticks_good; /**< the counter at the anchor, and for how many ticks the line holds; 0: it doesn't */
  int64_t mono;               /**< ns: the time that the line tells at the anchor */
  uint64_t slope;             /**< ns a tick, times 2^32 */
  int64_t kernel;             /**< ns: the kernel's time at the anchor; mono may be ahead of it */
  uint64_t measured;          /**< the kernel's slope before the anchor; 0 if unknown */
};

/** The time by the line when the counter is at ticks; false: it doesn't hold then. */
bool tape_line_at(const struct tape_line *line, uint64_t ticks, int64_t *mono);

/** The time up to which a line may have told it. */
int64_t tape_line_end(const struct tape_line *line);

/**
 * Has a line followed by the next, from a reading of both clocks on, and returns the time of that reading. The line
 * stays as it is if the reading is of no use: it was interrupted (not tight), or is too near to the anchor.
 */
int64_t tape_line_next(struct tape_line *line, uint64_t ticks, int64_t kernel, bool tight);

/**
 * Tells whether the processor's counter is as good as the kernel's clock with that source, as sysfs has it: as Go's
 * counterIsClock, which says why.
 */
bool tape_counter_is_clock(const char *source, bool is_invariant);

#endif /* CARILLON_TAPE_CLOCK_H */
