/**
 * @file
 * Shared by the files of the tape's writer: the tape of this process, its communicators, and how words are written.
 *
 *   tape.c         the tape and its communicators: the in-flight table, the life ring, the clock, the bell
 *   tape_op.c      operations: slots, the op ring and the ordinary ring
 *   tape_mark.c    marks: how far streams are
 *   tape_tally.c   tallies
 *   tape_file.c    making the file
 *   tape_folder.c  where it may be
 *   tape_clock.c   its clock
 *   tape_hole.c    what happens when somebody truncates it
 *   tape_process.c what it says of the process
 */
#ifndef CARILLON_TAPE_WRITER_H
#define CARILLON_TAPE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../lifecycle/carillon_lifecycle.h"
#include "tape.h"
#include "tape_file.h"

/** An operation that is in flight, or was a moment ago. */
struct pending {
  uint64_t number; /**< the number that the ranks agree on */
  int64_t start;
  uint64_t kinds, bytes;
  int32_t peer;
  bool told; /**< the op ring has its start */
  bool ended;
};

/**
 * What a communicator remembers of its operations. The fields that an operation needs that is like the one before and
 * alone in flight come first, on few cache lines.
 */
struct operations {
  uint64_t launched, completed; /**< all operations up to completed have ended */
  uint64_t page_number;         /**< of the last operation on the communicator's page */
  int64_t page_start;           /**< of the same operation */
  uint64_t captured_first;      /**< the first of the latest run of captured operations */
  uint64_t captured;            /**< how many operations are captured from that one on */
  uint32_t page_used;           /**< in words */
  uint8_t n, head;              /**< the last n that were launched are known: a queue in list, starting at head */
  bool plain;                   /**< the slot's latch shows list[0], which is alone in flight and waits for no rank */
  uint8_t phase;                /**< of the oldest operation in flight */
  struct pending list[TAPE_MAX_PENDING];
  struct pending forgotten; /**< stands in for an operation that is not known any more */
  struct pending kept;      /**< the oldest operation in flight, if list doesn't have it any more */
  uint64_t kept_launched;   /**< the number of kept; 0: none is kept */
  int64_t wait_since;
  uint32_t version; /**< of the slot's latch */
  int32_t wait;     /**< the rank that the oldest operation in flight waits for; -1: none */
};

/** The tally of the operation that a communicator ended last: most operations are like the one before. */
struct counting {
  struct layout_tally *tally; /**< NULL: none */
  uint64_t kinds, bytes;
  double cross; /**< bytes that cross a rank's link, times 1000: divided by ns, that gives MB/s */
  int32_t peer;
  bool paged; /**< the last record on the communicator's page is of an operation like this */
};

/** The state of a communicator's marks. */
struct marking {
  uint64_t launched, begun; /**< the operation that the next mark is behind, and its begun counter; launched 0: no mark
                                 is due */
  uint64_t before;          /**< the last operation launched before the ones that the next mark covers */
  uint64_t last;            /**< the operation that the last mark is behind; 0: there was none */
  struct pending op;        /**< the last operation that the due mark covers */
  uint32_t spare;           /**< how many marks may follow at once */
  int64_t refilled;         /**< the time up to which spare is counted */

  int64_t observed;           /**< when the last observed operation began */
  uint64_t observed_launched; /**< its number */
  uint32_t observed_mark;     /**< the mark behind it; 0: there is none yet */
  struct pending observed_op;

  bool slow; /**< the op ring has the start of an operation that the stream has not done for long */
  uint32_t slow_mark;
  struct pending slow_op;
};

/** A value of tape_comm.tallies, which has indices plus 1; 0: no tally was asked for yet. */
enum { TALLY_NONE = UINT16_MAX };

struct tape_comm {
  struct layout_slot *slot; /**< on the tape, or &own */
  uint64_t comm;            /**< number and slot, as records have them */
  uint64_t seed;            /**< of the sampling */
  uint64_t *page;           /**< NULL: none */
  uint64_t page_at;         /**< its index */
  struct counting counting;
  struct operations op;
  struct marking marking;

