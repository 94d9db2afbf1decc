// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_writer.h"

_Static_assert(TAPE_REC_MARK_RANKS == 4 && TAPE_REC_MARK_LAUNCHED == 6, "words 4 and 6");

/**
 * The size of a burst of marks, and the time in ns after which there is another one: each mark costs the thread and the
 * stream a microsecond or two. A training step's collectives come in bursts, in which each should have a mark; EVERY
 * bounds the average cost.
 */
enum { MOST_SPARE = 64, EVERY = 2000000 };

/** The time in ns after which an operation is observed again. */
#define OBSERVE_EVERY INT64_C(30000000000)

void tape_mark_configure(const struct tape_config *config) {
  tape.mark_every = config->mark_every > 0 ? config->mark_every : EVERY;
}

void *tape_reached(size_t *size) {
  *size = 0;
  if (__atomic_load_n(&tape.progress, __ATOMIC_ACQUIRE) != MADE || tape.off) {
    return NULL;
  }
  const struct tape_offsets at = tape_offsets(&tape.file.geometry);
  *size = at.marks - at.reached;
  return tape.reached;
}

bool tape_mark_has(const struct tape_comm *comm) {
  return tape_on(comm) && tape_counts(comm);
}

static uint32_t reached(const struct tape_comm *comm) {
  return (uint32_t)__atomic_load_n(&tape.reached[comm->index], __ATOMIC_ACQUIRE);
}

static uint64_t *mark_at(const struct tape_comm *comm, int i) {
  return tape_marked_at(comm) + (size_t)i * TAPE_RECORD_WORDS;
}

static uint32_t number_of(const uint64_t *mark) { return (uint32_t)(mark[0] >> 32); }

/** waits returns whether a mark is the communicator's, and its stream has not reached it. */
static bool waits(const struct tape_comm *comm, const uint64_t *mark, uint32_t reached) {
  return mark[0] != 0 && mark[TAPE_REC_COMM] == comm->comm && (int32_t)(number_of(mark) - reached) > 0;
}

/** refill adds the marks that became available since the last time. */
static void refill(struct marking *m, int64_t now) {
  const int64_t since = now - m->refilled;
  if (m->refilled == 0 || since >= MOST_SPARE * tape.mark_every) {
    m->spare = MOST_SPARE;
    m->refilled = now;
  } else if (since >= tape.mark_every) {
    const int64_t more = since / tape.mark_every;
    m->spare = m->spare + more < MOST_SPARE ? m->spare + (uint32_t)more : MOST_SPARE;
    m->refilled += more * tape.mark_every;
  }
}

bool tape_mark_due(struct tape_comm *comm, uint64_t first) {
  if (!tape_mark_has(comm) || comm->op.launched == comm->op.completed) {
    return false;
  }
  const struct pending *p = tape_last(comm);
  struct marking *m = &comm->marking;
  refill(m, p->start);
  if (m->spare == 0) {
    return false;
  }
  m->spare--;
  m->launched = comm->op.launched;
  m->before = first - 1;
  m->begun = comm->slot->counters.begun;
  m->op = *p;
  return true;
}

void tape_mark_launched(struct tape_comm *comm) {
  if (tape_mark_has(comm) && comm->marking.launched != 0) {
    comm->marking.op.start = tape_now();
  }
}

/** A slot has two words: its stream writes the first one behind operations, and the second one before them. */
static uint32_t *words(const struct tape_comm *comm) { return (uint32_t *)&tape.reached[comm->index]; }

uint32_t *tape_mark_before(const struct tape_comm *comm, bool same_stream) {
  if (!tape_mark_has(comm) || comm->marking.last != comm->marking.before) {
    return NULL;
  }
  const bool same = same_stream && comm->marking.last != 0;
  return same || tape.marked[comm->index] == reached(comm) ? words(comm) + 1 : NULL;
}

uint32_t *tape_mark_word(const struct tape_comm *comm) {
  return tape_mark_has(comm) ? words(comm) : NULL;
}

uint32_t tape_mark_number(const struct tape_comm *comm) { return tape.marked[comm->index] + 1; }

/**
 * place is where a mark goes: over one that belongs to no communicator any more or was reached, or else over the
 * newest. Of the marks that were reached, the latest is overwritten only if there is no other: it tells how far the
 * stream is.
 */
static uint64_t *place(const struct tape_comm *comm) {
  uint64_t *newest = mark_at(comm, 0), *last = NULL;
  const uint32_t is = reached(comm);
  for (int i = 0; i < TAPE_WAIT_AT; i++) {
    uint64_t *mark = mark_at(comm, i);
    if (!waits(comm, mark, is)) {
      if (mark[0] == 0 || number_of(mark) != is) {
        return mark;
      }
      last = mark;
    }
    newest = (int32_t)(number_of(mark) - number_of(newest)) > 0 ? mark : newest;
  }
  return last != NULL ? last : newest;
}

