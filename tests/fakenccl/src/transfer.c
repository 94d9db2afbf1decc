// The memory that the ranks of a communicator share, whether they are threads or processes. It is a memfd of the
// process that made the unique id, which has the path to open it (/proc/PID/fd/FD): nothing is left behind, however a
// job ends.
//
// For each ordered pair of ranks there are two mailboxes, one for data and one for control. A message carries the tag
// of its operation, and only a transfer with the same tag takes it out: ranks that make different calls wait for each
// other forever, as with NCCL.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { ID_MAGIC = 0x6b61666e }; // "nfak"

struct id { // the contents of an ncclUniqueId
  uint32_t magic;
  int32_t pid, fd;
  uint64_t hash;
};

struct mailbox {
  _Atomic uint32_t state;
  uint32_t bytes;
  uint64_t tag;
  char data[];
};

static const size_t letter[] = {[DATA] = CHUNK, [CONTROL] = LETTER};

static size_t aligned(size_t bytes) {
  return (bytes + 63) & ~(size_t)63;
}

static size_t box_bytes(enum plane p) {
  return aligned(sizeof(struct mailbox) + letter[p]);
}

static size_t boxes_at(int nranks, enum plane p) {
  size_t at = aligned(sizeof(struct segment) + nranks * sizeof(struct seat));
  return p == DATA ? at : at + (size_t)nranks * nranks * box_bytes(DATA);
}

static struct mailbox *box(const struct ncclComm *c, enum plane p, int from, int to) {
  size_t index = (size_t)from * c->nranks + to;
  return (struct mailbox *)((char *)c->segment + boxes_at(c->nranks, p) + index * box_bytes(p));
}

struct seat *seat(const struct ncclComm *c, int rank) {
  return &c->segment->seats[rank];
}