  uint32_t number; /**< from 1 */
  int32_t index;   /**< index in the table; -1: none */
  uint32_t peers;  /**< how many ranks have message counts */
  uint32_t peer;   /**< the index of the rank of the last message */
  int32_t highest; /**< the highest of those ranks */
  uint16_t tallies[TAPE_NUM_OPERATIONS][TAPE_SIZE_CLASSES];

  /* These fields, and slot, change only with both the turn and the lock: either is enough to read them. */
  struct tape_info info;
  uint32_t root;
  uint8_t state;
  bool closed;

  /** Under the lock: refused calls, by a hash, and how often each was refused. Further kinds share the last count. */
  struct {
    uint64_t is;
    uint32_t times;
  } refused[16];

  struct layout_slot own; /**< where the communicator has no slot on the tape: nobody reads it, and it saves branches */
};

/** A ring of records. */
struct ring {
  uint64_t *head;
  uint64_t *words;
  uint64_t mask;
};

/** Whether tape_open has been called, and whether it succeeded. */
enum progress { UNTRIED, MADE, FAILED };

/** The state with which a process writes its tape. */
struct tape_writer {
  enum progress progress; /**< atomic */
  bool off; /**< this is a forked child of the tape's process, or the tape was truncated; never switched back on */
  struct tape_file file;

  struct layout_changing *changing;
  struct layout_slot *slots;
  struct layout_tally *tallies;
  struct ring life, op;
  uint64_t *reached; /**< one word per slot, which devices write */
  uint64_t *marks;   /**< records, for each slot */
  uint32_t *marked;  /**< the number of the last mark, for each slot */
  int64_t mark_every; /**< ns */
  uint64_t *pages;
  uint64_t page_mask;
  uint8_t *pages_taken; /**< atomic: a communicator writes the page */
  uint64_t sample_every; /**< 0: none */

  pthread_mutex_t lock; /**< guards the fields below, and the descriptions of communicators */
  bool *slots_taken;   /**< a communicator has the slot; the first free one is taken, as the first ones have marks */
  bool *tallies_taken; /**< a communicator writes the tally */
  uint32_t number;     /**< of the last communicator */
  bool closed;

  pthread_mutex_t clock_lock; /**< serializes updates of the header's clock */
  int64_t clock_refreshed;    /**< atomic */
};

/** The tape of this process. */
extern struct tape_writer tape;

/** tape_on returns whether this process writes for a communicator, or at all. */
static inline bool tape_on(const struct tape_comm *comm) { return comm != NULL && !tape.off; }

/** bits is the number of bits in a number. */
static inline uint32_t bits(uint64_t n) { return n != 0 ? 64 - (uint32_t)__builtin_clzll(n) : 0; }

/* Words, markers and rings. */

static inline void store_release(uint64_t *to, uint64_t word) { __atomic_store_n(to, word, __ATOMIC_RELEASE); }

/** add adds to a word that only this thread writes, and readers may read at any time. */
static inline void add(uint64_t *to, uint64_t n) { __atomic_store_n(to, *to + n, __ATOMIC_RELAXED); }

static inline uint64_t pack32(int32_t low, int32_t high) { return (uint32_t)low | (uint64_t)(uint32_t)high << 32; }

static inline uint64_t marker(uint64_t number, uint8_t kind, uint64_t check) {
  return number << 32 | (uint64_t)kind << 24 | check >> 8;
}

