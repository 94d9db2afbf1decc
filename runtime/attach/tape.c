// Compiled by cc; the go command passes over it.
//go:build ignore

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tape_writer.h"

_Static_assert(sizeof(((struct tape_info *)NULL)->name) == TAPE_NAME_SIZE, "name");
_Static_assert(sizeof(((struct tape_info *)NULL)->engine) == TAPE_ENGINE_SIZE, "engine");

/**
 * The order in which store takes the words of a life record. Words that are not checked here are as in an op record.
 */
_Static_assert(TAPE_REC_LIFE_OP_HEAD == 2 && TAPE_REC_LIFE_KINDS == 3, "words 2 and 3");
_Static_assert(TAPE_REC_LIFE_PEER == 4 && TAPE_REC_LIFE_SEQ == 5, "words 4 and 5");

struct tape_writer tape = {.lock = PTHREAD_MUTEX_INITIALIZER, .clock_lock = PTHREAD_MUTEX_INITIALIZER};

/** publish makes a value the current copy of a latch. */
static void publish(uint64_t *latch, const uint64_t *value, size_t words) {
  uint32_t next = tape_version(latch, words) + 1;
  uint64_t *to = latch + (next & 1) * (words + 1);
  memcpy(to + 1, value, words * sizeof *value);
  store_release(to, marker(next, 0, tape_check(next, value, words)));
}

void tape_wake(void) {
  __atomic_add_fetch(&tape.changing->bell, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&tape.changing->waiting, __ATOMIC_SEQ_CST) != 0 &&
      __atomic_exchange_n(&tape.changing->waiting, 0, __ATOMIC_SEQ_CST) != 0) {
    __atomic_add_fetch(&tape.changing->bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &tape.changing->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
}

/* The life ring. */

/** The tail of a life record: fields, each with a tag u8, a length u16, and bytes. */
struct tail {
  uint8_t bytes[TAPE_MAX_TAIL];
  uint32_t size;
};

static void append(struct tail *tail, const void *bytes, size_t n) {
  memcpy(tail->bytes + tail->size, bytes, n);
  tail->size += (uint32_t)n;
}

static void append_field(struct tail *tail, uint8_t tag, size_t n) {
  uint16_t length = (uint16_t)n;
  append(tail, &tag, sizeof tag);
  append(tail, &length, sizeof length);
}

static void append_bytes(struct tail *tail, uint8_t tag, const void *bytes, size_t n) {
  append_field(tail, tag, n);
  append(tail, bytes, n);
}

static void append_text(struct tail *tail, uint8_t tag, const char *text, size_t most) {
  size_t n = text != NULL ? tape_cut(text, most) : 0;
  if (n > 0) {
    append_bytes(tail, tag, text, n);
  }
}

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t none[16];
  return memcmp(id, none, sizeof none) == 0;
}

static void append_site(struct tail *tail, uint8_t tag, const struct tape_site *site) {
  const char *function = site->function != NULL ? site->function : "";
  const char *file = site->file != NULL ? site->file : "";
  if (*function == 0 && *file == 0 && site->line == 0 && site->thread == 0 && site->time == 0) {
    return;
  }
  size_t length = strlen(file); // the end of a path matters most
  if (length > TAPE_MAX_SITE) {
    file += length - TAPE_MAX_SITE;
    while (((uint8_t)*file & 0xC0) == 0x80) {
      file++;
    }
    length = strlen(file);
  }
  uint16_t function_length = (uint16_t)tape_cut(function, TAPE_MAX_SITE);
  append_field(tail, tag, TAPE_SITE_FIXED + function_length + length);
  append(tail, &site->line, sizeof site->line);
  append(tail, &site->thread, sizeof site->thread);
  append(tail, &site->time, sizeof site->time);
  append(tail, &function_length, sizeof function_length);
  append(tail, function, function_length);
  append(tail, file, length);
}

