// Compiled by cc; the go command passes over it.
//go:build ignore

#include <string.h>

#include "tape_writer.h"

/** The order in which store takes the words of a record. A copy of a slot's operation is written in the same way. */
_Static_assert(TAPE_REC_MARKER == 0 && TAPE_REC_TIME == 1 && TAPE_REC_SEQ == 2 && TAPE_REC_KINDS == 3, "words 0 to 3");
_Static_assert(TAPE_REC_RANKS == 4 && TAPE_REC_BYTES == 5 && TAPE_REC_START == 6 && TAPE_REC_COMM == 7, "words 4 to 7");
_Static_assert(sizeof(struct layout_operation) == (TAPE_RECORD_WORDS - 1) * sizeof(uint64_t), "a copy is a record");

/** wake_at_quarter wakes followers when an op record completes a quarter of the ring, so that they miss no record. */
static inline void wake_at_quarter(uint64_t index) {
  uint64_t quarter = (tape.op.mask + 1) / 4;
  if (((index ^ (index + 1)) & ~(quarter - 1)) != 0) {
    tape_wake();
  }
}

/* Operations in flight. */

static inline struct pending *known(struct operations *o, uint8_t i) {
  return &o->list[(o->head + i) % TAPE_MAX_PENDING];
}

/** pop removes the oldest known operation. */
static void pop(struct operations *o) {
  o->n--;
  o->head++;
  if (o->n == 0) {
    o->head = 0;
  }
}

/** find is the n-th operation launched. One that is not known any more has no signature; its start was written. */
static struct pending *find(struct operations *o, uint64_t n) {
  uint64_t ago = o->launched - n;
  if (ago < o->n) {
    return known(o, (uint8_t)(o->n - 1 - ago));
  }
  o->forgotten = (struct pending){.told = true};
  return &o->forgotten;
}

const struct pending *tape_last(struct tape_comm *comm) { return find(&comm->op, comm->op.launched); }

/**
 * oldest is the oldest operation in flight. Its signature is kept, however many operations an open group has after it.
 */
static struct pending *oldest(struct operations *o) {
  uint64_t n = o->completed + 1;
  return n == o->kept_launched && o->launched - n >= o->n ? &o->kept : find(o, n);
}

void tape_show(struct tape_comm *comm, const struct pending *p) {
  struct operations *o = &comm->op;
  o->version++;
  o->plain = p == &o->list[0] && o->launched == o->completed + 1 && o->phase == TAPE_PHASE_NONE && o->wait < 0;
  uint64_t in_flight = o->launched - o->completed;
  if (in_flight > TAPE_MAX_IN_FLIGHT) {
    in_flight = TAPE_MAX_IN_FLIGHT;
  }
  uint64_t kinds = p->kinds | (uint64_t)o->phase << 32 | in_flight << 40;
  uint64_t *to = (uint64_t *)&comm->slot->op[o->version & 1];
  store(to, o->version, 0, o->launched, p->number, kinds, pack32(p->peer, o->wait), p->bytes, (uint64_t)p->start,
        (uint64_t)o->wait_since);
}

/** put writes a record about an operation. */
static inline void put(struct tape_comm *comm, uint64_t *to, uint64_t index, uint8_t kind, const struct pending *p,
                       int64_t time, uint8_t stage, uint8_t phase, int32_t wait, uint16_t code) {
  uint64_t kinds = p->kinds | (uint64_t)phase << 32 | (uint64_t)stage << 40 | (uint64_t)code << 48;
  store(to, index, kind, (uint64_t)time, p->number, kinds, pack32(p->peer, wait), p->bytes, (uint64_t)p->start,
        comm->comm);
}

static void put_op(struct tape_comm *comm, uint8_t kind, const struct pending *p, int64_t time, uint8_t stage,
                   uint8_t phase, int32_t wait, uint16_t code) {
  uint64_t index = reserve(&tape.op, 1);
  put(comm, at(&tape.op, index), index, kind, p, time, stage, phase, wait, code);
  wake_at_quarter(index);
}