void tape_mark(struct tape_comm *comm, bool told, uint32_t stream) {
  struct marking *m = &comm->marking;
  if (!tape_mark_has(comm) || m->launched == 0) {
    return;
  }
  const struct pending *p = &m->op;
  const uint32_t number = ++tape.marked[comm->index];
  const uint64_t phase = told ? TAPE_PHASE_QUEUED : TAPE_PHASE_STREAM;
  const uint64_t kinds = p->kinds | phase << 32 | (uint64_t)stream << 40;
  store(place(comm), number, TAPE_KIND_MARK, (uint64_t)p->start, p->number, kinds,
        pack32(p->peer, (int32_t)(uint32_t)m->begun), p->bytes, m->launched, comm->comm);
  if (m->observed_launched == m->launched) {
    m->observed_op = m->op;
    m->observed_mark = number;
  }
  m->last = m->launched;
  m->launched = 0;
}

bool tape_observes(struct tape_comm *comm) {
  const struct marking *m = &comm->marking;
  return tape_mark_has(comm) &&
         (m->observed == 0 || m->slow || tape_last(comm)->start - m->observed >= OBSERVE_EVERY);
}

void tape_observe(struct tape_comm *comm) {
  struct marking *m = &comm->marking;
  m->observed = m->op.start;
  m->observed_launched = m->launched;
  m->observed_mark = 0;
}

bool tape_mark_groups(const struct tape_comm *comm) {
  return comm->marking.launched > comm->marking.before + 1;
}

bool tape_observed(const struct tape_comm *comm) {
  const uint32_t mark = comm->marking.observed_mark;
  return tape_mark_has(comm) && mark != 0 && (int32_t)(mark - reached(comm)) <= 0;
}

void tape_measured(struct tape_comm *comm, int64_t took) {
  if (tape_mark_has(comm)) {
    const struct pending *p = &comm->marking.observed_op;
    tape_put(comm, p, p->start + took, TAPE_STAGE_DEVICE, TAPE_PHASE_STREAM, -1);
  }
}

/** oldest is the oldest mark that was not reached; NULL: there is none. */
static const uint64_t *oldest(const struct tape_comm *comm) {
  const uint64_t *found = NULL;
  const uint32_t is = reached(comm);
  for (int i = 0; i < TAPE_WAIT_AT; i++) {
    const uint64_t *mark = mark_at(comm, i);
    if (waits(comm, mark, is) && (found == NULL || (int32_t)(number_of(found) - number_of(mark)) > 0)) {
      found = mark;
    }
  }
  return found;
}

void tape_mark_check(struct tape_comm *comm, bool ends) {
  if (!tape_mark_has(comm) || comm->marking.last == 0) {
    return;
  }
  struct marking *m = &comm->marking;
  const uint64_t *mark = oldest(comm);
  if (m->slow && (mark == NULL || number_of(mark) != m->slow_mark)) {
    tape_again(comm, &m->slow_op, TAPE_STAGE_END, CARILLON_CODE_OK);
    m->slow = false;
  }
  if (mark != NULL && !m->slow && tape_now() - (int64_t)mark[TAPE_REC_TIME] >= tape.file.slow) {
    m->slow = true;
    m->slow_mark = number_of(mark);
    m->slow_op = (struct pending){
        .number = mark[TAPE_REC_SEQ],
        .start = (int64_t)mark[TAPE_REC_TIME],
        .kinds = (uint32_t)mark[TAPE_REC_KINDS],
        .bytes = mark[TAPE_REC_BYTES],
        .peer = (int32_t)mark[TAPE_REC_MARK_RANKS],
    };
    tape_again(comm, &m->slow_op, TAPE_STAGE_START, CARILLON_CODE_OK);
  }
  if (!ends) {
    return;
  }
  if (m->slow) {
    tape_again(comm, &m->slow_op, TAPE_STAGE_END, CARILLON_CODE_ABORTED);
    m->slow = false;
  }
  m->last = 0; // streams go on once NCCL has given up, and their writes prove nothing then
}

void tape_captured(struct tape_comm *comm, uint64_t first) {
  if (!tape_on(comm)) {
    return;
  }
  struct operations *o = &comm->op;
  if (first - o->captured_first > o->captured) { /* else they continue the latest run */
    o->captured_first = first;
  }
  o->captured = o->launched - o->captured_first + 1;
  if (comm->marking.launched != 0) { /* gives back the mark that was due for them */
    comm->marking.launched = 0;
    comm->marking.spare++;
  }
}