/** put_life writes a record and its tail to the life ring, next to each other, and wakes followers. */
static void put_life(uint8_t kind, uint64_t time, uint64_t kinds, int32_t peer, uint64_t seq, int64_t start,
                     uint64_t comm, struct tail *tail) {
  uint64_t more = (tail->size + TAPE_TAIL_PER_RECORD - 1) / TAPE_TAIL_PER_RECORD;
  // Read before the index is reserved: it orders the record among the operations.
  uint64_t op_head = __atomic_load_n(tape.op.head, __ATOMIC_SEQ_CST);
  uint64_t first = reserve(&tape.life, 1 + more);
  memset(tail->bytes + tail->size, 0, more * TAPE_TAIL_PER_RECORD - tail->size);
  for (uint64_t i = 0; i < more; i++) {
    uint64_t w[TAPE_RECORD_WORDS - 1];
    memcpy(w, tail->bytes + i * TAPE_TAIL_PER_RECORD, sizeof w);
    store(at(&tape.life, first + 1 + i), first + 1 + i, TAPE_KIND_CONTINUE, w[0], w[1], w[2], w[3], w[4], w[5], w[6]);
  }
  store(at(&tape.life, first), first, kind, time, op_head, kinds, pack32(peer, (int32_t)tail->size), seq,
        (uint64_t)start, comm);
  tape_wake();
}

/* The header's clock. */

/** refresh_clock publishes a reading of both clocks if the published one is off, at most once a second. */
static void refresh_clock(int64_t now) {
  int64_t last = __atomic_load_n(&tape.clock_refreshed, __ATOMIC_RELAXED);
  if ((last != 0 && now - last < TAPE_REFRESH_EVERY) || pthread_mutex_trylock(&tape.clock_lock) != 0) {
    return;
  }
  struct layout_clock_pair pair = {0};
  int64_t within = INT64_MAX;
  for (int i = 0; i < 8; i++) { // the tightest of several tries, so that preemption between the readings doesn't matter
    int64_t before = tape_now(), wall = tape_wall(), gap = tape_now() - before;
    if (gap < within) {
      pair = (struct layout_clock_pair){before + gap / 2, wall};
      within = gap;
    }
  }
  uint64_t *latch = (uint64_t *)tape.changing->clock;
  uint32_t v = tape_version(latch, 2);
  const struct layout_clock_pair *told = &tape.changing->clock[v & 1].value;
  int64_t off = pair.wall - pair.mono - (told->wall - told->mono);
  if (v == 0 || off <= -TAPE_CLOCK_SET - within || off >= TAPE_CLOCK_SET + within) {
    uint64_t words[2] = {(uint64_t)pair.mono, (uint64_t)pair.wall};
    publish(latch, words, 2);
  }
  __atomic_store_n(&tape.clock_refreshed, now, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&tape.clock_lock);
}

/* The tape. */

/** forked runs in a forked child: anything it wrote would be taken for its parent's. */
static void forked(void) { tape.off = true; }

/** map_parts sets the pointers to the parts of the file. */
static bool map_parts(const struct tape_config *config) {
  const struct tape_geometry *g = &tape.file.geometry;
  const struct tape_offsets from = tape_offsets(g);
  uint8_t *memory = tape.file.memory;
  tape.changing = &((struct layout_header *)memory)->changing;
  tape.slots = (struct layout_slot *)(memory + from.slots);
  tape.tallies = (struct layout_tally *)(memory + from.tallies);
  tape.life = (struct ring){&tape.changing->life_head, (uint64_t *)(memory + from.life_records), g->life_records - 1};
  tape.op = (struct ring){&tape.changing->op_head, (uint64_t *)(memory + from.op_records), g->op_records - 1};
  tape.reached = (uint64_t *)(memory + from.reached);
  tape.marks = (uint64_t *)(memory + from.marks);
  tape_mark_configure(config);
  tape.marked = calloc(tape_marked(g), sizeof *tape.marked);
  tape.pages = (uint64_t *)(memory + from.pages);
  tape.page_mask = g->op_records / TAPE_RECORDS_PER_PAGE - 1;
  tape.pages_taken = calloc(tape.page_mask + 1, sizeof *tape.pages_taken);
  tape.slots_taken = calloc(g->slots, sizeof *tape.slots_taken);
  tape.tallies_taken = calloc(g->tallies, sizeof *tape.tallies_taken);
  int64_t every = config->sample_every != 0 ? config->sample_every : TAPE_DEFAULT_SAMPLE_EVERY;
  tape.sample_every = every > 0 ? (uint64_t)every : 0;
  if (tape.pages_taken == NULL || tape.slots_taken == NULL || tape.tallies_taken == NULL || tape.marked == NULL) {
    return false;
  }
  return true;
}