uint64_t mix(uint64_t a, uint64_t b) { // splitmix64's
  uint64_t x = a * 0x9e3779b97f4a7c15 + b;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

void futex_wait(_Atomic uint32_t *word, uint32_t value) {
  static const struct timespec while_others_may_die = {.tv_nsec = 100000000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &while_others_may_die, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word) {
  atomic_fetch_add(word, 1);
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void ring(const struct ncclComm *c, int rank) {
  futex_wake(&seat(c, rank)->bell);
}

void ring_all(struct ncclComm *c) {
  for (int r = 0; r < c->nranks; r++) ring(c, r);
}

// A process that has ended, but was not reaped by its parent, counts as dead, too.
static bool is_alive(int pid) {
  char state = process_state(pid);
  return state && state != 'Z' && state != 'X';
}

char process_state(int pid) {
  char path[32], stat[256];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, stat, sizeof stat - 1);
  close(fd);
  if (n <= 0) return 0;
  stat[n] = 0;
  const char *state = strrchr(stat, ')');
  return state && state[1] ? state[2] : 0;
}

ncclResult_t id_make(ncclUniqueId *out) {
  struct id id = {.magic = ID_MAGIC, .pid = getpid(), .fd = memfd_create("fakenccl", MFD_CLOEXEC)};
  if (id.fd < 0) return fail(ncclSystemError, "memfd_create: %m");
  if (getrandom(&id.hash, sizeof id.hash, 0) != sizeof id.hash) return fail(ncclSystemError, "getrandom: %m");
  memset(out, 0, sizeof *out);
  memcpy(out, &id, sizeof id);
  return ncclSuccess;
}

static void identify(struct seat *s, int device) {
  const char *host = getenv("NCCL_HOSTID");
  if (host && *host)
    snprintf(s->host, sizeof s->host, "%s", host);
  else if (gethostname(s->host, sizeof s->host))
    strcpy(s->host, "localhost");
  s->device = device;
}

// Takes the rank's seat, and waits until all ranks have taken theirs.
ncclResult_t segment_join(struct ncclComm *c, const ncclUniqueId *unique) {
  struct id id;
  memcpy(&id, unique, sizeof id);
  if (id.magic != ID_MAGIC) return fail(ncclInvalidArgument, "this unique id is none of ncclGetUniqueId's");
  char path[48];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", id.pid, id.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(ncclSystemError, "the process %d that made the unique id is not there: %m", id.pid);
  c->hash = id.hash;
  c->segment_bytes = boxes_at(c->nranks, CONTROL) + (size_t)c->nranks * c->nranks * box_bytes(CONTROL);
  void *memory = MAP_FAILED;
  if (!ftruncate(fd, c->segment_bytes))
    memory = mmap(NULL, c->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return fail(ncclSystemError, "mmap of %zu bytes: %m", c->segment_bytes);
  c->segment = memory;
  c->segment->hash = id.hash;

  int nobody = 0;
  if (!atomic_compare_exchange_strong(&c->segment->nranks, &nobody, c->nranks) && nobody != c->nranks)
    return fail(ncclInvalidUsage, "another rank said that there are %d ranks, not %d", nobody, c->nranks);
  struct seat *mine = seat(c, c->rank);
  nobody = 0;
  if (!atomic_compare_exchange_strong(&mine->pid, &nobody, getpid()))
    return fail(ncclInvalidUsage, "there are two ranks %d", c->rank);
  identify(mine, c->device);
  atomic_fetch_add(&c->segment->seated, 1);
  ring_all(c);
  for (;;) {
    uint32_t bell = atomic_load(&mine->bell);
    int dead = -1; // checked first: a rank that was seated last and has ended since was there
    for (int r = 0; r < c->nranks; r++)
      if (atomic_load(&seat(c, r)->pid) && !is_alive(seat(c, r)->pid)) dead = r;
    if (atomic_load(&c->segment->seated) == c->nranks) break;
    if (atomic_load(&c->aborted)) return fail(ncclInternalError, "aborted while the communicator was made");
    if (dead >= 0) return fail(ncclRemoteError, "rank %d died while the communicator was made", dead);
    futex_wait(&mine->bell, bell);
  }
  if (id.pid == getpid() && !atomic_exchange(&c->segment->leased, true)) c->lease = id.fd;
  return ncclSuccess;
}

void segment_leave(struct ncclComm *c) {
  if (c->segment) munmap(c->segment, c->segment_bytes);
  c->segment = NULL;
  if (c->lease >= 0) close(c->lease);
}

void segment_register(struct ncclComm *parent, const ncclUniqueId *unique) {
  struct id id;
  memcpy(&id, unique, sizeof id);
  struct child *c = &parent->segment->children[atomic_fetch_add(&parent->segment->nchildren, 1) % CHILDREN];
  c->pid = id.pid;
  c->fd = id.fd;
  atomic_store(&c->hash, id.hash);
}

// The descriptor may belong to another file by now, so the hash is checked.
struct segment *segment_open(const struct child *child, size_t *bytes) {
  char path[48];
  struct stat stat;
  if (!atomic_load(&child->hash)) return NULL;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", child->pid, child->fd);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NULL;
  void *memory = MAP_FAILED;
  if (!fstat(fd, &stat) && S_ISREG(stat.st_mode) && (size_t)stat.st_size > sizeof(struct segment))
    memory = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return NULL;
  *bytes = stat.st_size;
  struct segment *s = memory;
  if (s->hash == atomic_load(&child->hash)) return s;
  segment_close(s, *bytes);
  return NULL;
}

void segment_close(struct segment *s, size_t bytes) {
  munmap(s, bytes);
}

static bool post(struct ncclComm *c, enum plane p, struct transfer *t) {
  struct mailbox *b = box(c, p, c->rank, t->peer);
  uint32_t empty = EMPTY;
  if (!atomic_compare_exchange_strong(&b->state, &empty, TAKEN)) return false;
  b->tag = t->tag;
  b->bytes = t->bytes - t->done < letter[p] ? t->bytes - t->done : letter[p];
  memcpy(b->data, t->data + t->done, b->bytes);
  t->done += b->bytes;
  atomic_store(&b->state, FULL);
  ring(c, t->peer);
  return true;
}

static bool fetch(struct ncclComm *c, enum plane p, struct transfer *t) {
  struct mailbox *b = box(c, p, t->peer, c->rank);
  if (atomic_load(&b->state) != FULL || b->tag != t->tag) return false;
  size_t bytes = t->bytes - t->done < b->bytes ? t->bytes - t->done : b->bytes;
  memcpy(t->data + t->done, b->data, bytes);
  t->done += bytes;
  atomic_store(&b->state, EMPTY);
  ring(c, t->peer);
  if (t->peer != c->rank) ring(c, c->rank); // another operation of this rank may wait for the mailbox
  return true;
}

// Does all transfers in parallel. On the data plane, only an abort or a revoke ends the wait for a rank that died.
ncclResult_t transfer(struct ncclComm *c, enum plane p, struct transfer *t, int n) {
  struct seat *mine = seat(c, c->rank);
  bool cut = p == DATA && is_cut(c);
  for (;;) {
    uint32_t bell = atomic_load(&mine->bell);
    bool moved = false, left = false;
    for (int i = 0; i < n; i++) {
      while (t[i].done < t[i].bytes && (t[i].send ? !cut && post(c, p, &t[i]) : fetch(c, p, &t[i]))) moved = true;
      left |= t[i].done < t[i].bytes;
    }
    if (!left) return ncclSuccess;
    if (atomic_load(&c->aborted) || (p == DATA && atomic_load(&c->revoked))) return ncclInternalError;
    if (moved) continue;
    ncclResult_t lost = ncclSuccess;
    for (int i = 0; i < n; i++) {
      struct seat *other = seat(c, t[i].peer);
      if (t[i].done == t[i].bytes || (p == DATA && atomic_load(&c->async))) continue;
      bool gone = !is_alive(other->pid) || (p == CONTROL && atomic_load(&other->aborted));
      if (gone) lost = fail(ncclRemoteError, "rank %d is gone", t[i].peer);
    }
    if (atomic_load(&mine->bell) != bell) continue; // something has changed since
    if (lost && p == CONTROL) return lost;
    if (lost) comm_set_async(c, lost);
    futex_wait(&mine->bell, bell);
  }
}

// Exchanges data among n members: all[i] is the data of members[i]. The caller has set its own entry.
ncclResult_t exchange(struct ncclComm *c, uint64_t tag, const int *members, int n, void *all, size_t bytes) {
  struct transfer *t = calloc(2 * n, sizeof *t);
  if (!t) return ncclSystemError;
  int own = 0, used = 0;
  while (members[own] != c->rank) own++;
  for (int i = 0; i < n; i++) {
    if (i == own) continue;
    t[used++] = (struct transfer){members[i], true, tag, (char *)all + own * bytes, bytes, 0};
    t[used++] = (struct transfer){members[i], false, tag, (char *)all + i * bytes, bytes, 0};
  }
  ncclResult_t result = transfer(c, CONTROL, t, used);
  free(t);
  return result;
}
