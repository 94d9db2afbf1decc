// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "tape.h"
#include "tape_folder.h"
#include "tape_process.h"

_Static_assert(sizeof(struct layout_slot) == TAPE_SLOT_SIZE, "slot");
_Static_assert(sizeof(struct layout_tally) == TAPE_TALLY_SIZE, "tally");
_Static_assert(sizeof(struct layout_header) == TAPE_HEADER_SIZE, "header");
_Static_assert(offsetof(struct layout_header, changing) == TAPE_CHANGING_AT, "changing");

/** say writes one line on stderr. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
  char line[3 * FILENAME_MAX];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line - 1, format, args);
  va_end(args);
  if (n < 0) {
    return;
  }
  size_t length = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
  line[length] = '\n';
  if (write(STDERR_FILENO, line, length + 1) < 0) {
    return; // nobody reads stderr
  }
}

static bool no_room(int error) { return error == ENOSPC || error == EDQUOT; }

size_t tape_cut(const char *text, size_t n) {
  size_t length = strnlen(text, n + 1);
  if (length <= n) {
    return length;
  }
  while (n > 0 && ((uint8_t)text[n] & 0xC0) == 0x80) {
    n--;
  }
  return n;
}

void tape_put_text(uint8_t *field, size_t size, const char *text) {
  size_t length = tape_cut(text, size - 1);
  memset(field, 0, size);
  memcpy(field, text, length);
}

/* Its size. */

static size_t aligned(size_t n) { return (n + TAPE_REACHED_ALIGN - 1) / TAPE_REACHED_ALIGN * TAPE_REACHED_ALIGN; }

struct tape_offsets tape_offsets(const struct tape_geometry *g) {
  struct tape_offsets at = {.slots = TAPE_HEADER_SIZE};
  at.tallies = at.slots + (size_t)g->slots * TAPE_SLOT_SIZE;
  at.life_records = at.tallies + (size_t)g->tallies * TAPE_TALLY_SIZE;
  at.op_records = at.life_records + (size_t)g->life_records * TAPE_RECORD_SIZE;
  at.pages = at.op_records + (size_t)g->op_records * TAPE_RECORD_SIZE;
  at.reached = aligned(at.pages + (size_t)(g->op_records / TAPE_RECORDS_PER_PAGE) * TAPE_PAGE_SIZE);
  at.marks = aligned(at.reached + (size_t)tape_marked(g) * sizeof(uint64_t));
  at.end = at.marks + (size_t)tape_marked(g) * TAPE_MARKS_SIZE;
  return at;
}

static uint32_t ring_size(uint32_t n) {
  uint32_t size = 1;
  while (size < n || size < TAPE_MIN_RING) {
    size *= 2;
  }
  return size;
}

/** share is the number of entries of a part: set, or else the default after so many halvings. */
static uint32_t share(uint32_t set, uint32_t all, int halvings) { return set != 0 ? set : all >> halvings; }

/** geometry is that of a tape whose parts, unless config sets them, are halved that often. */
static struct tape_geometry geometry(const struct tape_config *config, int halvings) {
  return (struct tape_geometry){
      .slots = share(config->slots, TAPE_DEFAULT_SLOTS, halvings),
      .tallies = share(config->tallies, TAPE_DEFAULT_TALLIES, halvings),
      .life_records = ring_size(share(config->life_records, TAPE_DEFAULT_LIFE_RECORDS, halvings)),
      .op_records = ring_size(share(config->op_records, TAPE_DEFAULT_OP_RECORDS, halvings)),
  };
}

/** fit returns the largest geometry of at most so many bytes, or the smallest that there is. */
static struct tape_geometry fit(const struct tape_config *config, size_t bytes) {
  struct tape_geometry g = geometry(config, 0);
  for (int halvings = 1; halvings <= TAPE_MOST_HALVINGS && tape_offsets(&g).end > bytes; halvings++) {
    g = geometry(config, halvings);
  }
  return g;
}

/* The file. */

/** reserve allocates all of a file's space: a write to a mapping without space behind it would kill the process. */
static int reserve(int fd, size_t size) {
  while (fallocate(fd, 0, 0, (off_t)size) != 0) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return errno;
    }
    static const uint8_t zeros[64 * 1024]; // space can only be reserved by writing
    for (size_t at = 0; at < size;) {
      size_t left = size - at;
      ssize_t n = pwrite(fd, zeros, left < sizeof zeros ? left : sizeof zeros, (off_t)at);
      if (n < 0 && errno != EINTR) {
        return errno;
      }
      at += n > 0 ? (size_t)n : 0;
    }
    return 0;
  }
  return 0;
}