/**
 * tell writes an operation's start to the op ring, unless it is there already: before the operation's first other
 * record.
 */
static void tell(struct tape_comm *comm, struct pending *p) {
  if (!p->told) {
    p->told = true;
    put_op(comm, TAPE_KIND_OP, p, p->start, TAPE_STAGE_START, TAPE_PHASE_NONE, -1, 0);
  }
}

void tape_again(struct tape_comm *comm, const struct pending *p, uint8_t stage, uint16_t code) {
  const bool counted = stage == TAPE_STAGE_END && code == CARILLON_CODE_OK; // counted with the launch
  put_op(comm, counted ? TAPE_KIND_TALLIED : TAPE_KIND_OP, p, tape_now(), stage, TAPE_PHASE_STREAM, -1, code);
}

void tape_put(struct tape_comm *comm, const struct pending *p, int64_t time, uint8_t stage, uint8_t phase,
              int32_t rank) {
  put_op(comm, TAPE_KIND_OP, p, time, stage, phase, rank, CARILLON_CODE_OK);
}

/** push launches an operation, and forgets the oldest known one if there is no room. */
static struct pending *push(struct tape_comm *comm) {
  struct operations *o = &comm->op;
  if (o->n == TAPE_MAX_PENDING) {
    struct pending *p = known(o, 0);
    if (!p->ended) {
      tell(comm, p); // before it is forgotten
      if (o->launched - o->n == o->completed) {
        o->kept = *p;
        o->kept_launched = o->completed + 1;
      }
    }
    pop(o);
  }
  o->launched++;
  o->n++;
  return known(o, (uint8_t)(o->n - 1));
}

/** is_message returns whether a call is a message that both ranks count. */
static inline bool is_message(uint8_t call) { return call == CARILLON_CALL_SEND || call == CARILLON_CALL_RECV; }

