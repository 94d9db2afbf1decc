// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/** read_file reads the beginning of a file as text; empty if it can't be read. */
static void read_file(const char *path, char *text, size_t size) {
  ssize_t n = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    n = read(fd, text, size - 1);
    close(fd);
  }
  text[n > 0 ? n : 0] = 0;
}

static uint64_t start_ticks(void) {
  char stat[1024];
  read_file("/proc/self/stat", stat, sizeof stat);
  char *at = strrchr(stat, ')'); // behind the name, which may contain anything
  for (int field = 2; at != NULL && field < 22; field++) {
    at = strchr(at + 1, ' ');
  }
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static bool parse_boot(const char *text, uint8_t boot[16]) {
  int digits = 0;
  for (; *text != 0 && digits < 32; text++) {
    char c = *text;
    if (c == '-') {
      continue;
    }
    int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0) {
      return false;
    }
    boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | value);
    digits++;
  }
  return digits == 32;
}

struct tape_process tape_process(void) {
  struct tape_process me = {.pid = (uint32_t)getpid(), .start_ticks = start_ticks()};
  struct stat space;
  if (stat("/proc/self/ns/pid", &space) == 0) {
    me.pid_space = space.st_ino;
  }
  char boot[64];
  read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  // Where the kernel doesn't tell enough, a random boot id makes the process look alone on its machine.
  if ((!parse_boot(boot, me.boot) || me.start_ticks == 0) &&
      getrandom(me.boot, sizeof me.boot, 0) != (ssize_t)sizeof me.boot) {
    memset(me.boot, 0, sizeof me.boot);
  }
  const uint8_t *b = me.boot;
  snprintf(me.boot_text, sizeof me.boot_text,
           "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
           b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return me;
}

/** number reads a nonnegative integer from the environment; -1 if there is none. */
static int32_t number(const char *variable) {
  const char *text = getenv(variable);
  if (text == NULL || *text == 0) {
    return -1;
  }
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  return errno == 0 && *end == 0 && value >= 0 && value <= INT32_MAX ? (int32_t)value : -1;
}

/**
 * A launcher's variables: those of the rank and the number of ranks, and those that identify the job to all its ranks.
 */
struct launcher {
  const char *name, *rank, *size, *job[4];
};

/** launched finds the launcher that started the process as a rank; NULL if there is none. */
static const struct launcher *launched(int32_t *rank, int32_t *size) {
  static const struct launcher launchers[] = {
      {"carillon", "CARILLON_RANK", "CARILLON_WORLD_SIZE", {"CARILLON_ADDRESS", "MASTER_PORT", "MASTER_ADDR"}},
      {"pytorch",
       "RANK",
       "WORLD_SIZE",
       {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR"}},
      {"openmpi",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
      {"mpich", "PMI_RANK", "PMI_SIZE", {"PMI_JOBID", "SLURM_JOB_ID", "MASTER_PORT", "MASTER_ADDR"}},
      {"slurm",
       "SLURM_PROCID",
       "SLURM_STEP_NUM_TASKS",
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
      {"pmix", "PMIX_RANK", "WORLD_SIZE", {"PMIX_NAMESPACE"}},
  };
  for (const struct launcher *l = launchers; l < launchers + sizeof launchers / sizeof *launchers; l++) {
    *rank = number(l->rank);
    *size = number(l->size);
    if (*rank >= 0 && *rank < *size) {
      return l;
    }
  }
  *rank = -1;
  *size = 0;
  return NULL;
}

void tape_place(int32_t *rank, int32_t *size) {
  (void)launched(rank, size);
}

/**
 * append appends a text to a name, as far as there is room, with - in place of characters that a folder's name should
 * not have.
 */
static void append(char *name, size_t size, const char *text) {
  size_t n = strlen(name);
  for (; *text != 0 && n < size - 1; text++) {
    const char c = *text;
    const bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("._", c);
    name[n++] = good ? c : '-';
  }
  name[n] = 0;
}

void tape_job(char *name, size_t size) {
  int32_t rank, ranks;
  const struct launcher *l = launched(&rank, &ranks);
  name[0] = 0;
  for (size_t i = 0; l != NULL && i < sizeof l->job / sizeof *l->job && l->job[i] != NULL; i++) {
    const char *value = getenv(l->job[i]);
    if (value != NULL && *value != 0) {
      append(name, size, name[0] == 0 ? l->name : "");
      append(name, size, "-");
      append(name, size, value);
    }
  }
  if (l == NULL) {
    char host[64] = "", session[32];
    (void)gethostname(host, sizeof host - 1);
    snprintf(session, sizeof session, "session-%d-", (int)getsid(0));
    append(name, size, session);
    append(name, size, host);
  } else if (name[0] == 0) {
    append(name, size, "default");
  }
}

int64_t tape_limit(const char *variable) {
  static const struct {
    const char *name;
    double ns;
  } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  const char *text = getenv(variable);
  double total = 0;
  while (text != NULL && *text != 0) {
    double n = 0, digit = 0; // not strtod, which uses the locale's decimal point
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && digit == 0); text++) {
      n = *text == '.' ? n : digit == 0 ? n * 10 + (*text - '0') : n + (*text - '0') * digit;
      digit = *text == '.' ? 0.1 : digit / 10;
    }
    size_t length = strspn(text, "nuhms"), unit = 0;
    while (unit < sizeof units / sizeof *units &&
           (strlen(units[unit].name) != length || strncmp(text, units[unit].name, length) != 0)) {
      unit++;
    }
    if (unit == sizeof units / sizeof *units) {
      return 0;
    }
    total += n * units[unit].ns;
    text += length;
  }
  return total > 0 && total < (double)INT64_MAX ? (int64_t)(total + 0.5) : 0;
}