static void fill_header(struct layout_header *h, const struct tape_file *file, const struct tape_process *me,
                        const char *host, const char *job) {
  const struct tape_geometry *g = &file->geometry;
  memset(h, 0, sizeof *h);
  struct layout_fixed *f = &h->fixed;
  memcpy(f->magic, TAPE_MAGIC, sizeof f->magic);
  f->version = TAPE_FORMAT_VERSION;
  f->slots = g->slots;
  f->tallies = g->tallies;
  f->life_records = g->life_records;
  f->op_records = g->op_records;
  f->pid = me->pid;
  f->file_size = tape_offsets(g).end;
  f->start_ticks = me->start_ticks;
  f->pid_space = me->pid_space;
  memcpy(f->kernel_boot, me->boot, sizeof f->kernel_boot);
  f->created_mono = tape_now();
  f->created_wall = tape_wall();
  tape_place(&f->rank, &f->job_size);
  f->slow_after = file->slow;
  f->stall_after = file->stall;
  const char *boot = getenv("CARILLON_HOSTID");
  if (boot == NULL || *boot == 0) {
    boot = getenv("NCCL_HOSTID");
  }
  f->marked = tape_marked(g);
  tape_put_text(f->boot_id, sizeof f->boot_id, boot != NULL && *boot != 0 ? boot : me->boot_text);
  tape_put_text(f->host, sizeof f->host, host);
  tape_put_text(f->job, sizeof f->job, job);
  tape_put_text(f->program, sizeof f->program, program_invocation_short_name);
  uint64_t words[sizeof *f / 8];
  memcpy(words, f, sizeof words);
  h->check = tape_check(TAPE_FORMAT_VERSION, words, sizeof words / 8);
  h->changing.state = TAPE_STATE_LIVE;
}

/** ours returns whether a file is a tape of this very process. */
static bool ours(int dir, const char *name, const struct tape_process *me) {
  struct layout_fixed f;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  ssize_t n = fd >= 0 ? pread(fd, &f, sizeof f, 0) : -1;
  if (fd >= 0) {
    close(fd);
  }
  return n == (ssize_t)sizeof f && memcmp(f.magic, TAPE_MAGIC, sizeof f.magic) == 0 && f.pid == me->pid &&
         f.start_ticks == me->start_ticks && f.pid_space == me->pid_space &&
         memcmp(f.kernel_boot, me->boot, sizeof f.kernel_boot) == 0;
}

/**
 * name_it finds a free name and gives it to the file: only a hard link fails if the name is taken, on every file
 * system. A file that an earlier process of the same name left is renamed, and never lost.
 */
static int name_it(int dir, const char *temp, const char *base, const struct tape_process *me, char *name,
                   size_t size) {
  for (int n = 0;;) {
    if (n == 0) {
      snprintf(name, size, "%s.tape", base);
    } else { // this process already has a tape of this name
      snprintf(name, size, "%s.%d.tape", base, n);
    }
    if (linkat(dir, temp, dir, name, 0) == 0) {
      return 0;
    }
    if (errno != EEXIST) {
      return errno;
    }
    if (ours(dir, name, me)) {
      n++;
      continue;
    }
    // Its writer had our pid, so it is dead or in another container, and goes on writing under the new name.
    char aside[NAME_MAX];
    snprintf(aside, sizeof aside, "%.*s.%lld.old.tape", (int)(strlen(name) - strlen(".tape")), name,
             (long long)tape_wall());
    if (renameat(dir, name, dir, aside) != 0 && errno != ENOENT) {
      return errno;
    }
  }
}

/** make makes the complete file in the job's directory: it gets its name only once its header is written. */
static int make(int dir, const char *host, const char *job, struct tape_file *file, const char **problem) {
  struct tape_process me = tape_process();
  char base[NAME_MAX / 2], temp[NAME_MAX], name[NAME_MAX];
  snprintf(base, sizeof base, "%s-%u", host, me.pid);
  snprintf(temp, sizeof temp, ".%s.%lld.new", base, (long long)tape_now());
  size_t size = tape_offsets(&file->geometry).end;
  struct layout_header header;
  fill_header(&header, file, &me, host, job);

  *problem = "lets no tape be created";
  int fd = openat(dir, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return errno;
  }
  *problem = "has no room for a tape";
  int error = reserve(fd, size);
  if (error == 0 && pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) {
    error = errno;
  }
  if (error == 0) {
    *problem = "lets no tape be mapped into memory";
    // MAP_POPULATE, so that no operation of the first lap pays for a page fault.
    file->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (file->memory == MAP_FAILED) {
      error = errno;
      file->memory = NULL;
    }
  }
  if (error == 0) {
    *problem = "lets no tape have its name";
    error = name_it(dir, temp, base, &me, name, sizeof name);
    if (error != 0) {
      munmap(file->memory, size);
      file->memory = NULL;
    }
  }
  unlinkat(dir, temp, 0);
  close(fd);
  size_t length = strlen(file->path);
  snprintf(file->path + length, sizeof file->path - length, "/%s", error == 0 ? name : "");
  return error;
}