/** store writes 7 words and then their marker. It takes the words in registers, which is faster. */
static inline void store(uint64_t *to, uint64_t number, uint8_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                         uint64_t e, uint64_t f, uint64_t g) {
  to[1] = a;
  to[2] = b;
  to[3] = c;
  to[4] = d;
  to[5] = e;
  to[6] = f;
  to[7] = g;
  uint64_t h = tape_rotate((uint32_t)number) ^ a;
  h = tape_rotate(h) ^ b;
  h = tape_rotate(h) ^ c;
  h = tape_rotate(h) ^ d;
  h = tape_rotate(h) ^ e;
  h = tape_rotate(h) ^ f;
  h = tape_rotate(h) ^ g;
  store_release(&to[0], marker(number, kind, tape_mix(h)));
}

static inline uint64_t reserve(struct ring *ring, uint64_t n) {
  return __atomic_fetch_add(ring->head, n, __ATOMIC_SEQ_CST);
}

static inline uint64_t *at(struct ring *ring, uint64_t index) {
  return ring->words + (index & ring->mask) * TAPE_RECORD_WORDS;
}

/**
 * tape_protect makes the process survive a truncated tape or a failed disk: an access to a page that is gone raises
 * SIGBUS, which a handler catches from now on. It maps empty private memory in place of the tape, and switches the tape
 * off; the access then succeeds there. Any other SIGBUS goes to the handler that was installed before.
 */
bool tape_protect(void);

/** tape_wake increments the bell, and wakes the followers that sleep on it. */
void tape_wake(void);

/** tape_version is the version of a latch: that of the later of its two copies, which have so many words each. */
static inline uint32_t tape_version(const uint64_t *latch, size_t words) {
  uint32_t first = (uint32_t)(latch[0] >> 32), second = (uint32_t)(latch[words + 1] >> 32);
  return (int32_t)(second - first) > 0 ? second : first;
}

/** tape_mark_configure sets how often there are marks. */
void tape_mark_configure(const struct tape_config *config);

/** tape_put writes a record of an operation to the op ring; rank is the one that it waits for, or its carrier. */
void tape_put(struct tape_comm *comm, const struct pending *p, int64_t time, uint8_t stage, uint8_t phase,
              int32_t rank);

/** tape_mark_has returns whether a communicator has a slot with marks. */
bool tape_mark_has(const struct tape_comm *comm);

/**
 * tape_again records that a device takes long for an operation whose launch has ended (START), or that it has done it
 * (END).
 */
void tape_again(struct tape_comm *comm, const struct pending *p, uint8_t stage, uint16_t code);

/** tape_marked_at is the communicator's part of the marks, followed by its message counts. */
static inline uint64_t *tape_marked_at(const struct tape_comm *comm) {
  return tape.marks + (size_t)comm->index * (TAPE_MARKS_SIZE / sizeof(uint64_t));
}

/** tape_counts returns whether the communicator's slot has that part. */
static inline bool tape_counts(const struct tape_comm *comm) {
  return comm->index >= 0 && comm->index < (int32_t)tape_marked(&tape.file.geometry) && !comm->closed;
}

/** tape_peers points to its counts, two words for each peer; the two words before them say whether there are any. */
static inline uint64_t *tape_peers(const struct tape_comm *comm) {
  return tape_marked_at(comm) + (size_t)TAPE_MARKS_PER_SLOT * TAPE_RECORD_WORDS + 2;
}

/** tape_last is the operation that was launched last, while that is in flight. */
const struct pending *tape_last(struct tape_comm *comm);

/** tape_show shows the operations in the slot, with p as the one that runs, by publishing the slot's latch. */
void tape_show(struct tape_comm *comm, const struct pending *p);

/** tape_give_page gives up the communicator's page, so that others may overwrite it. */
void tape_give_page(struct tape_comm *comm);

/** tape_count_as selects the communicator's tally for operations like p; none if there is no room for it. */
void tape_count_as(struct tape_comm *comm, const struct pending *p);

/**
 * tape_give_tallies gives the communicator's tallies back; they go on counting for the next communicator with its name.
 * The caller holds the tape's lock.
 */
void tape_give_tallies(struct tape_comm *comm);

#endif /* CARILLON_TAPE_WRITER_H */
