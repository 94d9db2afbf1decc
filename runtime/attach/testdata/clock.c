/*
 * Checks the tape's clock: against simulated clocks, and against the kernel's, in four threads. Prints what is wrong,
 * and then exits with 1.
 */
#include "../tape_clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../tape.h"

enum { OFF = 6000 }; /* ns that the clock may differ from the kernel's */

static int wrong;

/* A machine whose counter runs at 2.5 GHz, and whose kernel clock runs at another rate from some tick on. */
struct machine {
  uint64_t ticks, jump, from;
  int64_t kernel;
  double rate; /* ns per tick, from that tick on */
};

static int64_t kernel_of(const struct machine *m) {
  return m->kernel + (int64_t)((double)(m->ticks - m->from) * m->rate);
}

static void set_rate(struct machine *m, double rate) {
  m->kernel = kernel_of(m);
  m->from = m->ticks;
  m->rate = rate;
}

static uint64_t counter_of(const struct machine *m) { return m->ticks + m->jump; }

/* The clock's time after some ticks; one in interrupted readings of both clocks is interrupted, and late. */
static int64_t told(struct machine *m, struct tape_line *line, uint64_t ticks, int interrupted) {
  int64_t now;
  m->ticks += ticks;
  if (!tape_line_at(line, counter_of(m), &now)) {
    const uint64_t at = counter_of(m);
    const bool tight = interrupted == 0 || rand() % interrupted != 0;
    m->ticks += tight ? 20 + (uint64_t)rand() % 400 : 100000;
    now = tape_line_next(line, at, kernel_of(m), tight);
  }
  return now;
}

/* How many ticks the counter runs to the next reading: readings are dense at a line's end. */
static uint64_t step(const struct machine *m, const struct tape_line *line) {
  const uint64_t since = counter_of(m) - line->ticks;
  const bool ends = since < line->ticks_good && line->ticks_good - since < 100000;
  return 50 + (uint64_t)rand() % (ends ? 200 : 100000);
}

/* Plays lines during which the clock must never go back, and then some more during which it must also be right. */
static void play(const char *name, struct machine *m, struct tape_line *line, int lines, int interrupted) {
  int64_t before = INT64_MIN;
  const uint64_t begun = m->ticks;
  for (uint64_t since = 0; since < (uint64_t)(lines + 300) * TAPE_LINE_TICKS && !wrong; since = m->ticks - begun) {
    const int64_t now = told(m, line, step(m, line), interrupted), off = now - kernel_of(m);
    if (now < before) {
      printf("%s: %lld after %lld\n", name, (long long)now, (long long)before);
      wrong = 1;
    }
    if (since >= (uint64_t)lines * TAPE_LINE_TICKS && (off < -OFF || off > OFF)) {
      printf("%s: after %llu ticks it is off by %lld ns\n", name, (unsigned long long)since, (long long)off);
      wrong = 1;
    }
    before = now;
  }
  if (line->ticks_good == 0) {
    printf("%s: it reads the kernel's clock each time\n", name);
    wrong = 1;
  }
}

/* Checks which clock sources the counter can replace. */
static void sources(void) {
#ifdef __x86_64__
  const bool has = true;
#else
  const bool has = false;
#endif
  if (tape_counter_is_clock("tsc\n", false) != has || tape_counter_is_clock("kvm-clock\n", true) != has ||
      tape_counter_is_clock("kvm-clock\n", false) || tape_counter_is_clock("hpet\n", true) ||
      tape_counter_is_clock("", true)) {
    puts("the counter is taken for another clock, or not for its own");
    wrong = 1;
  }
}

/* On a processor whose counter is a little behind that of the one that made the line, the time is the line's begin. */
static void behind(const struct machine *m, const struct tape_line *made) {
  struct tape_line line = *made;
  int64_t now;
  if (!tape_line_at(&line, line.ticks - TAPE_SKEW_TICKS, &now)) {
    now = tape_line_next(&line, line.ticks - TAPE_SKEW_TICKS, kernel_of(m), true);
  }
  if (now != made->mono) {
    printf("behind a line's begin: it is %lld, and that is %lld\n", (long long)now, (long long)made->mono);
    wrong = 1;
  }
}

static void played(void) {
  static const struct {
    const char *name;
    int64_t jump;
    double rate;
    int interrupted;
  } changes[] = {
      {"nothing", 0, 1, 0},
      {"back", -(INT64_C(1) << 39), 1, 0},
      {"a little back", -(INT64_C(1) << 20), 1, 0},
      {"ahead", INT64_C(1) << 40, 1, 0},
      {"ahead of the line's end", INT64_C(2) << 24, 1, 0},
      {"slower", 0, 1 - 1. / 2000, 0},
      {"faster", 0, 1 + 1. / 2000, 0},
      {"interrupted", 0, 1, 3},
  };
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    struct machine m = {.ticks = UINT64_C(1) << 42, .kernel = INT64_C(1000000000000), .rate = 0.4};
    struct tape_line line = {0};
    m.from = m.ticks;
    play(changes[i].name, &m, &line, 0, changes[i].interrupted);
    m.jump += (uint64_t)changes[i].jump;
    set_rate(&m, m.rate * changes[i].rate);
    play(changes[i].name, &m, &line, 1, changes[i].interrupted);
    behind(&m, &line);
  }
}

static int64_t kernel_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The clock of the process is the kernel's, and goes back by no more than processors are apart; ticks are shorter than
   a nanosecond. */
static void *real(void *bad) {
  int64_t before = INT64_MIN;
  for (const int64_t begun = kernel_now(); kernel_now() - begun < 100000000;) {
    const int64_t first = kernel_now(), now = tape_now(), second = kernel_now();
    if (now + (int64_t)TAPE_SKEW_TICKS < before || now < first - OFF || now > second + OFF) {
      printf("it is %lld after %lld, and the kernel's clock %lld to %lld\n", (long long)now, (long long)before,
             (long long)first, (long long)second);
      return bad;
    }
    before = now;
  }
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  sources();
  played();
  for (int i = 0; i < 4; i++) {
    pthread_create(&threads[i], NULL, real, &wrong);
  }
  for (int i = 0; i < 4; i++) {
    void *bad;
    pthread_join(threads[i], &bad);
    wrong |= bad != NULL;
  }
  return wrong;
}