void tape_uncount(struct tape_comm *comm) {
  if (comm != NULL && comm->index >= 0 && comm->index < (int32_t)tape_marked(&tape.file.geometry)) {
    uint64_t counted = pack32(-1, (int32_t)comm->number); // unless the slot has another owner by now
    __atomic_compare_exchange_n(tape_peers(comm) - 2, &counted, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  }
}

void tape_begun(struct tape_comm *comm, uint64_t number) {
  if (tape_on(comm)) {
    store_release(&comm->slot->counters.begun, number);
  }
}

/** count_message counts a message with a rank in the communicator's slot, if there is room for that rank. */
static void count_message(struct tape_comm *comm, uint8_t call, int32_t rank) {
  const bool full = comm->peers == TAPE_MAX_PEERS;
  if (!tape_counts(comm) || rank < 0 || (full && rank > comm->highest) ||
      (comm->info.size > 0 && rank >= comm->info.size)) {
    return;
  }
  uint64_t *peers = tape_peers(comm);
  const uint64_t peer = pack32(rank, (int32_t)comm->number);
  uint32_t i = 0, at = comm->peer; /* usually the rank of the last message, or the one after it */
  for (; i < comm->peers && peers[2 * at] != peer; i++) {
    at = at + 1 < comm->peers ? at + 1 : 0;
  }
  if (i == comm->peers) {
    if (full) {
      return;
    }
    at = comm->peers++;
    comm->highest = rank > comm->highest ? rank : comm->highest;
    __atomic_store_n(&peers[2 * at + 1], 0, __ATOMIC_RELAXED);
    store_release(&peers[2 * at], peer);
  }
  comm->peer = at;
  uint32_t *count = (uint32_t *)&peers[2 * at + 1] + (call == CARILLON_CALL_RECV);
  __atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
}

uint64_t tape_op_start(struct tape_comm *comm, uint64_t number, const struct tape_signature *signature,
                       uint8_t algorithm) {
  if (!tape_on(comm)) {
    return 0;
  }
  int64_t now = tape_now();
  struct pending *p = push(comm);
  struct operations *o = &comm->op;
  if (number == 0) {
    number = o->launched;
  }
  p->number = number;
  p->start = now;
  p->told = false;
  p->ended = false;
  uint64_t kinds = (uint64_t)signature->call | (uint64_t)signature->data_type << 8 |
                   (uint64_t)signature->reduction << 16 | (uint64_t)algorithm << 24;
  bool repeats = o->plain && o->launched == o->completed + 1 && kinds == p->kinds && signature->bytes == p->bytes &&
                 signature->peer == p->peer;
  if (!repeats) {
    p->kinds = kinds;
    p->bytes = signature->bytes;
    p->peer = signature->peer;
  }
  struct layout_counters *counters = &comm->slot->counters;
  if (signature->call < CARILLON_NUM_CALLS && (TAPE_COLLECTIVES >> signature->call & 1) != 0) {
    store_release(&counters->begun, number);
  } else if (is_message(signature->call)) {
    count_message(comm, signature->call, signature->peer);
  }
  if (repeats) { // saves two cache lines, which alternate
    store_release(&counters->number, number);
    store_release(&counters->start, (uint64_t)now);
    store_release(&counters->launched, o->launched);
  } else {
    tape_show(comm, oldest(o));
  }
  if (comm->index < 0 || comm->closed) { // no slot shows the operation in flight
    tell(comm, p);
  }
  return o->launched;
}

/** changed writes what has changed about the oldest operation in flight. */
static void changed(struct tape_comm *comm, int64_t now, uint8_t stage) {
  struct operations *o = &comm->op;
  struct pending *p = oldest(o);
  tape_show(comm, p);
  tell(comm, p);
  put_op(comm, TAPE_KIND_OP, p, now, stage, o->phase, o->wait, 0);
}

void tape_op_phase(struct tape_comm *comm, uint8_t phase) {
  if (!tape_on(comm)) {
    return;
  }
  struct operations *o = &comm->op;
  if (o->launched != o->completed && o->phase != phase) {
    o->phase = phase;
    changed(comm, tape_now(), TAPE_STAGE_PHASE);
  }
}

void tape_op_group(struct tape_comm *comm, bool open) {
  const uint8_t phase = open ? TAPE_PHASE_GROUP : TAPE_PHASE_NONE;
  struct operations *o = &comm->op;
  if (tape_on(comm) && o->launched != o->completed && o->phase == (open ? TAPE_PHASE_NONE : TAPE_PHASE_GROUP)) {
    o->phase = phase;
    tape_show(comm, oldest(o));
  }
}

void tape_op_wait(struct tape_comm *comm, int32_t rank) {
  if (!tape_on(comm)) {
    return;
  }
  struct operations *o = &comm->op;
  if (o->launched != o->completed && o->wait != rank) {
    int64_t now = tape_now();
    o->wait = rank;
    o->wait_since = rank < 0 ? 0 : now;
    changed(comm, now, TAPE_STAGE_WAIT);
  }
}

void tape_give_page(struct tape_comm *comm) {
  if (comm->page != NULL) {
    __atomic_store_n(&tape.pages_taken[comm->page_at & tape.page_mask], 0, __ATOMIC_SEQ_CST);
    comm->page = NULL;
    comm->op.page_used = TAPE_PAGE_WORDS;
  }
}

/** turn_page takes the oldest page that no communicator writes, if one of the next 8 is free, and clears it. */
static bool turn_page(struct tape_comm *comm) {
  tape_give_page(comm);
  for (int i = 0; i < 8; i++) {
    uint64_t index = __atomic_fetch_add(&tape.changing->ordinary_head, 1, __ATOMIC_SEQ_CST);
    uint64_t place = index & tape.page_mask;
    uint8_t nobody = 0;
    if (__atomic_compare_exchange_n(&tape.pages_taken[place], &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      comm->page = tape.pages + place * TAPE_PAGE_WORDS;
      comm->page_at = index;
      comm->op.page_used = 0;
      __atomic_store_n(&comm->page[0], 0, __ATOMIC_SEQ_CST);
      __atomic_thread_fence(__ATOMIC_SEQ_CST); // before anything else changes
      memset(comm->page + 1, 0, TAPE_PAGE_SIZE - sizeof *comm->page);
      return true;
    }
  }
  return false;
}

/**
 * put_ordinary writes the end of an ordinary operation to the communicator's page; it returns false if there is no
 * page. An operation like the one before takes a single word, so that several share a cache line, which is the main
 * cost.
 */
static inline bool put_ordinary(struct tape_comm *comm, const struct pending *p, int64_t now) {
  struct operations *o = &comm->op;
  uint64_t after = (uint64_t)(p->start - o->page_start), took = (uint64_t)(now - p->start);
  if (comm->counting.paged && o->page_used < TAPE_PAGE_WORDS && p->number == o->page_number + 1 && after >> 32 == 0 &&
      took <= TAPE_MAX_REPEAT) {
    store_release(&comm->page[o->page_used], after << 32 | TAPE_REPEAT_BIT | took);
    o->page_used++;
  } else {
    if (o->page_used + TAPE_RECORD_WORDS > TAPE_PAGE_WORDS && !turn_page(comm)) {
      return false;
    }
    put(comm, comm->page + o->page_used, comm->page_at, TAPE_KIND_ORDINARY, p, now, TAPE_STAGE_END, TAPE_PHASE_NONE, -1,
        0);
    o->page_used += TAPE_RECORD_WORDS;
    comm->counting.paged = true;
  }
  o->page_number = p->number;
  o->page_start = p->start;
  return true;
}

/** sampled returns whether followers see the end of an ordinary operation, like tape.Sampled. */
static inline bool sampled(const struct tape_comm *comm, uint64_t number) {
  uint64_t every = tape.sample_every;
  if (every == 0) {
    return false;
  }
  uint64_t x = comm->seed + number * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  x ^= x >> 31;
  return (every & (every - 1)) == 0 ? (x & (every - 1)) == 0 : x % every == 0;
}

/**
 * duration_bucket is the bucket of an operation's duration: the first ends at 1 us, and each ends at 4 times the one
 * before.
 */
static inline uint32_t duration_bucket(uint64_t took) {
  uint64_t us = (took + 999) / 1000;
  uint32_t bucket = us <= 1 ? 0 : (bits(us - 1) + 1) / 2;
  return bucket < TAPE_DURATION_BUCKETS - 1 ? bucket : TAPE_DURATION_BUCKETS - 1;
}

/** bandwidth_bucket is the least i with mbs <= 4^i, computed from the exponent of the next lower number. */
static inline uint32_t bandwidth_bucket(double mbs) {
  uint64_t word;
  memcpy(&word, &mbs, sizeof word);
  int bucket = ((int)((word - 1) >> 52) - 1023 + 2) >> 1;
  return bucket < 0 ? 0 : bucket < TAPE_BANDWIDTH_BUCKETS ? (uint32_t)bucket : TAPE_BANDWIDTH_BUCKETS - 1;
}

/** count counts an operation that ended, if there is a tally for it, and returns the kind of record for its end. */
static inline uint8_t count(struct tape_comm *comm, const struct pending *p, int64_t took, uint16_t code) {
  if (code != CARILLON_CODE_OK || took < 0) {
    return TAPE_KIND_OP;
  }
  struct counting *c = &comm->counting;
  if (c->kinds != p->kinds || c->bytes != p->bytes || c->peer != p->peer) {
    tape_count_as(comm, p);
  }
  struct layout_tally *to = c->tally;
  if (to == NULL) {
    return TAPE_KIND_OP;
  }
  uint8_t kind = TAPE_KIND_TALLIED;
  if (!p->told && took < tape.file.slow) {
    kind = TAPE_KIND_ORDINARY;
    add(&to->ordinary, 1);
    add(&to->ordinary_time, (uint64_t)took);
  } else {
    add(&to->other_time, (uint64_t)took);
  }
  add(&to->bytes, c->bytes);
  add(&to->durations[duration_bucket((uint64_t)took)], 1);
  if (c->cross > 0 && took > 0) {
    double mbs = c->cross / (double)took;
    to->bandwidth += mbs;
    add(&to->bandwidths[bandwidth_bucket(mbs)], 1);
  }
  return kind;
}

/**
 * put_end counts an operation's end and writes it: to the page of ordinary ones if it is ordinary, not sampled, and
 * there is room; else to the op ring.
 */
static inline void put_end(struct tape_comm *comm, const struct pending *p, int64_t now, uint8_t phase, uint16_t code) {
  uint8_t kind = count(comm, p, now - p->start, code);
  if (kind == TAPE_KIND_ORDINARY) {
    if (!sampled(comm, p->number) && put_ordinary(comm, p, now)) {
      return;
    }
    add(&comm->counting.tally->sampled, 1);
  }
  put_op(comm, kind, p, now, TAPE_STAGE_END, phase, -1, code);
}

/** retire moves completed past the operations that have ended. Those that are not known any more end in order. */
static void retire(struct operations *o, uint64_t last) {
  uint64_t was = o->completed;
  for (; o->completed < o->launched; o->completed++) {
    bool is_known = o->launched - o->completed <= o->n;
    if (is_known ? !known(o, 0)->ended : o->completed >= last) {
      break;
    }
    if (is_known) {
      pop(o);
    }
  }
  if (o->completed != was && (o->phase != TAPE_PHASE_NONE || o->wait >= 0)) { // the ended operation had them
    o->phase = TAPE_PHASE_NONE;
    o->wait = -1;
    o->wait_since = 0;
  }
}

static inline void end(struct tape_comm *comm, uint64_t launched, uint16_t code, bool refused) {
  if (!tape_on(comm)) {
    return;
  }
  int64_t now = tape_now();
  struct operations *o = &comm->op;
  struct pending *p = &o->list[0];
  uint8_t phase = TAPE_PHASE_NONE;
  bool alone = o->plain && launched == o->launched && launched == o->completed + 1;
  if (!alone) {
    if (launched <= o->completed || launched > o->launched) {
      return;
    }
    p = find(o, launched);
    if (p->ended) {
      return;
    }
    p->ended = true;
    if (launched == o->completed + 1) {
      phase = o->phase;
    }
  }
  if (launched - o->captured_first < o->captured && code == CARILLON_CODE_OK) {
    add(&comm->slot->captured, 1);
    put_op(comm, TAPE_KIND_OP, p, now, TAPE_STAGE_END, TAPE_PHASE_CAPTURED, -1, code);
  } else {
    put_end(comm, p, now, refused ? TAPE_PHASE_REFUSED : phase, code);
  }
  struct layout_counters *counters = &comm->slot->counters;
  uint8_t call = (uint8_t)p->kinds;
  if (code == CARILLON_CODE_OK && call < CARILLON_NUM_CALLS && (TAPE_COLLECTIVES >> call & 1) != 0 &&
      p->number > counters->done) {
    store_release(&counters->done, p->number);
  }
  if (code != CARILLON_CODE_OK && (is_message(call) || p == &o->forgotten)) {
    tape_uncount(comm); // it was counted, but not sent
  }
  store_release(&counters->last_end, (uint64_t)now);
  if (alone) { // a shortcut for the rest
    o->completed = launched;
    o->n = 0;
  } else {
    struct pending *last = find(o, o->launched);
    retire(o, launched);
    if (o->completed < o->launched) {
      tape_show(comm, oldest(o));
    } else if (launched < o->launched) { // the slot shows an older operation than the last one
      tape_show(comm, last);
    }
  }
  if (o->completed == o->launched) {
    store_release(&counters->ended, o->launched);
  }
}

void tape_op_end(struct tape_comm *comm, uint64_t launched, uint16_t code) { end(comm, launched, code, false); }

void tape_op_refuse(struct tape_comm *comm, uint64_t launched, uint16_t code) { end(comm, launched, code, true); }
