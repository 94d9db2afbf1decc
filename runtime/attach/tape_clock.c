// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tape_file.h"

/* The processor's counter, if it can be read for less than the kernel's clock costs, and whether it never stops or
   changes its rate. */
#ifdef __x86_64__
#include <cpuid.h>

static inline uint64_t counter(void) { return __builtin_ia32_rdtsc(); }
static bool invariant(void) {
  unsigned a, b, c, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
}
#else
static inline uint64_t counter(void) { return 0; }
static bool invariant(void) { return false; }
#endif

/**
 * The least and most ticks between two anchors for a slope between them, and the most ticks that reading both clocks
 * may take.
 */
#define LEAST_TICKS (UINT64_C(1) << 22)
#define MOST_TICKS (UINT64_C(1) << 31)
#define TIGHT_TICKS 512

/** The part of a slope by which the next may differ: more than NTP changes it. */
#define SAME_SLOPE 1024

/* Lines. */

static inline int64_t along(int64_t mono, uint64_t ticks, uint64_t slope) {
  return mono + (int64_t)(ticks * slope >> 32);
}

/** The ticks since an anchor; 0 if the counter is behind the anchor by no more than processors may be apart. */
static inline uint64_t ticks_since(uint64_t ticks, uint64_t anchor) {
  const uint64_t since = ticks - anchor;
  return since >= -TAPE_SKEW_TICKS ? 0 : since;
}

bool tape_line_at(const struct tape_line *line, uint64_t ticks, int64_t *mono) {
  const uint64_t since = ticks_since(ticks, line->ticks);
  *mono = along(line->mono, since, line->slope);
  return since < line->ticks_good;
}

int64_t tape_line_end(const struct tape_line *line) { return along(line->mono, line->ticks_good, line->slope); }

int64_t tape_line_next(struct tape_line *line, uint64_t ticks, int64_t kernel, bool tight) {
  const struct tape_line was = *line;
  const int64_t end = tape_line_end(&was), now = kernel > end ? kernel : end;
  const uint64_t since = ticks_since(ticks, was.ticks);
  if (!tight || since < LEAST_TICKS) {
    return now;
  }
  *line = (struct tape_line){.ticks = ticks, .mono = now, .kernel = kernel};
  if (since > MOST_TICKS) { // a long pause, or the counter went back
    return now;
  }
  line->measured = ((uint64_t)(kernel - was.kernel) << 32) / since;
  // A line that begins ahead of the kernel's clock falls back to it. It holds only if the kernel's clock had that slope
  // twice: else the counter jumped, as when a machine slept or migrated, or the rate changed.
  const uint64_t ahead = ((uint64_t)(now - kernel) << 32) / TAPE_LINE_TICKS;
  const uint64_t apart =
      line->measured > was.measured ? line->measured - was.measured : was.measured - line->measured;
  if (apart <= was.measured / SAME_SLOPE && ahead <= line->measured / SAME_SLOPE) {
    line->slope = line->measured - ahead;
    line->ticks_good = TAPE_LINE_TICKS;
  }
  return now;
}

/* The clock of this process. */

/**
 * The line that any thread reads. No two lines have the same ticks, and ticks_good is 0 while the words change: the
 * words read are of one line if ticks_good isn't 0 and ticks is the same before and after. No earlier line has returned
 * a time after begin.
 */
static struct {
  _Atomic uint64_t ticks, ticks_good, slope;
  _Atomic int64_t mono, begin;
} shown;

static atomic_flag making = ATOMIC_FLAG_INIT; /* a thread is making the next line */
static struct tape_line last;                 /* the line that is shown; used only by that thread */

static void show(const struct tape_line *line) {
  atomic_store_explicit(&shown.begin, line->mono, memory_order_relaxed);
  atomic_store_explicit(&shown.ticks_good, 0, memory_order_release);
  atomic_store_explicit(&shown.ticks, line->ticks, memory_order_release);
  atomic_store_explicit(&shown.slope, line->slope, memory_order_release);
  atomic_store_explicit(&shown.mono, line->mono, memory_order_release);
  atomic_store_explicit(&shown.ticks_good, line->ticks_good, memory_order_release);
}

/** The time by the shown line, or its end if it doesn't hold any more; false: there is no line. */
static inline bool by_line(int64_t *now, bool *holds) {
  const uint64_t anchor = atomic_load_explicit(&shown.ticks, memory_order_acquire);
  const uint64_t good = atomic_load_explicit(&shown.ticks_good, memory_order_acquire);
  if (good == 0) {
    return false;
  }
  const uint64_t since = ticks_since(counter(), anchor);
  const int64_t mono = atomic_load_explicit(&shown.mono, memory_order_acquire);
  const uint64_t slope = atomic_load_explicit(&shown.slope, memory_order_acquire);
  *holds = since < good;
  *now = along(mono, *holds ? since : good, slope);
  return atomic_load_explicit(&shown.ticks, memory_order_relaxed) == anchor;
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool tape_counter_is_clock(const char *source, bool is_invariant) {
#ifdef __x86_64__
  return strcmp(source, "tsc\n") == 0 || (strcmp(source, "kvm-clock\n") == 0 && is_invariant);
#else
  (void)source, (void)is_invariant;
  return false;
#endif
}

static bool counter_is_clock(void) {
  enum { UNKNOWN, NO, YES };
  static _Atomic int known;
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (is == UNKNOWN) {
    char name[32] = "";
    const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? 0 : read(file, name, sizeof name - 1);
    if (file >= 0) {
      close(file);
    }
    is = n > 0 && tape_counter_is_clock(name, invariant()) ? YES : NO;
    atomic_store_explicit(&known, is, memory_order_relaxed);
  }
  return is == YES;
}

/** meanwhile is the time while another thread makes the next line: at least what any line has returned. */
static int64_t meanwhile(void) {
  bool holds;
  int64_t now = clock_ns(CLOCK_MONOTONIC), line;
  const bool is_line = by_line(&line, &holds);
  const int64_t begin = atomic_load_explicit(&shown.begin, memory_order_acquire);
  if (is_line && line > now) {
    now = line;
  }
  return begin > now ? begin : now;
}

/** next_line reads the kernel's clock, and makes the next line if it can. */
static int64_t next_line(void) {
  if (!counter_is_clock()) {
    return clock_ns(CLOCK_MONOTONIC);
  }
  if (atomic_flag_test_and_set_explicit(&making, memory_order_acquire)) {
    return meanwhile();
  }
  const uint64_t ticks = counter();
  int64_t now;
  if (!tape_line_at(&last, ticks, &now)) { // else another thread has just made one
    const int64_t kernel = clock_ns(CLOCK_MONOTONIC);
    now = tape_line_next(&last, ticks, kernel, counter() - ticks < TIGHT_TICKS);
    show(&last);
  }
  atomic_flag_clear_explicit(&making, memory_order_release);
  return now;
}

int64_t tape_now(void) {
  int64_t now;
  bool holds;
  return by_line(&now, &holds) && holds ? now : next_line();
}

int64_t tape_wall(void) { return clock_ns(CLOCK_REALTIME); }