bool tape_open_with(const struct tape_config *config) {
  enum progress progress = __atomic_load_n(&tape.progress, __ATOMIC_ACQUIRE);
  if (progress == UNTRIED && !tape.off) {
    pthread_mutex_lock(&tape.lock);
    progress = tape.progress;
    if (progress == UNTRIED) {
      bool made = tape_file_make(config, &tape.file) && map_parts(config) && tape_protect() &&
                  pthread_atfork(NULL, NULL, forked) == 0;
      if (made) {
        refresh_clock(tape_now());
      } else if (tape.file.memory != NULL) {
        unlink(tape.file.path); // nobody will write it
      }
      progress = made ? MADE : FAILED;
      __atomic_store_n(&tape.progress, progress, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&tape.lock);
  }
  return progress == MADE && !tape.off;
}

bool tape_open(void) {
  static const struct tape_config defaults;
  return tape_open_with(&defaults);
}

/** made returns whether there is a tape that this process writes. */
static bool made(void) { return __atomic_load_n(&tape.progress, __ATOMIC_ACQUIRE) == MADE && !tape.off; }

const char *tape_path(void) { return made() ? tape.file.path : ""; }

void tape_unexpected(size_t kind) {
  if (made()) {
    __atomic_add_fetch(&tape.changing->unexpected[kind], 1, __ATOMIC_RELAXED);
  }
}

void tape_close(void) {
  if (!made()) {
    return;
  }
  pthread_mutex_lock(&tape.lock);
  if (!tape.closed) {
    tape.closed = true;
    refresh_clock(tape_now());
    __atomic_store_n(&tape.changing->state, TAPE_STATE_CLOSED, __ATOMIC_SEQ_CST);
    tape_wake();
  }
  pthread_mutex_unlock(&tape.lock);
}

/** at_exit closes the tape. Destructors with a low priority number run last. */
__attribute__((destructor(101))) static void at_exit(void) { tape_close(); }

/* Communicators. */

/** show_info shows the communicator's description in its slot; shown is its number, or 0 to free the slot. */
static void show_info(struct tape_comm *comm, uint32_t shown) {
  const struct tape_info *info = &comm->info;
  struct layout_comm_state state = {
      .number = shown, .state = comm->state, .rank = info->rank, .size = info->size, .nodes = info->nodes,
      .root = comm->root,
  };
  memcpy(state.id, info->id, sizeof state.id);
  memcpy(state.parent, info->parent, sizeof state.parent);
  tape_put_text(state.engine, sizeof state.engine, info->engine);
  tape_put_text(state.name, sizeof state.name, info->name);
  uint64_t words[sizeof state / sizeof(uint64_t)];
  memcpy(words, &state, sizeof state);
  publish((uint64_t *)comm->slot->info, words, sizeof words / sizeof *words);
}

/** write_info writes the communicator's description to the life ring, for use after its slot is gone. */
static void write_info(struct tape_comm *comm, uint8_t kind) {
  const struct tape_info *info = &comm->info;
  int32_t shape[3] = {info->rank, info->size, info->nodes};
  struct tail tail;
  tail.size = 0;
  append_bytes(&tail, TAPE_TAIL_ROOT, &comm->root, sizeof comm->root);
  append_bytes(&tail, TAPE_TAIL_ID, info->id, sizeof info->id);
  if (!is_zero(info->parent)) {
    append_bytes(&tail, TAPE_TAIL_PARENT, info->parent, sizeof info->parent);
  }
  append_text(&tail, TAPE_TAIL_NAME, info->name, TAPE_NAME_SIZE - 1);
  append_text(&tail, TAPE_TAIL_ENGINE, info->engine, TAPE_ENGINE_SIZE - 1);
  append_bytes(&tail, TAPE_TAIL_SHAPE, shape, sizeof shape);
  put_life(kind, (uint64_t)tape_now(), (uint64_t)comm->state << 32, -1, 0, 0, comm->comm, &tail);
}

/** put_info copies a description, and makes sure that its texts end with a NUL. */
static void put_info(struct tape_comm *comm, const struct tape_info *info) {
  uint64_t halves[2];
  comm->info = *info;
  comm->info.name[TAPE_NAME_SIZE - 1] = 0;
  comm->info.engine[TAPE_ENGINE_SIZE - 1] = 0;
  memcpy(halves, info->id, sizeof halves);
  comm->seed = halves[0] ^ halves[1];
}

struct tape_comm *tape_comm_new(const struct tape_info *info, const struct tape_comm *from) {
  static const struct pending nothing;
  struct tape_comm *comm;
  if (!made() || posix_memalign((void **)&comm, 64, sizeof *comm) != 0) {
    return NULL;
  }
  memset(comm, 0, sizeof *comm);
  put_info(comm, info);
  comm->slot = &comm->own;
  comm->index = -1;
  comm->op.wait = -1;
  comm->op.page_used = TAPE_PAGE_WORDS;

  pthread_mutex_lock(&tape.lock);
  if (tape.closed) {
    pthread_mutex_unlock(&tape.lock);
    free(comm);
    return NULL;
  }
  comm->number = ++tape.number;
  comm->root = from != NULL ? from->root : comm->number;
  const bool *free_slot = memchr(tape.slots_taken, false, tape.file.geometry.slots);
  if (free_slot != NULL) {
    comm->index = (int32_t)(free_slot - tape.slots_taken);
    comm->slot = &tape.slots[comm->index];
    tape.slots_taken[comm->index] = true;
  } else {
    __atomic_add_fetch(&tape.changing->overflow, 1, __ATOMIC_SEQ_CST);
  }
  comm->comm = pack32((int32_t)comm->number, comm->index);
  comm->op.version = tape_version((uint64_t *)comm->slot->op, TAPE_RECORD_WORDS - 1);
  memset(&comm->slot->counters, 0, sizeof comm->slot->counters);
  store_release(&comm->slot->captured, 0);
  if (tape_counts(comm)) {
    store_release(tape_peers(comm) - 2, pack32(-1, (int32_t)comm->number));
  }
  tape_show(comm, &nothing); // first, so that no reader sees the last owner's operation under the new name
  show_info(comm, comm->number);
  write_info(comm, TAPE_KIND_COMM);
  pthread_mutex_unlock(&tape.lock);
  return comm;
}

void tape_comm_describe(struct tape_comm *comm, const struct tape_info *info) {
  if (!tape_on(comm)) {
    return;
  }
  pthread_mutex_lock(&tape.lock);
  if (!comm->closed) {
    tape_give_tallies(comm); // the name may be another one
    put_info(comm, info);
    show_info(comm, comm->number);
    write_info(comm, TAPE_KIND_COMM);
  }
  pthread_mutex_unlock(&tape.lock);
}

void tape_comm_state(struct tape_comm *comm, uint8_t state) {
  if (!tape_on(comm)) {
    return;
  }
  pthread_mutex_lock(&tape.lock);
  if (!comm->closed && comm->state != state) {
    comm->state = state;
    show_info(comm, comm->number);
  }
  pthread_mutex_unlock(&tape.lock);
}

void tape_comm_close(struct tape_comm *comm) {
  if (!tape_on(comm)) {
    return;
  }
  pthread_mutex_lock(&tape.lock);
  if (!comm->closed) {
    tape_mark_check(comm, true);
    comm->closed = true;
    show_info(comm, 0);
    write_info(comm, TAPE_KIND_COMM_END);
    comm->slot = &comm->own;
    tape_give_tallies(comm);
    tape_give_page(comm);
    if (comm->index >= 0) {
      tape.slots_taken[comm->index] = false;
    }
  }
  pthread_mutex_unlock(&tape.lock);
}

void tape_comm_free(struct tape_comm *comm) {
  tape_comm_close(comm);
  free(comm);
}

/** append_counts appends the communicator's message counts, if it still has its slot. */
static void append_counts(struct tail *tail, struct tape_comm *comm) {
  struct {
    int32_t rank;
    uint32_t sent, received;
  } counts[TAPE_MAX_PEERS];
  size_t n = 0;
  pthread_mutex_lock(&tape.lock);
  const bool has = tape_counts(comm) && tape_peers(comm)[-2] == pack32(-1, (int32_t)comm->number);
  for (const uint64_t *peer = has ? tape_peers(comm) : NULL; has && n < TAPE_MAX_PEERS; n++, peer += 2) {
    const uint64_t rank = __atomic_load_n(&peer[0], __ATOMIC_ACQUIRE);
    const uint64_t count = __atomic_load_n(&peer[1], __ATOMIC_RELAXED);
    if (rank >> 32 != comm->number) {
      break;
    }
    counts[n].rank = (int32_t)rank;
    counts[n].sent = (uint32_t)count;
    counts[n].received = (uint32_t)(count >> 32);
  }
  pthread_mutex_unlock(&tape.lock);
  if (has) {
    append_bytes(tail, TAPE_TAIL_COUNTS, counts, n * sizeof *counts);
  }
}

/**
 * count_refused counts a refused call, and returns how many calls from the same site were refused with the same code.
 */
static uint32_t count_refused(struct tape_comm *comm, const struct tape_life *life) {
  const size_t last = sizeof comm->refused / sizeof *comm->refused - 1;
  uint64_t is = (uint64_t)life->call << 48 | (uint64_t)life->code << 32 | (uint32_t)life->site.line;
  for (const char *c = life->site.function; c != NULL && *c != 0; c++) {
    is = tape_rotate(is) ^ (uint8_t)*c;
  }
  size_t i = 0;
  pthread_mutex_lock(&tape.lock);
  while (i < last && comm->refused[i].times > 0 && comm->refused[i].is != is) {
    i++;
  }
  comm->refused[i].is = is;
  if (comm->refused[i].times < UINT32_MAX) {
    comm->refused[i].times++;
  }
  const uint32_t times = comm->refused[i].times;
  pthread_mutex_unlock(&tape.lock);
  return times;
}

void tape_life(struct tape_comm *comm, const struct tape_life *life) {
  if (!tape_on(comm)) {
    return;
  }
  const uint32_t times = life->stage == TAPE_STAGE_MISUSE ? count_refused(comm, life) : 0;
  if ((times & (times - 1)) != 0) {
    return;
  }
  int64_t time = life->time != 0 ? life->time : tape_now();
  struct tail tail;
  tail.size = 0;
  append_text(&tail, TAPE_TAIL_TEXT, life->text, TAPE_MAX_TEXT);
  append_site(&tail, TAPE_TAIL_SITE, &life->site);
  append_site(&tail, TAPE_TAIL_FIRST, &life->first);
  if (!is_zero(life->child)) {
    append_bytes(&tail, TAPE_TAIL_CHILD, life->child, sizeof life->child);
  }
  if (life->ops != 0) {
    append_bytes(&tail, TAPE_TAIL_OPS, &life->ops, sizeof life->ops);
  }
  if (life->shared) {
    append_field(&tail, TAPE_TAIL_SHARED, 0);
  }
  if (times > 1) {
    append_bytes(&tail, TAPE_TAIL_TIMES, &times, sizeof times);
  }
  if (life->stage == TAPE_STAGE_END && (life->act == TAPE_ACT_DESTROY || life->act == TAPE_ACT_ABORT)) {
    append_counts(&tail, comm);
  }
  refresh_clock(time); // first: a follower that the record wakes reads the clocks as well
  uint64_t kinds = (uint64_t)life->act | (uint64_t)life->call << 8 | (uint64_t)life->stage << 16 |
                   (uint64_t)life->phase << 24 | (uint64_t)life->state << 32 | (uint64_t)life->code << 48;
  put_life(TAPE_KIND_LIFE, (uint64_t)time, kinds, life->peer, life->seq, life->start, comm->comm, &tail);
}