/** room is the number of bytes that a tape may take on a directory's file system. */
static size_t room(int dir) {
  struct statvfs fs;
  return fstatvfs(dir, &fs) == 0 ? (size_t)fs.f_bavail * fs.f_frsize / TAPE_ROOM_SHARE : SIZE_MAX;
}

/** set_limits sets when an operation is slow and when it is stalled, which is never before it is slow. */
static void set_limits(const struct tape_config *config, struct tape_file *file) {
  const int64_t slow = tape_limit("CARILLON_SLOW_THRESHOLD");
  file->stall = tape_limit("CARILLON_STALL_THRESHOLD");
  file->slow = config->slow > 0 ? config->slow : slow > 0 ? slow : TAPE_DEFAULT_SLOW;
  if (file->stall > 0 && file->slow > file->stall) {
    file->slow = file->stall;
  }
}

/**
 * make_in makes a tape in a directory, of a size for which there is room: at most an eighth of the free space. If it
 * can't, it adds the reason.
 */
static bool make_in(const char *dir, const char *host, const char *job, const struct tape_config *config,
                    struct tape_file *file, struct tape_reasons *reasons) {
  int length = snprintf(file->path, sizeof file->path, "%s/%s", dir, job);
  if (length < 0 || (size_t)length + NAME_MAX >= sizeof file->path) {
    tape_refuse(reasons, dir, "is too long a name", 0);
    return false;
  }
  int fd = tape_folder_open(dir, job, reasons);
  if (fd < 0) {
    return false;
  }
  const struct tape_geometry wanted = geometry(config, 0);
  const size_t whole = tape_offsets(&wanted).end, most = room(fd);
  const char *problem = "has no room for a tape";
  int error = ENOSPC;
  for (size_t size = whole; error != 0 && no_room(error) && size >= TAPE_MIN_SIZE / 2;
       size = size / TAPE_SMALLER + TAPE_HEADER_SIZE) {
    if (most < size) {
      continue;
    }
    file->geometry = fit(config, size > TAPE_MIN_SIZE ? size : TAPE_MIN_SIZE);
    error = make(fd, host, job, file, &problem);
    if (error != 0) {
      file->path[length] = 0;
    }
  }
  close(fd);
  if (error != 0) {
    tape_refuse(reasons, dir, problem, error);
    return false;
  }
  const size_t size = tape_offsets(&file->geometry).end;
  if (size < whole) {
    tape_reason(reasons, "it has %zu KiB instead of %zu KiB, as %s has %zu KiB free", size / 1024, whole / 1024, dir,
                most / 1024 * TAPE_ROOM_SHARE);
  }
  return true;
}

bool tape_file_make(const struct tape_config *config, struct tape_file *file) {
  struct tape_reasons reasons = {{0}};
  char host[64], dirs[TAPE_FOLDERS][FILENAME_MAX];
  const char *job = config->job != NULL ? config->job : getenv("CARILLON_JOB");
  char named[sizeof ((struct layout_fixed *)NULL)->job];
  if (job == NULL || *job == 0) {
    tape_job(named, sizeof named);
    job = named;
  }
  int in = 0, n = 0; // the index of the tape's directory, and the number of candidates
  if (!tape_good_name(job)) {
    tape_reason(&reasons, "CARILLON_JOB can't be the name of a folder; it needs 1 to 63 bytes without a slash");
  } else if (gethostname(host, sizeof host) != 0 || memchr(host, 0, sizeof host) == NULL || !tape_good_name(host)) {
    tape_reason(&reasons, "the host's name can't be part of a file's; it needs 1 to 63 bytes without a slash");
  } else if (config->dir != NULL) {
    n = 1;
    snprintf(dirs[0], sizeof dirs[0], "%s", config->dir);
  } else {
    n = tape_folders(dirs);
  }
  set_limits(config, file);
  while (in < n && !make_in(dirs[in], host, job, config, file, &reasons)) {
    in++;
  }
  if (in == n) {
    say("carillon: no tape, and so nothing shows what the communicators of this process do "
        "(CARILLON_TAPE_DIR chooses another directory): %s",
        reasons.text);
    return false;
  }
  if (in > 0) {
    say("carillon: the tape is in another directory, %s: %s", dirs[in], reasons.text);
  } else if (reasons.text[0] != 0) {
    say("carillon: the tape is smaller, and forgets sooner: %s", reasons.text);
  }
  return true;
}
